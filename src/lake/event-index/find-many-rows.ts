import { localFiles } from '../../runtime/store/open-store.ts';
import { isKeyedId, receivedAtOf, requestKeyOf } from '../../datasets/event-id.ts';
import { isAppError } from '../../runtime/errors.ts';
import { pruneFiles } from '../files/prune.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Statements } from '../sql/duckdb.ts';
import { sqlList } from '../sql/literals.ts';
import { hasOwnKeys, headSql, mayHoldId, toRow, type DatasetTable, type FoundRow } from './find-rows.ts';
import { indexKeyOf, type CandidateFile, type IdIndex } from './id-index.ts';

/**
 * Finds the rows of many ids of one app in one pass: the index names the files for all of them, and each file is read
 * at most once.
 */

export interface ManyRows {
  readonly rows: readonly FoundRow[];
  /** Whether every file that may have one of the ids was read. */
  readonly isComplete: boolean;
}

export interface ManyTargets {
  readonly idApp: number;
  /** Ids, or starts of ids of requests (`requestKeyOf`). */
  readonly idStarts: readonly string[];
}

interface Use {
  readonly index: IdIndex;
  readonly deadlineMs: number;
  /** Limit of files that are indexed here [none]. */
  readonly maxIndexedBytes?: number | undefined;
}

const filesAtOnce = 32;
const maxRows = 50_000;
const idLength = 36;

/** Finds the files of ids that contain their time of receipt. */
function listTimed(files: readonly DataFile[], idStarts: readonly string[]): CandidateFile[] {
  const windows = new Map<DataFile, CandidateFile>();
  for (const start of idStarts) {
    const atMs = receivedAtOf(start);
    if (atMs === undefined) continue;
    for (const file of pruneFiles(files, { receivedAt: { fromMs: atMs, toMs: atMs } })) {
      if (!mayHoldId(file, start)) continue;
      const { fromMs, toMs } = windows.get(file) ?? { fromMs: atMs, toMs: atMs };
      windows.set(file, { file, fromMs: Math.min(fromMs, atMs), toMs: Math.max(toMs, atMs) });
    }
  }
  return [...windows.values()];
}

/** Finds the files of hashed ids by the index. Files without an index are indexed until the deadline. */
async function listHashed(
  duckdb: Statements,
  { dataset }: DatasetTable,
  files: readonly DataFile[],
  { idApp, idStarts }: ManyTargets,
  { index, deadlineMs, maxIndexedBytes = Infinity }: Use,
): Promise<{ readonly candidates: readonly CandidateFile[]; readonly isComplete: boolean }> {
  const hashed = idStarts.filter((start) => receivedAtOf(start) === undefined);
  const isKeyed = hashed.some(isKeyedId);
  const hasNatural = hasOwnKeys(dataset) && !hashed.every(isKeyedId);
  const wanted = files.filter(({ keyless }) => hasNatural || (isKeyed && keyless !== true));
  if (hashed.length === 0 || wanted.length === 0) return { candidates: [], isComplete: true };
  const keys = [...new Set(hashed.map((start) => indexKeyOf(idApp, start)))];
  const found = await index.find(duckdb, wanted, keys);
  const candidates = [...found.candidates];
  let isComplete = true;
  // Small files do not wait for large ones.
  for (const file of found.unindexed.toSorted((a, b) => a.sizeBytes - b.sizeBytes)) {
    if (performance.now() >= deadlineMs || file.sizeBytes > maxIndexedBytes) {
      isComplete = false;
      continue;
    }
    await index.add(duckdb, file);
    const added = await index.find(duckdb, [file], keys);
    candidates.push(...added.candidates);
    // Maintenance with a newer version of the table may have removed the index again.
    if (added.unindexed.length > 0) isComplete = false;
  }
  return { candidates, isComplete };
}

async function readFiles(
  duckdb: Statements,
  { dataset }: DatasetTable,
  candidates: readonly CandidateFile[],
  { idApp, idStarts }: ManyTargets,
): Promise<FoundRow[]> {
  const fromMs = Math.min(...candidates.map((candidate) => candidate.fromMs));
  const toMs = Math.max(...candidates.map((candidate) => candidate.toMs));
  const ids = idStarts.filter(({ length }) => length === idLength);
  const starts = idStarts.filter(({ length }) => length !== idLength);
  const startLength = requestKeyOf('x'.repeat(idLength)).length;
  const matches = [
    ...(ids.length === 0 ? [] : [`event_id IN (SELECT unnest(${sqlList(ids)}))`]),
    ...(starts.length === 0 ? [] : [`substr(event_id, 1, ${startLength}) IN (SELECT unnest(${sqlList(starts)}))`]),
  ];
  const rows = await localFiles.use(
    candidates.map(({ file }) => file),
    (paths) =>
      duckdb.rows(
        `SELECT ${headSql(dataset)}
         FROM read_parquet(${sqlList(paths)}, hive_partitioning = false)
         WHERE id_app = $1 AND received_at >= make_timestamptz(${fromMs}000) AND received_at < make_timestamptz(${toMs + 1}000)
           AND (${matches.join(' OR ')})
         LIMIT ${maxRows}`,
        [idApp],
      ),
  );
  return rows.map(toRow);
}

/** Finds the rows of many ids in a version of a table, as far as the deadline permits. Errors: the engine's. */
export async function findManyRows(
  duckdb: Statements,
  table: DatasetTable,
  targets: ManyTargets,
  use: Use,
): Promise<ManyRows> {
  const files = pruneFiles(table.snapshot.files, { idApps: [targets.idApp] });
  const hashed = await listHashed(duckdb, table, files, targets, use).catch((error: unknown) => {
    if (!isAppError(error, 'overloaded')) throw error;
    return { candidates: [], isComplete: false };
  });
  // Files of neighbouring times together: their row groups of other times are not read.
  const candidates = [...listTimed(files, targets.idStarts), ...hashed.candidates].toSorted(
    (a, b) => a.fromMs - b.fromMs,
  );
  const rows = new Map<string, FoundRow>();
  let { isComplete } = hashed;
  for (let at = 0; at < candidates.length; at += filesAtOnce) {
    if (performance.now() >= use.deadlineMs || rows.size >= maxRows)
      return { rows: [...rows.values()], isComplete: false };
    const some = await readFiles(duckdb, table, candidates.slice(at, at + filesAtOnce), targets);
    for (const row of some) rows.set(row.eventId, row);
    if (some.length >= maxRows) isComplete = false;
  }
  return { rows: [...rows.values()], isComplete };
}
