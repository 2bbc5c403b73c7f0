import { localFiles } from '../../runtime/store/open-store.ts';
import assert from 'node:assert/strict';
import path from 'node:path';
import { AppError, isAppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { assertFilesIntact, toAdd, writeDataFile, type WrittenPart } from '../../lake/files/data-file.ts';
import { pruneFiles } from '../../lake/files/prune.ts';
import { isErasedSql, type FindErasedIds } from '../../lake/event-index/erased-ids.ts';
import type { OpenChange } from '../../lake/files/change.ts';
import {
  nextAvailableAtMs,
  findLoadState,
  isSameLoadState,
  listLoadStates,
  toLoadTxn,
  type LoadState,
} from '../../lake/log/lake-state.ts';
import type { Action } from '../../lake/log/actions.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import type { Table } from '../../lake/log/table.ts';
import { youngFolder } from '../../lake/log/young-folder.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList } from '../../lake/sql/literals.ts';
import { inPortions } from '../tables.ts';
import { removeFile, syncFolder } from '../../runtime/files/durable-file.ts';

/** Maximum number of attempts; each after the first follows another commit. */
const maxAttempts = 100;
/** Minimum lead of a second `available_at`, ms. */
const minStampAheadMs = 60_000;

/**
 * Returns the lead of the rows' new `available_at`, ms: they must be rewritten before the table's own reaches it.
 * `tookMs`: duration of the last rewrite; 0 before the first.
 */
export function stampAheadMs(tookMs: number): number {
  return Math.max(minStampAheadMs, Math.ceil(2 * tookMs));
}

const repeatsTable = 'load_repeats';

const readFiles = (files: readonly string[], more = ''): string =>
  `read_parquet(${sqlList(files)}, hive_partitioning = false${more})`;

/** SQL of the staged rows with their positions: `part` is the index of the file. */
function stagedSql(staged: readonly WrittenPart[]): string {
  return staged
    .map(
      ({ file }, part) =>
        `SELECT ${part} AS part, file_row_number AS row, id_app, event_id FROM ${readFiles([file], ', file_row_number = true')}`,
    )
    .join(' UNION ALL ');
}

/** Marks the rows whose identity appears earlier in their own file; usually hashes rule that out. */
async function markTwice(duckdb: Duckdb, staged: readonly WrittenPart[]): Promise<void> {
  const all = readFiles(staged.map(({ file }) => file));
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE load_twice AS SELECT h FROM (SELECT hash(id_app, event_id) AS h FROM ${all}) GROUP BY h HAVING count(*) > 1`,
  );
  const [found] = await duckdb.rows('SELECT count(*) AS n FROM load_twice');
  if (Number(found?.['n']) === 0) return;
  await duckdb.run(
    `INSERT INTO ${repeatsTable} SELECT part, row FROM (
       SELECT part, row, row_number() OVER (PARTITION BY id_app, event_id ORDER BY part, row) AS nth
       FROM (${stagedSql(staged)}) WHERE hash(id_app, event_id) IN (SELECT h FROM load_twice)) WHERE nth > 1`,
  );
}

async function markKnown(duckdb: Duckdb, staged: readonly WrittenPart[], files: readonly DataFile[]): Promise<void> {
  const apps = await duckdb.rows(`SELECT DISTINCT id_app FROM ${readFiles(staged.map(({ file }) => file))}`);
  const wanted = pruneFiles(files, { idApps: apps.map((row) => Number(row['id_app'])) });
  // A damaged file may hide an identity, which would be added again.
  await assertFilesIntact(wanted);
  for (const some of inPortions(wanted))
    await localFiles.use(some, (paths) =>
      duckdb.run(
        `INSERT INTO ${repeatsTable} SELECT part, row FROM (${stagedSql(staged)}) AS staged
         SEMI JOIN (SELECT id_app, event_id FROM ${readFiles(paths)}) AS known USING (id_app, event_id)`,
      ),
    );
}

/** Removes the rows that `files` have already, and with `own` those that appear earlier in their own file. */
export async function removeDuplicates(
  duckdb: Duckdb,
  staged: readonly WrittenPart[],
  files: readonly DataFile[],
  { own, makeRoom }: { readonly own: boolean; readonly makeRoom: () => Promise<string> },
): Promise<readonly WrittenPart[]> {
  if (staged.length === 0 || (files.length === 0 && !own)) return staged;
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${repeatsTable} (part INTEGER, row BIGINT)`);
  if (own) await markTwice(duckdb, staged);
  if (files.length > 0) await markKnown(duckdb, staged, files);
  return removeMarked(duckdb, staged, makeRoom);
}

/** Removes the rows whose ids are among the erased ids. */
export async function removeErased(
  duckdb: Duckdb,
  staged: readonly WrittenPart[],
  erasedIds: string,
  makeRoom: () => Promise<string>,
): Promise<readonly WrittenPart[]> {
  if (staged.length === 0) return staged;
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE ${repeatsTable} AS SELECT part, row FROM (${stagedSql(staged)}) WHERE ${isErasedSql(erasedIds)}`,
  );
  return removeMarked(duckdb, staged, makeRoom);
}

async function removeMarked(
  duckdb: Duckdb,
  staged: readonly WrittenPart[],
  makeRoom: () => Promise<string>,
): Promise<readonly WrittenPart[]> {
  const counted = await duckdb.rows(`SELECT part, count(DISTINCT row) AS n FROM ${repeatsTable} GROUP BY part`);
  if (counted.length === 0) return staged;
  const repeats = new Map(counted.map((row) => [Number(row['part']), Number(row['n'])]));
  const rewrite = (part: number): string =>
    `* EXCLUDE (file_row_number) FROM ${readFiles([staged[part]?.file ?? ''], ', file_row_number = true')}
     WHERE file_row_number NOT IN (SELECT row FROM ${repeatsTable} WHERE part = ${part})`;
  const left = await rewriteStaged(duckdb, staged, makeRoom, (one, part) => {
    const partRepeats = repeats.get(part) ?? 0;
    if (partRepeats === 0) return 'keep';
    return partRepeats === one.numRecords ? 'drop' : `SELECT ${rewrite(part)}`;
  });
  const repeatCount = [...repeats.values()].reduce((sum, n) => sum + n, 0);
  assert.equal(countRows(left), countRows(staged) - repeatCount, 'each staged row is left or a repeat');
  return left;
}

export const countRows = (files: readonly WrittenPart[]): number =>
  files.reduce((sum, { numRecords }) => sum + numRecords, 0);

function restamp(
  duckdb: Duckdb,
  staged: readonly WrittenPart[],
  availableAtMs: number,
  makeRoom: () => Promise<string>,
): Promise<readonly WrittenPart[]> {
  return rewriteStaged(
    duckdb,
    staged,
    makeRoom,
    ({ file }) =>
      `SELECT * REPLACE (make_timestamptz(${availableAtMs} * 1000) AS available_at) FROM ${readFiles([file])}`,
  );
}

async function rewriteStaged(
  duckdb: Duckdb,
  staged: readonly WrittenPart[],
  makeRoom: () => Promise<string>,
  toQuery: (one: WrittenPart, part: number) => string,
): Promise<readonly WrittenPart[]> {
  const room = await makeRoom();
  const left: WrittenPart[] = [];
  for (const [part, one] of staged.entries()) {
    const query = toQuery(one, part);
    if (query === 'keep') {
      left.push(one);
      continue;
    }
    if (query !== 'drop') {
      const file = path.join(room, path.basename(one.file));
      left.push({ file, ...(await writeDataFile(duckdb, query, file, 'young')) });
    }
    await removeFile(one.file);
  }
  await syncFolder(room);
  return left;
}

interface CommitDependencies {
  readonly table: Table;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

interface StagedLoad {
  readonly loadId: string;
  readonly change: OpenChange;
  readonly files: readonly WrittenPart[];
  readonly failed: number;
  /** Number of bad rows of the load's earlier generation, which these replace. */
  readonly failedBefore: number;
  readonly before: LoadState | undefined;
  readonly availableAtMs: number;
  /** Finds the hashes of erased ids; absent if erased rows are stored again. */
  readonly findErased?: FindErasedIds | undefined;
  readonly name: string;
}

export function nextLoadState(before: LoadState | undefined): LoadState {
  return { generation: (before?.generation ?? 0) + 1, status: 'loaded' };
}

type LoadStates = ReadonlyMap<string, LoadState>;

/** Lists the loads that may have rows in the table: rows of this one may be duplicates of theirs. */
function listLive(txns: ReadonlyMap<string, number>): LoadStates {
  return new Map([...listLoadStates(txns)].filter(([, { status }]) => status !== 'undone'));
}

/** Refuses to commit if one of `loads` was undone since: rows left out as its duplicates would be lost. */
function assertNoneUndone(loads: LoadStates, txns: ReadonlyMap<string, number>): void {
  for (const [id, { generation }] of loads) {
    const now = findLoadState(txns, id);
    if (now?.generation === generation && now.status !== 'undone') continue;
    throw new AppError(
      'commit_conflict',
      `the load ${id} was undone meanwhile, and its rows were left out as duplicates: nothing was loaded`,
      { hint: 'Run the command again.' },
    );
  }
}

interface Attempt {
  readonly files: readonly WrittenPart[];
  readonly availableAtMs: number;
  readonly seen: ReadonlySet<string>;
  /** Loads that rows may be duplicates of. */
  readonly judgedBy: LoadStates;
  readonly erased: number;
}

/** Commits. Error: `commit_conflict` if the table has changed in a way that matters. */
async function tryCommit(
  { clock }: CommitDependencies,
  load: StagedLoad,
  { files, availableAtMs, seen, judgedBy, erased }: Attempt,
  rows: number,
) {
  const stored = countRows(files);
  const failed = load.failed - load.failedBefore;
  const repeats = rows + load.failed - stored - failed - erased;
  const nowMs = clock.nowMs();
  const named = files.map((one, index) => ({ ...one, path: `${youngFolder}/${load.change.id}-${index}.parquet` }));
  const adds = named.map((one): Action => ({ add: toAdd(one.path, one, nowMs, true) }));
  await load.change.commit(named, (state, lake) => {
    if (!isSameLoadState(findLoadState(state.txns, load.loadId), load.before))
      throw new AppError('commit_conflict', 'the same file was loaded, or its load undone, meanwhile');
    if (stored < rows) assertNoneUndone(judgedBy, state.txns);
    if ([...state.files.keys()].some((file) => !seen.has(file)))
      throw new AppError('commit_conflict', 'rows were added to the table meanwhile');
    if (stored > 0 && lake.availableAtMs >= availableAtMs)
      throw new AppError('commit_conflict', 'the newest available_at of the table has changed meanwhile');
    return {
      cause: 'load',
      actions: [{ txn: toLoadTxn(load.loadId, nextLoadState(load.before), nowMs) }, ...adds],
      totals: { streamed: rows + load.failed, stored, failed, repeats, erased },
      ...(stored > 0 ? { availableAtMs } : {}),
      metrics: {
        load: load.loadId,
        file: load.name,
        rows: stored,
        bytes: files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
        repeats,
        ...(erased === 0 ? {} : { erased }),
        failed: load.failed,
      },
    };
  });
  return { stored, repeats, erased };
}

/** Reports whether another process has made the same load. Error: `commit_conflict` if it was undone. */
function isMadeMeanwhile(table: Table, { loadId, before }: StagedLoad): boolean {
  const now = findLoadState(table.state().txns, loadId);
  if (isSameLoadState(now, before)) return false;
  if (now?.status === 'loaded') return true;
  throw new AppError('commit_conflict', `the load ${loadId} was undone meanwhile: nothing was loaded`, {
    hint: 'Run the command again.',
  });
}

/**
 * Removes duplicates and erased rows from a staged load, by rewriting its files, and commits it. Compares again with
 * the files of other commits before another attempt. Undefined if another process has made the same load. Errors:
 * `file_damaged`, `commit_conflict` if a load with duplicates of its rows was undone, or after many attempts, `disk`,
 * `memory`, `sql`.
 */
export async function commitLoad(dependencies: CommitDependencies, load: StagedLoad, assertGoesOn: () => void) {
  const { table, duckdb, clock, crashPoint } = dependencies;
  const rows = countRows(load.files);
  const seen = new Set<string>();
  let rooms = 0;
  const makeRoom = (): Promise<string> => load.change.makeRoom(`again-${(rooms += 1)}`);
  let { files, availableAtMs } = load;
  let judgedBy: LoadStates = new Map();
  let tookMs = 0;
  let erased = 0;
  for (let attempt = 1; ; attempt += 1) {
    await table.refresh();
    if (isMadeMeanwhile(table, load)) return undefined;
    if (countRows(files) === rows) judgedBy = new Map();
    else assertNoneUndone(judgedBy, table.state().txns);
    judgedBy = new Map([...judgedBy, ...listLive(table.state().txns)]);
    const live = table.snapshot().files;
    const newFiles = live.filter((file) => !seen.has(encodeURI(file.path)));
    files = await removeDuplicates(duckdb, files, newFiles, { own: attempt === 1, makeRoom });
    for (const encoded of table.state().files.keys()) seen.add(encoded);
    // Read after the table: an erasure writes the hashes before it removes the rows.
    const erasedIds = (await load.findErased?.())?.file;
    if (erasedIds !== undefined) {
      const before = countRows(files);
      const staged = files;
      files = await localFiles.use([erasedIds], ([local = '']) => removeErased(duckdb, staged, local, makeRoom));
      erased += before - countRows(files);
    }
    if (files.length > 0 && table.lake().availableAtMs >= availableAtMs) {
      availableAtMs = nextAvailableAtMs(clock, table.lake()) + stampAheadMs(tookMs);
      const begunAtMs = performance.now();
      files = await restamp(duckdb, files, availableAtMs, makeRoom);
      tookMs = performance.now() - begunAtMs;
    }
    assertGoesOn();
    await crashPoint('load-staged');
    try {
      const committed = await tryCommit(dependencies, load, { files, availableAtMs, seen, judgedBy, erased }, rows);
      await crashPoint('load-committed');
      return committed;
    } catch (error) {
      if (!isAppError(error, 'commit_conflict') || attempt === maxAttempts) throw error;
    }
  }
}
