import path from 'node:path';
import { datasets, events } from '../datasets/dataset.ts';
import { findStoredSize, hashStored, localFiles } from '../runtime/store/open-store.ts';
import { describeError, isAppError } from '../runtime/errors.ts';
import { pause } from '../runtime/async/retry.ts';
import { checkCheckpoints, checkCommits, logPath, type Finding, checkVersionLedger } from './check-log.ts';
import { openDuckdb, type Duckdb } from './sql/duckdb.ts';
import { sqlText, sqlList } from './sql/literals.ts';
import { listFailedFiles, readFailedFile, failedRowsFolder, listFailedRows } from './files/failed-events.ts';
import { createErasedIdsSearch, findErasedIdsDamage } from './event-index/erased-ids.ts';
import { erasureListFile } from './event-index/erasure-list.ts';
import { findFileDamage, lakeStore, listDataFiles } from './files/data-file.ts';
import { findPublished } from './files/deferred-replacement.ts';
import { findNamesInProgress } from './files/staging.ts';
import {
  isCompactorRunning,
  lakePaths,
  listQuarantined,
  listUnnamedTables,
  tablePaths,
  unnamedTableTodo,
  type TableName,
} from './lake.ts';
import { findLakeState, type LakeState } from './log/lake-state.ts';
import { isForeignFile } from './repair/repair-log.ts';
import { commitName } from './log/log-files.ts';
import {
  loadOwnState,
  loadTableState,
  toSnapshot,
  withEmptyFile,
  type DataFile,
  type Snapshot,
} from './log/snapshot.ts';
import { describeFileSql, hasColumns } from './table-schema.ts';
import type { TableState } from './log/table-state.ts';
import { isMergedPath, isYoungPath, listKnownPaths } from './log/young-folder.ts';

/** Longest expected time between writing a file at its path and committing it, ms. */
const commitMs = 5000;
const recheckMs = 100;

interface TableCheck {
  readonly version: number;
  readonly files: number;
  readonly rows: number;
  readonly commits: number;
}

export interface CheckReport extends TableCheck {
  readonly ok: boolean;
  readonly problems: readonly Finding[];
  /** The other tables, by name; absent without any. */
  readonly tables?: Readonly<Record<string, TableCheck>>;
}

function wrongTotals(tableDir: string, detail: string): Finding {
  return { problem: 'wrong_totals', path: logPath(tableDir, ''), detail };
}

async function checkFile(duckdb: Duckdb, tableDir: string, file: DataFile): Promise<Finding | undefined> {
  const at = path.posix.join(path.basename(tableDir), file.path);
  const size = await findStoredSize(file);
  if (size === undefined) return { problem: 'missing_file', path: at, detail: 'in the log, but missing on disk' };
  if (size !== file.sizeBytes)
    return { problem: 'truncated_file', path: at, detail: `${size} bytes instead of ${file.sizeBytes}` };
  if (file.sha256 !== undefined && (await hashStored(file)) !== file.sha256)
    return { problem: 'damaged_file', path: at, detail: 'checksum mismatch' };
  try {
    const [row] = await localFiles.use([file], (paths) =>
      duckdb.rows(`SELECT count(*) AS n FROM read_parquet(${sqlList(paths)}, hive_partitioning = false)`),
    );
    if (file.numRecords !== undefined && Number(row?.['n']) !== file.numRecords) {
      return { problem: 'damaged_file', path: at, detail: `${String(row?.['n'])} rows instead of ${file.numRecords}` };
    }
  } catch (error) {
    return { problem: 'damaged_file', path: at, detail: describeError(error) };
  }
  return checkPlace(tableDir, file);
}

/** Verifies the file that readers of folders find for a sealed file. */
async function checkPlace(tableDir: string, file: DataFile): Promise<Finding | undefined> {
  const { publishedPath = file.path, sizeBytes, sha256, sinceMs } = file;
  let published = await findPublished(tableDir, file);
  // A seal links its files directly after its commit.
  if (published === 'none') await pause(recheckMs);
  published = await findPublished(tableDir, file);
  // A rewrite waits for the readers of the shown file, a merge for those of the shown folder.
  const waits = published === 'another' || (published === 'none' && isMergedPath(publishedPath));
  if (published === 'itself' || (waits && sinceMs !== undefined)) return undefined;
  const problem = { path: path.posix.join(path.basename(tableDir), publishedPath), detail: placeDetail };
  if (published === 'none') return { problem: 'missing_file', ...problem };
  // A copy of the lake may not have kept the link.
  const damage = await findFileDamage({ absolutePath: path.join(tableDir, publishedPath), sizeBytes, sha256 });
  return damage === undefined ? undefined : { problem: 'damaged_file', ...problem };
}

const placeDetail = 'readers of folders miss rows of the log here; the next start of the compactor repairs the link';

async function isLive(tableDir: string, file: DataFile): Promise<boolean> {
  return (await loadOwnState(tableDir)).state.files.has(encodeURI(file.path));
}

async function checkEmptyFile(duckdb: Duckdb, snapshot: Snapshot): Promise<Finding[]> {
  const { tableDir, emptyFile, schemaString } = snapshot;
  const at = path.posix.join(path.basename(tableDir), path.basename(emptyFile));
  if ((await findStoredSize({ absolutePath: emptyFile })) === undefined)
    return [{ problem: 'missing_file', path: at, detail: 'the next start writes it' }];
  const detail = 'remove it: the next start writes it';
  try {
    const isSound = await localFiles.use(withEmptyFile(snapshot), async ([local = '']) => {
      const rows = await duckdb.rows(`SELECT * FROM read_parquet(${sqlText(local)}) LIMIT 1`);
      return rows.length === 0 && hasColumns(await duckdb.rows(describeFileSql(local)), schemaString);
    });
    return isSound ? [] : [{ problem: 'damaged_file', path: at, detail }];
  } catch (error) {
    return [{ problem: 'damaged_file', path: at, detail: `${describeError(error)}; ${detail}` }];
  }
}

function orphanDetail(name: string): string {
  const kept = 'no commit names it: a leftover, unless the newest log entries are missing';
  return isYoungPath(name)
    ? `${kept}; the next start of the compactor removes it when the stream agrees with the log`
    : kept;
}

const putAsideDetail =
  'quarantined: the log did not name it, and the stream no longer had its events; check whether the lake has them, then remove it';
const foreignDetail =
  'quarantined by a repair: another engine added it; import its rows if you need them, then remove it';

async function listPutAside(lakeDir: string): Promise<Finding[]> {
  return (await listQuarantined(lakeDir)).map((file) => ({
    problem: 'unreferenced_file',
    path: path.relative(path.resolve(lakeDir), file),
    detail: isForeignFile(path.basename(file)) ? foreignDetail : putAsideDetail,
  }));
}

/** Finds Parquet files that no commit names, except those that a running compactor commits soon. */
async function findOrphans(lakeDir: string, tableDir: string): Promise<Finding[]> {
  const deadline = performance.now() + commitMs;
  for (;;) {
    const names = await listDataFiles(tableDir);
    const isInHand = await findNamesInProgress(tablePaths(lakeDir, { table: path.basename(tableDir) }).staging);
    // Read after the folders: it has the commits of concurrent writes.
    const { files, tombstones } = await loadTableState(tableDir);
    const known = listKnownPaths(files.values(), tombstones.keys());
    const found = names.filter((name) => !known.has(name) && !isInHand(name));
    if (found.length === 0 || performance.now() >= deadline || !(await isCompactorRunning(lakeDir))) {
      return found.map((name) => ({
        problem: 'unreferenced_file',
        path: path.posix.join(path.basename(tableDir), name),
        detail: orphanDetail(name),
      }));
    }
    await pause(recheckMs);
  }
}

interface FailedCount {
  readonly failed: number;
  readonly damaged: readonly Finding[];
  readonly lake: LakeState | undefined;
}

/** Counts the failed events, or a table's failed rows of loads, without concurrent changes and damaged files. */
async function countFailed(lakeDir: string, dataset: TableName): Promise<FailedCount> {
  const { failed: folder } = lakePaths(lakeDir);
  const { table } = tablePaths(lakeDir, dataset);
  const list = async ({ txns }: TableState): Promise<readonly string[]> =>
    dataset.table === events.table
      ? listFailedFiles(folder, table)
      : (await listFailedRows(failedRowsFolder(folder, table), txns)).files;
  for (let attempt = 1; ; attempt += 1) {
    const { state: before } = await loadOwnState(table);
    let failed = 0;
    const damaged: Finding[] = [];
    for (const file of await list(before)) {
      const read = await readFailedFile(file).catch((error: unknown) => {
        if (!isAppError(error, 'file_damaged')) throw error;
        return error;
      });
      const at = path.relative(path.resolve(lakeDir), file);
      if (isAppError(read)) damaged.push({ problem: 'damaged_file', path: at, detail: describeError(read) });
      else failed += read.length;
    }
    const { state: after } = await loadOwnState(table);
    if (after.version === before.version || attempt === 10)
      return { failed, damaged, lake: findLakeState(after.lastCommit) };
  }
}

/** Compares the totals of a table with its rows and with each other. */
function checkBooks(tableDir: string, { totals }: LakeState, rows: number): Finding[] {
  const accounted = totals.stored + totals.failed + totals.repeats + totals.erased;
  return [
    ...(rows === totals.stored
      ? []
      : [wrongTotals(tableDir, `the files have ${rows} rows, the totals say ${totals.stored}`)]),
    ...(totals.streamed === accounted
      ? []
      : [wrongTotals(tableDir, `of ${totals.streamed} events from the stream, ${accounted} are accounted for`)]),
  ];
}

async function checkTotals(lakeDir: string, dataset: TableName, lake: LakeState, rows: number): Promise<Finding[]> {
  const tableDir = tablePaths(lakeDir, dataset).table;
  const now = await countFailed(lakeDir, dataset);
  const failed =
    now.damaged.length > 0 || now.failed === now.lake?.totals.failed
      ? now.damaged
      : [wrongTotals(tableDir, `there are ${now.failed} failed events, the totals say ${now.lake?.totals.failed}`)];
  return [...checkBooks(tableDir, lake, rows), ...failed];
}

interface TableReport extends TableCheck {
  readonly problems: Finding[];
  readonly lake: LakeState | undefined;
}

/** Reads every byte of the live files of a table. Returns their problems and number of rows. */
async function checkFiles(snapshot: Snapshot): Promise<{ problems: Finding[]; rows: number }> {
  const { tableDir, files, version } = snapshot;
  const findings: Finding[] = [];
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 2 });
  let rows = 0;
  try {
    if (version >= 0) findings.push(...(await checkEmptyFile(duckdb, snapshot)));
    for (const file of files) {
      const finding = await checkFile(duckdb, tableDir, file);
      // An erasure removes replaced files at once.
      if (finding !== undefined && (await isLive(tableDir, file))) findings.push(finding);
      rows += file.numRecords ?? 0;
    }
  } finally {
    duckdb.close();
  }
  return { problems: findings, rows };
}

async function checkTable(lakeDir: string, tableDir: string): Promise<TableReport> {
  const { problems, commits } = await checkCommits(tableDir);
  problems.push(...(await checkCheckpoints(tableDir)));
  let state: TableState;
  try {
    // After a change by another engine, the version that exports read is checked.
    ({ state } = await loadOwnState(tableDir));
  } catch (error) {
    if (!isAppError(error)) throw error;
    if (problems.length === 0)
      problems.push({
        problem: 'unreadable',
        path: path.posix.join(path.basename(tableDir), '_delta_log'),
        detail: describeError(error),
      });
    return { version: -1, files: 0, rows: 0, commits, problems, lake: undefined };
  }
  const snapshot = toSnapshot(tableDir, state);
  const { files, lake, version } = snapshot;
  const found = await checkFiles(snapshot);
  const orphans = await findOrphans(lakeDir, tableDir);
  if (version < 0 && orphans.length > 0)
    problems.push({
      problem: 'missing_log_entry',
      path: logPath(tableDir, commitName(0)),
      detail: 'files without a log',
    });
  const ledger = await checkVersionLedger(tableDir, lake?.restamps);
  const all = [...problems, ...found.problems, ...orphans, ...ledger, ...(await checkErasureList(tableDir, lake))];
  return { version, files: files.length, rows: found.rows, commits, problems: all, lake };
}

/** Lists the secondary tables with a folder: those of datasets, then those that no pipeline names. */
async function listFollowerFolders(lakeDir: string, unnamed: readonly TableName[]): Promise<TableName[]> {
  const names = new Set(await lakeStore(lakeDir).folders(''));
  const named = [...datasets.values()].filter((dataset) => dataset !== events && names.has(dataset.table));
  return [...named, ...unnamed];
}

/** Verifies the list of erased rows. The next erasure begins another one without it. */
async function checkErasureList(tableDir: string, lake: LakeState | undefined): Promise<Finding[]> {
  const file = lake === undefined ? undefined : erasureListFile(tableDir, lake);
  const damage = file === undefined ? undefined : await findFileDamage(file);
  if (file === undefined || damage === undefined) return [];
  const problem = damage.retryable ? 'missing_file' : 'damaged_file';
  const at = path.posix.join(path.basename(tableDir), file.path);
  const detail = 'restore it from a backup; without it, the next erasure begins a new list of erased rows';
  return [{ problem, path: at, detail }];
}

/** Verifies that the hashes of erased ids are those in the log, or readable if it has none. */
async function checkErasedIds(lakeDir: string): Promise<Finding[]> {
  const paths = lakePaths(lakeDir);
  const at = path.basename(paths.erasedIds);
  const found = await createErasedIdsSearch(paths)().catch((error: unknown) => {
    if (!isAppError(error)) throw error;
    return error;
  });
  // A damaged log is reported separately.
  if (isAppError(found, 'log_damaged')) return [];
  if (isAppError(found)) {
    const size = await findStoredSize({ absolutePath: paths.erasedIds });
    const problem = size === undefined ? 'missing_file' : 'damaged_file';
    return [{ problem, path: at, detail: describeError(found) }];
  }
  if (found.file === undefined) return [];
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    const detail = await findErasedIdsDamage(duckdb, found.file);
    return detail === undefined ? [] : [{ problem: 'damaged_file', path: at, detail }];
  } finally {
    duckdb.close();
  }
}

/** Verifies the log and every live file of every table, byte by byte. Reads only, also while the service runs. */
export async function checkLake(lakeDir: string): Promise<CheckReport> {
  const tableDir = lakePaths(lakeDir).table;
  const { problems, lake, ...eventsReport } = await checkTable(lakeDir, tableDir);
  problems.push(...(await listPutAside(lakeDir)), ...(await checkErasedIds(lakeDir)));
  if (lake !== undefined) problems.push(...(await checkTotals(lakeDir, events, lake, eventsReport.rows)));
  const tables: Record<string, TableCheck> = {};
  const unnamed = await listUnnamedTables(lakeDir);
  for (const { table } of unnamed)
    problems.push({ problem: 'unnamed_table', path: table, detail: `no pipeline names it. ${unnamedTableTodo}` });
  for (const dataset of await listFollowerFolders(lakeDir, unnamed)) {
    const dir = tablePaths(lakeDir, dataset).table;
    const { problems: found, lake: own, ...report } = await checkTable(lakeDir, dir);
    if (report.version < 0 && found.length === 0) continue;
    const totals = own === undefined ? [] : await checkTotals(lakeDir, dataset, own, report.rows);
    for (const finding of [...found, ...totals]) problems.push(finding);
    tables[dataset.table] = report;
  }
  return {
    ok: problems.length === 0,
    ...eventsReport,
    problems,
    ...(Object.keys(tables).length === 0 ? {} : { tables }),
  };
}
