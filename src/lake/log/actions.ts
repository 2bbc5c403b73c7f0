import { AppError } from '../../runtime/errors.ts';

/**
 * The actions of the Delta log, protocol reader 1 and writer 7 with a feature of our own (actions.ts), as far as this
 * table uses them; and the parser that turns a line of a commit, or a row of a checkpoint, into one. Foreign engines
 * write what they like: whatever is not needed is optional, and an action of an unknown kind is ignored, as the
 * protocol asks.
 */

/** Column statistics of a file, by column name; timestamps as ISO 8601 text with milliseconds. */
export interface FileStats {
  readonly numRecords?: number;
  readonly minValues?: Readonly<Record<string, unknown>>;
  readonly maxValues?: Readonly<Record<string, unknown>>;
  readonly nullCount?: Readonly<Record<string, unknown>>;
}

/** A file becomes part of the table. `path` is relative to the table's folder and URL-encoded. */
export interface AddAction {
  readonly path: string;
  readonly partitionValues: Readonly<Record<string, string>>;
  readonly size: number;
  /** Milliseconds since the Unix epoch. */
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

/** A file is no longer part of the table; readers of older versions may still use it until the retention has passed. */
export interface RemoveAction {
  readonly path: string;
  /** Milliseconds since the Unix epoch. */
  readonly deletionTimestamp: number;
  readonly dataChange: boolean;
}

/** How far an application has got: here, the last stream sequence that is in the table. */
export interface TxnAction {
  readonly appId: string;
  readonly version: number;
  readonly lastUpdated?: number;
}

export interface ProtocolAction {
  readonly minReaderVersion: number;
  readonly minWriterVersion: number;
  /** Only with reader version 3; null in a checkpoint that has none. */
  readonly readerFeatures?: readonly string[] | null;
  /** Only with writer version 7; null in a checkpoint that has none. */
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

/** Provenance of a commit. `tributary` is there exactly when this service wrote it (see lake-state.ts). */
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

/** The types a member must have for an action to be usable; anything else about it is the writer's own business. */
const required = {
  protocol: { minReaderVersion: 'number', minWriterVersion: 'number' },
  metaData: { id: 'string', schemaString: 'string' },
  add: { path: 'string', size: 'number' },
  remove: { path: 'string' },
  txn: { appId: 'string', version: 'number' },
  commitInfo: {},
} as const satisfies Record<keyof Action, Readonly<Record<string, string>>>;

/**
 * Parses one action. Returns undefined for a line that holds none of the known actions (null members count as absent:
 * checkpoints have them), and the text of the problem for one that cannot be trusted.
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

/** Parses an add's statistics; statistics that cannot be read are as good as none. */
export function parseStats(text: string | undefined): FileStats {
  if (text === undefined || text === null) return {};
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

/** Decodes the path of an add or a remove; undefined when it is no valid URL-encoding. */
export function decodePath(encoded: string): string | undefined {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return undefined;
  }
}

/** The feature that a writer of the table must know: no other engine does. */
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

/** The last writer version without features, which version 0.2 of this service wrote. */
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

/** Refuses a table whose protocol this code does not know. */
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
