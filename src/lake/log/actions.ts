import { AppError } from '../../runtime/errors.ts';
import { isRecord, membersOf } from '../../runtime/files/checksummed-json.ts';

/** Actions of the Delta log. Unknown members and actions are ignored, as the protocol requires. */

export interface FileStats {
  readonly numRecords?: number;
  readonly minValues?: Readonly<Record<string, unknown>>;
  readonly maxValues?: Readonly<Record<string, unknown>>;
  readonly nullCount?: Readonly<Record<string, unknown>>;
}

/** Path relative to the table's folder, URL-encoded. */
export interface AddAction {
  readonly path: string;
  readonly partitionValues: Readonly<Record<string, string>>;
  readonly size: number;
  readonly modificationTime: number;
  readonly dataChange: boolean;
  readonly stats?: string;
  /**
   * `sha256`: hash of the file's bytes, hex, which detects damage.
   * `since`: for a rewrite, when the file shown at its path left the table, Unix ms (lake/files/deferred-replacement.ts).
   * `replaces`: for a rewrite of version 0.3, the URL-encoded path of the shown file.
   * `groups`: place and hash of the hashes of the row groups (lake/files/row-group-hashes.ts).
   * `keyed`: `0` if none of its events was stored under an Idempotency-Key; otherwise unknown.
   */
  readonly tags?: Readonly<Record<string, string>>;
  /** Of another engine only. */
  readonly deletionVector?: unknown;
}

/**
 * A condition in SQL that holds for all adds a reader needs. In it, `bounds."minValues".COLUMN` and
 * `bounds."maxValues".COLUMN` are texts of the statistics; NULL for absent ones.
 */
export interface AddFilter {
  /** Columns of the condition, at least one. */
  readonly columns: readonly string[];
  readonly condition: string;
}

/** Removes a file. Readers of older versions may use it until the retention has passed. */
export interface RemoveAction {
  readonly path: string;
  readonly deletionTimestamp: number;
  readonly dataChange: boolean;
  readonly deletionVector?: unknown;
}

/** The progress of an application, here the last committed stream sequence. */
export interface TxnAction {
  readonly appId: string;
  readonly version: number;
  readonly lastUpdated?: number;
}

export interface ProtocolAction {
  readonly minReaderVersion: number;
  readonly minWriterVersion: number;
  readonly readerFeatures?: readonly string[] | null;
  readonly writerFeatures?: readonly string[] | null;
}

export interface MetaDataAction {
  readonly id: string;
  readonly name?: string;
  readonly description?: string;
  readonly format: { readonly provider: string; readonly options: Readonly<Record<string, string>> };
  readonly schemaString: string;
  readonly partitionColumns: readonly string[];
  readonly configuration: Readonly<Record<string, string>>;
  readonly createdTime?: number;
}

/** Provenance of a commit. Only this service writes `tributary` (lake-state.ts). */
export interface CommitInfoAction {
  readonly timestamp: number;
  readonly operation: string;
  readonly operationParameters?: Readonly<Record<string, unknown>>;
  readonly engineInfo?: string;
  readonly txnId?: string;
  readonly tributary?: unknown;
}

/** A line of a commit, with exactly one member. */
export interface Action {
  readonly protocol?: ProtocolAction;
  readonly metaData?: MetaDataAction;
  readonly add?: AddAction;
  readonly remove?: RemoveAction;
  readonly txn?: TxnAction;
  readonly commitInfo?: CommitInfoAction;
}

/** Required member types. */
const required = {
  protocol: { minReaderVersion: 'number', minWriterVersion: 'number' },
  metaData: { id: 'string', schemaString: 'string' },
  add: { path: 'string', size: 'number' },
  remove: { path: 'string' },
  txn: { appId: 'string', version: 'number' },
  commitInfo: {},
} as const satisfies Record<keyof Action, Readonly<Record<string, string>>>;

/** Parses an action. Returns undefined for an unknown one, and a text that describes an invalid one. */
export function parseAction(text: string): Action | string | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return 'not JSON';
  }
  if (!isRecord(value)) return 'not an object';
  for (const [kind, members] of Object.entries(required)) {
    const body = value[kind];
    if (body === undefined || body === null) continue;
    if (!isRecord(body)) return `${kind} is not an object`;
    const bad = Object.entries(members).find(([member, type]) => typeof body[member] !== type);
    if (bad !== undefined) return `${kind}.${bad[0]} is not a ${bad[1]}`;
    return { [kind]: body };
  }
  return undefined;
}

export function parseStats(text: string | undefined): FileStats {
  if (text === undefined || text === null) return {};
  try {
    return membersOf(JSON.parse(text));
  } catch {
    return {};
  }
}

/** Decodes the path of an add or remove; undefined if invalid. */
export function decodePath(encoded: string): string | undefined {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return undefined;
  }
}

const writerFeature = 'tributary-writer';

/**
 * Lets every engine read, and other engines refuse to write, since they lack the writer feature. Source:
 * https://github.com/delta-io/delta/blob/master/PROTOCOL.md#table-features
 */
export const tableProtocol: ProtocolAction = {
  minReaderVersion: 1,
  minWriterVersion: 7,
  writerFeatures: [writerFeature],
};

/** The last writer version without features, which version 0.2 wrote. */
const plainWriterVersion = 2;

/** Reports whether a protocol makes other engines refuse to write. */
export function isOwnProtocol(protocol: ProtocolAction | undefined): boolean {
  return (
    protocol?.minReaderVersion === 1 &&
    protocol.minWriterVersion === 7 &&
    protocol.writerFeatures?.length === 1 &&
    protocol.writerFeatures[0] === writerFeature
  );
}

/** Refuses a table with a protocol that this code does not support. */
export function assertProtocol(protocol: ProtocolAction | undefined): void {
  if (protocol === undefined || isOwnProtocol(protocol)) return;
  if (protocol.minReaderVersion <= 1 && protocol.minWriterVersion <= plainWriterVersion) return;
  const features = [...(protocol.readerFeatures ?? []), ...(protocol.writerFeatures ?? [])];
  throw new AppError(
    'lake_protocol',
    `the lake's table requires reader ${protocol.minReaderVersion} and writer ${protocol.minWriterVersion}${features.length === 0 ? '' : ` (${features.join(', ')})`}, which this service does not support`,
    {
      hint: 'Run the newer version that changed the table, or restore the log from a backup.',
    },
  );
}

export function findInfo(actions: readonly Action[]): CommitInfoAction | undefined {
  return actions.find((action) => action.commitInfo !== undefined)?.commitInfo;
}

export function logDamaged(what: string, cause?: unknown): AppError {
  return new AppError('log_damaged', what, {
    ...(cause === undefined ? {} : { cause }),
    hint: "Run 'tributary lake check', and restore the files that it lists from a backup.",
  });
}
