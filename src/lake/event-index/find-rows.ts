import { localFiles } from '../../runtime/store/open-store.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { type EventHead, lineColumns } from '../../datasets/event-line.ts';
import type { Column } from '../../datasets/field-schema.ts';
import { withEmptyFile, type DataFile, type Snapshot } from '../log/snapshot.ts';
import { type Statements, type SqlValue, openDuckdb } from '../sql/duckdb.ts';
import { sqlList, sqlName, sqlText } from '../sql/literals.ts';
import { isKeyedId, receivedAtOf } from '../../datasets/event-id.ts';
import { AppError } from '../../runtime/errors.ts';
import { membersOf } from '../../runtime/files/checksummed-json.ts';
import { type FileFilter, pruneFiles } from '../files/prune.ts';
import { type CandidateFile, type IdIndex, type IndexResult, indexKeyOf } from './id-index.ts';

export interface DatasetTable {
  readonly dataset: Dataset;
  readonly snapshot: Snapshot;
}

/** A row. Times are Unix ms. Rows of other engines may lack some. */
export interface FoundRow extends Omit<EventHead, 'idApp'> {
  readonly availableAtMs: number | undefined;
}

export interface FullRow extends FoundRow {
  /** As in the event's line: numbers as texts, Unix s (`received_at` ms), maps as objects, null for none. */
  readonly values: Readonly<Record<string, unknown>>;
}

/** A table with a single kind may lack the column. */
function kindSql({ columns, kinds }: Dataset): string {
  if (columns.some(({ name }) => name === 'kind')) return 'kind';
  return kinds.length === 1 && kinds[0] !== undefined ? sqlText(kinds[0]) : 'NULL';
}

export const headSql = (dataset: Dataset): string =>
  `event_id, ${kindSql(dataset)} AS kind, epoch_ms(event_time) AS event_ms, epoch_ms(received_at) AS received_ms, epoch_ms(available_at) AS available_ms`;

function valueSql({ name, type }: Column): string {
  if (name === 'event_time') return `(epoch_ms(event_time) // 1000)::VARCHAR`;
  if (name === 'received_at') return `epoch_ms(received_at)::VARCHAR`;
  return type === 'MAP(VARCHAR, VARCHAR)' ? sqlName(name) : `${sqlName(name)}::VARCHAR`;
}

function lineSql({ columns }: Dataset): string {
  const has = new Set(columns.map(({ name }) => name));
  const members = lineColumns
    .filter(({ name }) => has.has(name))
    .map((column) => `${sqlText(column.name)}: ${valueSql(column)}`);
  return `to_json({${members.join(', ')}})::VARCHAR`;
}

const msOf = (value: unknown): number | undefined => (typeof value === 'bigint' ? Number(value) : undefined);

export const toRow = (row: Readonly<Record<string, unknown>>): FoundRow => ({
  eventId: String(row['event_id']),
  kind: typeof row['kind'] === 'string' ? row['kind'] : undefined,
  eventTimeMs: msOf(row['event_ms']),
  receivedAtMs: msOf(row['received_ms']),
  availableAtMs: msOf(row['available_ms']),
});

/** The event of an id, or all events of a request under an Idempotency-Key. */
export type LookupTarget = { readonly idApp?: number | undefined } & (
  | { readonly eventId: string }
  /** Start of the ids of the request (`makeRequestKeys`). */
  | { readonly requestKey: string }
);

const maxFoundRows = 256;

export const idStartOf = (target: LookupTarget): string => ('eventId' in target ? target.eventId : target.requestKey);

export const isLookupTarget = (target: LookupTarget, eventId: string): boolean => eventId.startsWith(idStartOf(target));

/** Reports whether a file's least and greatest id permit ids with this start. */
export function mayHoldId({ minValues, maxValues }: DataFile, start: string): boolean {
  const [min, max] = [minValues['event_id'], maxValues['event_id']];
  return !(typeof min === 'string' && min > `${start}~`) && !(typeof max === 'string' && max < start);
}

export const hasOwnKeys = ({ kindSpecs }: Dataset): boolean =>
  [...kindSpecs.values()].some(({ key }) => key.length > 0);

/** Reports whether a file may have ids that do not contain their time of receipt. */
export function mayHoldHashed(dataset: Dataset, { keyless }: DataFile): boolean {
  // The tag covers Idempotency-Keys only.
  return keyless !== true || hasOwnKeys(dataset);
}

interface IndexUse {
  readonly index: IdIndex;
  readonly idApps: readonly number[];
  /** End of indexing, by `performance.now()`. */
  readonly deadlineMs: number;
  /** Limit of files that are indexed here [none]. Maintenance indexes larger ones. */
  readonly maxIndexedBytes?: number | undefined;
}

async function findCandidates(
  duckdb: Statements,
  { dataset, snapshot }: DatasetTable,
  target: LookupTarget,
  { index, idApps }: IndexUse,
): Promise<IndexResult> {
  const start = idStartOf(target);
  const apps = target.idApp === undefined ? {} : { idApps: [target.idApp] };
  const receivedAtMs = receivedAtOf(start);
  const times = receivedAtMs === undefined ? {} : { receivedAt: { fromMs: receivedAtMs, toMs: receivedAtMs } };
  const files = pruneFiles(snapshot.files, { ...apps, ...times }).filter((file) => mayHoldId(file, start));
  if (receivedAtMs !== undefined)
    return { candidates: files.map((file) => ({ file, fromMs: receivedAtMs, toMs: receivedAtMs })), unindexed: [] };
  const mayHold = isKeyedId(start) ? ({ keyless }: DataFile) => keyless !== true : () => hasOwnKeys(dataset);
  return index.find(
    duckdb,
    files.filter(mayHold),
    idApps.map((idApp) => indexKeyOf(idApp, start)),
  );
}

/** Indexes missing files before the deadline, and looks up the id in them. */
async function findInUnindexed(
  duckdb: Statements,
  unindexed: readonly DataFile[],
  idStart: string,
  use: IndexUse,
): Promise<CandidateFile[]> {
  const { index, idApps, deadlineMs, maxIndexedBytes = Infinity } = use;
  const keys = idApps.map((idApp) => indexKeyOf(idApp, idStart));
  const candidateFiles: CandidateFile[] = [];
  // Small files do not wait for large ones.
  for (const [done, file] of unindexed.toSorted((a, b) => a.sizeBytes - b.sizeBytes).entries()) {
    // Maintenance with a newer version of the table may remove an index again.
    for (let isIndexed = false; !isIndexed;) {
      if (performance.now() >= deadlineMs || file.sizeBytes > maxIndexedBytes)
        throw new AppError('overloaded', `${unindexed.length - done} files of the lake are not indexed yet`, {
          hint: 'Retry in a minute.',
        });
      await index.add(duckdb, file);
      const matches = await index.find(duckdb, [file], keys);
      candidateFiles.push(...matches.candidates);
      isIndexed = matches.unindexed.length === 0;
    }
  }
  return candidateFiles;
}

async function readCandidates(
  duckdb: Statements,
  table: DatasetTable,
  target: LookupTarget,
  candidateFiles: readonly CandidateFile[],
): Promise<FoundRow[]> {
  if (candidateFiles.length === 0) return [];
  const start = idStartOf(target);
  const fromMs = Math.min(...candidateFiles.map((candidateFile) => candidateFile.fromMs));
  const toMs = Math.max(...candidateFiles.map((candidateFile) => candidateFile.toMs));
  const values: SqlValue[] = [start, `${start}~`, ...(target.idApp === undefined ? [] : [target.idApp])];
  const files = candidateFiles.map(({ file }) => file);
  const rows = await localFiles.use(files, (paths) =>
    duckdb.rows(
      `SELECT ${headSql(table.dataset)}
       FROM read_parquet(${sqlList(paths)}, hive_partitioning = false)
       WHERE event_id >= $1 AND event_id < $2 ${target.idApp === undefined ? '' : 'AND id_app = $3'}
         AND received_at >= make_timestamptz(${fromMs}000) AND received_at < make_timestamptz(${toMs + 1}000)
       ORDER BY event_id LIMIT ${maxFoundRows}`,
      values,
    ),
  );
  return rows.map(toRow);
}

/**
 * Finds the rows of an id or a request in a version of a table, by the time in an id of version 7 or by the index.
 * Error: `overloaded` while files are indexed.
 */
export async function findRows(
  duckdb: Statements,
  table: DatasetTable,
  target: LookupTarget,
  use: IndexUse,
): Promise<FoundRow[]> {
  const { candidates, unindexed } = await findCandidates(duckdb, table, target, use);
  const rows = await readCandidates(duckdb, table, target, candidates);
  // An id has one event. Those of a request may be in several files.
  if (unindexed.length === 0 || (rows.length > 0 && 'eventId' in target)) return rows;
  const more = await findInUnindexed(duckdb, unindexed, idStartOf(target), use);
  return [...rows, ...(await readCandidates(duckdb, table, target, more))];
}

/** Finds complete rows of ids in the files that a filter selects, without an index. Errors: those of `findRows`. */
export async function findFullRows(
  { dataset, snapshot }: DatasetTable,
  eventIds: readonly string[],
  filter: FileFilter,
): Promise<FullRow[]> {
  const files = pruneFiles(snapshot.files, filter);
  if (files.length === 0 || eventIds.length === 0) return [];
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    // The empty file has every column: older files lack later ones.
    const rows = await localFiles.use(withEmptyFile(snapshot, files), (paths) =>
      duckdb.rows(
        `SELECT ${headSql(dataset)}, ${lineSql(dataset)} AS line
         FROM read_parquet(${sqlList(paths)}, union_by_name = true, hive_partitioning = false)
         WHERE event_id IN (${eventIds.map(sqlText).join(', ')})`,
      ),
    );
    return rows.map((row) => ({
      ...toRow(row),
      values: membersOf(JSON.parse(String(row['line']))),
    }));
  } finally {
    duckdb.close();
  }
}
