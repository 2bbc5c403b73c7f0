import { AppError } from '../../runtime/errors.ts';

/**
 * Actions of the Delta log that this table uses, and their parser. Protocol reader 1, writer 7 with a feature of our
 * own. Other engines write more: members that are not needed are optional, and unknown actions are ignored, as the
 * protocol requires.
 */

export interface FileStats {
  readonly numRecords?: number;
  readonly minValues?: Readonly<Record<string, unknown>>;
  readonly maxValues?: Readonly<Record<string, unknown>>;
  readonly nullCount?: Readonly<Record<string, unknown>>;
}

/** Adds a file. `path` is relative to the table's folder and URL-encoded. */
export interface AddAction {
  readonly path: string;
  readonly partitionValues: Readonly<Record<string, string>>;
  readonly size: number;
  /** Unix ms. */
  readonly modificationTime: number;
  readonly dataChange: boolean;
  /** FileStats as JSON text. */
  readonly stats?: string;
  /**
   * `sha256`: hash of the file's bytes, hex, by which `lake check` finds damage that Parquet itself does not show.
   * `since`: of a rewrite, when the file that is shown at its place left the table, Unix milliseconds
   * (lake/files/places.ts).
   * `replaces`: of a rewrite of version 0.3, the URL-encoded path of its place.
   * `keyed`: `0` where none of its events was stored under an Idempotency-Key; else nobody knows.
   */
  readonly tags?: Readonly<Record<string, string>>;
}

/** Removes a file; readers of older versions may use it until the retention has passed. */
export interface RemoveAction {
  readonly path: string;
  /** Unix ms. */
  readonly deletionTimestamp: number;
  readonly dataChange: boolean;
}

/** The progress of an application: here the last stream sequence in the table. */
export interface TxnAction {
  readonly appId: string;
  readonly version: number;
  readonly lastUpdated?: number;
}

export interface ProtocolAction {
  readonly minReaderVersion: number;
  readonly minWriterVersion: number;
  /** Only with reader version 3; null in other checkpoints. */
  readonly readerFeatures?: readonly string[] | null;
  /** Only with writer version 7; null in other checkpoints. */
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

/** Provenance of a commit. `tributary` is present if and only if this service wrote it (lake-state.ts). */
export interface CommitInfoAction {
  readonly timestamp: number;
  readonly operation: string;
  readonly operationParameters?: Readonly<Record<string, unknown>>;
  readonly engineInfo?: string;
  readonly txnId?: string;
  readonly tributary?: unknown;
}

/** One line of a commit: exactly one member is set. */
export interface Action {
  readonly protocol?: ProtocolAction;
  readonly metaData?: MetaDataAction;
  readonly add?: AddAction;
  readonly remove?: RemoveAction;
  readonly txn?: TxnAction;
  readonly commitInfo?: CommitInfoAction;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Types that members must have for an action to be usable. */
const required = {
  protocol: { minReaderVersion: 'number', minWriterVersion: 'number' },
  metaData: { id: 'string', schemaString: 'string' },
  add: { path: 'string', size: 'number' },
  remove: { path: 'string' },
  txn: { appId: 'string', version: 'number' },
  commitInfo: {},
} as const satisfies Record<keyof Action, Readonly<Record<string, string>>>;

/**
 * Parses one action. Returns undefined for a line without a known action (null counts as absent), and the problem as a
 * text for one that cannot be trusted.
 */
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

/** Parses statistics; unreadable ones count as none. */
export function parseStats(text: string | undefined): FileStats {
  if (text === undefined || text === null) return {};
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

/** Decodes the path of an add or a remove; undefined if it is invalid. */
export function decodePath(encoded: string): string | undefined {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return undefined;
  }
}

/** A feature that only this service supports. */
export const writerFeature = 'tributary-writer';

/**
 * The protocol of the table. Reader version 1: every engine may read it. Writer version 7 with a feature of our own: an
 * engine that keeps to the Delta protocol refuses to write what it does not know, so that it cannot optimize, vacuum,
 * append or delete. Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#table-features
 */
export const tableProtocol: ProtocolAction = {
  minReaderVersion: 1,
  minWriterVersion: 7,
  writerFeatures: [writerFeature],
};

/** The last writer version without features, which version 0.2 wrote. */
const plainWriterVersion = 2;

/** Says whether a table keeps other engines' writers out. */
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
    `the lake's table asks for reader ${protocol.minReaderVersion} and writer ${protocol.minWriterVersion}${features.length === 0 ? '' : ` (${features.join(', ')})`}, which this service does not know`,
    {
      hint: 'A newer version of this service, or another engine, has changed the table: start that version, or restore the log from before that.',
    },
  );
}

/** Returns the provenance of a commit. */
export function findInfo(actions: readonly Action[]): CommitInfoAction | undefined {
  return actions.find((action) => action.commitInfo !== undefined)?.commitInfo;
}

/** Returns the error of a log that cannot be trusted. */
export function logDamaged(what: string, cause?: unknown): AppError {
  return new AppError('log_damaged', what, {
    ...(cause === undefined ? {} : { cause }),
    hint: "Run 'tributary lake check', and restore what it names from a backup.",
  });
}
