/**
 * The lake stores events as Parquet files under Delta logs, one table per dataset. Secondary tables are created with
 * their first rows.
 *
 * In: written and fsynced files that a commit names. Out: snapshots for exports, SQL and other engines.
 * Invariant: an event is in the lake if and only if a commit in its table's log adds its file. The log alone defines
 * the files, the stream position (txn) and the totals (log/lake-state.ts).
 * Crash: a commit is one atomic link(2). The next start removes or quarantines files that no commit names. Staged
 * rewrites are completed or dropped (files/change.ts).
 * Layout: events/, a folder per further dataset, failed/ (failed events), staging/ (work in progress), quarantine/,
 * snapshot.sql, erased-ids.parquet. Locks are on the lake's folder and the tables'.
 */
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { ensureFolder, moveFile, removeEmptyFolder, removeFile, syncFolder } from '../runtime/files/durable-file.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { isLocked } from '../runtime/files/lock.ts';
import { isLeaseHeld } from '../runtime/store/object-lock.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { retry, type RetryOptions } from '../runtime/async/retry.ts';
import { datasets, events, type Dataset } from '../datasets/dataset.ts';
import type { Column } from '../datasets/field-schema.ts';
import { isTableName } from '../datasets/pipeline-file.ts';
import { ensureViews } from './catalogue/refresh.ts';
import { type MetaDataAction, isOwnProtocol, tableProtocol, logDamaged } from './log/actions.ts';
import { writeCheckpoint } from './log/checkpoint.ts';
import { openDuckdb, type Duckdb } from './sql/duckdb.ts';
import { sqlName, sqlText } from './sql/literals.ts';
import { followGroupAccess, tableFolderMode } from '../runtime/files/group-access.ts';
import { ensureLakeId } from './identity.ts';
import { emptyTotals } from './log/lake-state.ts';
import { listLog, logFolder, logStore, tableStore } from './log/log-files.ts';
import { emptyFileName, loadTableState, readSnapshot } from './log/snapshot.ts';
import { ensureSnapshotFile } from './sql/snapshot-sql.ts';
import { linkCommit, openTable, toCommitInfo, type Table, type TableOptions } from './log/table.ts';
import {
  parseSchemaString,
  sealedColumnsProperty,
  toSchemaString,
  upgradeSchema,
  type TableColumn,
} from './table-schema.ts';
import { lakeStore, listDataFiles, statsProperty } from './files/data-file.ts';
import { findNames, listNames } from '../runtime/files/folder-names.ts';
import { youngFolder } from './log/young-folder.ts';

export function lakePaths(lakeDir: string) {
  const root = path.resolve(lakeDir);
  return {
    root,
    ...tablePaths(lakeDir, events),
    failed: path.join(root, 'failed'),
    /** Files that no commit names, such as those after a stream fault, and those of other engines. */
    quarantine: path.join(root, 'quarantine'),
    /** Name of `quarantine` before 0.4. Read until 0.5. */
    formerQuarantine: path.join(root, 'orphans'),
    /** The last stream sequence that the compactor has seen. */
    streamEnd: path.join(root, 'stream-end.json'),
    /** Hashes of erased ids (find/erased-ids.ts). */
    erasedIds: path.join(root, 'erased-ids.parquet'),
    /** The watermark of the newest commit's position, if later than the commit's own. */
    watermark: path.join(root, 'watermark.json'),
    snapshotSql: path.join(root, 'snapshot.sql'),
    compactorLock: root,
  } as const;
}

export type TableName = Pick<Dataset, 'table'>;

export function tablePaths(lakeDir: string, { table: name }: TableName) {
  const root = path.resolve(lakeDir);
  const table = path.join(root, name);
  const staging = path.join(root, 'staging');
  return {
    table,
    young: path.join(table, youngFolder),
    maintenanceLock: table,
    /** Work in progress of the lock's holder. The next holder completes or removes it. */
    staging: name === events.table ? staging : path.join(staging, name),
  } as const;
}

export const compactorLease = 'compact';

/** Name of the lease of a table's maintenance, where hosts share it. */
export const maintenanceLease = ({ table }: TableName): string => `maintain-${table}`;

export interface LakeOptions {
  readonly clock: Clock;
  /** Retention of removed files and old log entries, ms. */
  readonly retentionMs: number;
  readonly columns?: readonly Column[];
}

/** Retries writes whose temporaries the start of a compactor removed. */
const whileSwept: RetryOptions = { forMs: 2000, everyMs: 50, retryable: (error) => isSystemError(error, 'ENOENT') };

async function writeEmptyFile(duckdb: Duckdb, tableDir: string, columns: readonly TableColumn[]): Promise<void> {
  const store = tableStore(tableDir);
  const temporary = store.localPath(emptyFileName);
  try {
    const list = columns.map((column) => `NULL::${column.type} AS ${sqlName(column.name)}`).join(', ');
    await duckdb.run(`COPY (SELECT ${list} LIMIT 0) TO ${sqlText(temporary)} (FORMAT parquet)`);
    await store.upload(emptyFileName, temporary);
  } finally {
    await removeFile(temporary);
  }
}

/** Commits version 0. Among concurrent processes, one succeeds and the others use its version. */
async function createTable(lakeDir: string, dataset: Dataset, options: LakeOptions): Promise<void> {
  // The lake's id is that of its table of events.
  const id = dataset === events ? await ensureLakeId(lakeDir) : randomUUID();
  const commitId = randomUUID();
  const nowMs = options.clock.nowMs();
  const columns = options.columns ?? dataset.columns;
  const before = { commitId: '', cause: 'create', totals: emptyTotals, availableAtMs: 0 } as const;
  const metaData = {
    id,
    name: dataset.table,
    description: dataset.description,
    format: { provider: 'parquet', options: {} },
    schemaString: toSchemaString(columns),
    partitionColumns: [],
    configuration: {
      'delta.deletedFileRetentionDuration': `interval ${options.retentionMs} milliseconds`,
      ...statsProperty(columns),
      [sealedColumnsProperty]: String(columns.length),
    },
    createdTime: nowMs,
  };
  const stamp = { version: 0, commitId, nowMs, previous: undefined };
  const commitInfo = toCommitInfo(before, { cause: 'create', actions: [] }, stamp);
  const actions = [{ commitInfo }, { protocol: tableProtocol }, { metaData }];
  await linkCommit(tablePaths(lakeDir, dataset).table, 0, actions, noCrashPoint);
}

/** Refuses to start a log next to files of another log: they would be removed as leftovers. */
async function assertNoFiles(tableDir: string): Promise<void> {
  const found = await listDataFiles(tableDir);
  if (found.length === 0) return;
  // Another process may have started the log concurrently, with its own files.
  if ((await listLog(tableDir)).commits.length > 0) return;
  throw new AppError('log_damaged', `the lake has ${found.length} files and no log`, {
    hint: `Restore the entries of ${logFolder(tableDir)} from a copy, or move the files away.`,
  });
}

async function readColumns(tableDir: string): Promise<TableColumn[]> {
  const { metaData } = await loadTableState(tableDir);
  if (metaData === undefined) throw logDamaged("the lake's log has no metaData");
  return parseSchemaString(metaData.schemaString);
}

const hasEmptyFile = async (tableDir: string): Promise<boolean> =>
  (await tableStore(tableDir).findSize(emptyFileName)) !== undefined;

async function isComplete(tableDir: string): Promise<boolean> {
  return (await listLog(tableDir)).checkpoints.length > 0 && (await hasEmptyFile(tableDir));
}

/** Ensures that a readable lake exists, possibly empty. Errors: `start_failed` without hard links, `lake_protocol`. */
export async function ensureLake(lakeDir: string, options: LakeOptions): Promise<void> {
  // A concurrent compactor start removes temporaries of this process.
  await retry(() => completeLake(lakeDir, options), whileSwept);
}

async function completeLake(lakeDir: string, options: LakeOptions): Promise<void> {
  const paths = lakePaths(lakeDir);
  await ensureFolder(paths.root);
  await followGroupAccess(paths.root);
  for (const folder of [paths.failed, paths.staging]) await ensureFolder(folder);
  await moveFormerQuarantine(paths);
  await completeTable(lakeDir, events, options);
  await completeSnapshotFile(lakeDir, options);
  await ensureViews(lakeDir);
}

/**
 * Moves the quarantined files of version 0.3, except those whose name is taken: both may have lost events. That version
 * had lakes in folders only.
 */
async function moveFormerQuarantine({ formerQuarantine, quarantine }: ReturnType<typeof lakePaths>): Promise<void> {
  if (!(await exists(formerQuarantine))) return;
  await ensureFolder(quarantine);
  const taken = new Set(await listNames(quarantine));
  for (const name of await findNames(formerQuarantine))
    if (!taken.has(name)) await moveFile(path.join(formerQuarantine, name), path.join(quarantine, name));
  await syncFolder(quarantine);
  await removeEmptyFolder(formerQuarantine);
}

export async function listQuarantined(lakeDir: string): Promise<string[]> {
  const { root, quarantine, formerQuarantine } = lakePaths(lakeDir);
  const prefixes = [quarantine, formerQuarantine].map((folder) => `${path.basename(folder)}/`);
  const keys = await Promise.all(prefixes.map((prefix) => lakeStore(root).list(prefix)));
  return keys.flat().map((key) => path.join(root, key));
}

async function completeSnapshotFile(lakeDir: string, options: LakeOptions): Promise<void> {
  const { root } = lakePaths(lakeDir);
  await ensureSnapshotFile({ ...options, root }, await listTables(lakeDir));
}

/** Ensures that a dataset's table exists, with version 0, a checkpoint and the empty file. */
async function completeTable(lakeDir: string, dataset: Dataset, options: LakeOptions): Promise<void> {
  const paths = tablePaths(lakeDir, dataset);
  for (const folder of [logFolder(paths.table), paths.young]) await ensureFolder(folder, tableFolderMode);
  await ensureFolder(paths.staging);
  if (await isComplete(paths.table)) return;
  await logStore(paths.table).probe();
  const { commits, checkpoints } = await listLog(paths.table);
  const isNew = commits.length === 0 && checkpoints.length === 0;
  if (isNew) await assertNoFiles(paths.table);
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  try {
    // The empty file first: it exists for every version.
    const columns = isNew ? (options.columns ?? dataset.columns) : await readColumns(paths.table);
    if (!(await hasEmptyFile(paths.table))) await writeEmptyFile(duckdb, paths.table, columns);
    if (isNew) await createTable(lakeDir, dataset, options);
    if (checkpoints.length === 0)
      await writeCheckpoint(duckdb, paths.table, await loadTableState(paths.table), noCrashPoint);
  } finally {
    duckdb.close();
  }
}

export async function hasTable(lakeDir: string, dataset: TableName): Promise<boolean> {
  const { commits, checkpoints } = await listLog(tablePaths(lakeDir, dataset).table);
  return commits.length > 0 || checkpoints.length > 0;
}

/** Lists the datasets with a table, the imported events first. */
export async function listTables(lakeDir: string): Promise<Dataset[]> {
  const names = new Set(await lakeStore(lakeDir).folders(''));
  const tables: Dataset[] = [];
  for (const dataset of datasets.values())
    if (names.has(dataset.table) && (await hasTable(lakeDir, dataset))) tables.push(dataset);
  return tables;
}

/** Lists the tables that no pipeline names. Without their pipeline they cannot be exported or erased. */
export async function listUnnamedTables(lakeDir: string): Promise<TableName[]> {
  const tables: TableName[] = [];
  for (const table of await lakeStore(lakeDir).folders(''))
    if (isTableName(table) && !datasets.has(table) && (await hasTable(lakeDir, { table }))) tables.push({ table });
  return tables;
}

export const unnamedTableTodo =
  "Restore the dataset's pipeline and row schema in TRIBUTARY_DATASETS_DIR (datasets/ in the data folder), then restart the service.";

export async function findUnnamedTables(lakeDir: string): Promise<Problem[]> {
  return (await listUnnamedTables(lakeDir)).map(({ table }) => ({
    code: 'table_without_pipeline',
    subject: table,
    message: `no pipeline names the table lake/${table}: its rows are not exported, not sealed and cannot be erased`,
    action: unnamedTableTodo,
  }));
}

/** Throws `conflict` if a table has no pipeline, so that its rows cannot be read. */
export async function assertTablesNamed(lakeDir: string): Promise<void> {
  const tables = await listUnnamedTables(lakeDir);
  if (tables.length === 0) return;
  throw new AppError('conflict', `no pipeline names ${tables.map(({ table }) => `lake/${table}`).join(', ')}`, {
    hint: unnamedTableTodo,
  });
}

/** Throws `schema_change` if a dataset lacks a column of its table, or has it with another type. */
export async function assertTableColumns(lakeDir: string): Promise<void> {
  for (const dataset of await listTables(lakeDir)) {
    const snapshot = await readSnapshot(tablePaths(lakeDir, dataset).table).catch(() => undefined);
    if (snapshot?.schemaString !== undefined) upgradeSchema(snapshot.schemaString, dataset.columns);
  }
}

export async function listOtherTables(lakeDir: string): Promise<Dataset[]> {
  return (await listTables(lakeDir)).filter((dataset) => dataset !== events);
}

export async function isCompactorRunning(lakeDir: string): Promise<boolean> {
  const { compactorLock } = lakePaths(lakeDir);
  return isLocked(compactorLock) || (await isLeaseHeld(compactorLock, compactorLease));
}

/** Opens the lake for writing, and upgrades its schema. Errors: those of `ensureLake` and `openTable`. */
export async function openLake(lakeDir: string, options: LakeOptions & TableOptions): Promise<Table> {
  await ensureLake(lakeDir, options);
  return openUpgraded(lakeDir, events, options);
}

/** Opens a dataset's table for writing, and creates it if it is missing. */
export async function openDatasetTable(
  lakeDir: string,
  dataset: Dataset,
  options: LakeOptions & TableOptions,
): Promise<Table> {
  const isNew = !(await hasTable(lakeDir, dataset));
  await retry(() => completeTable(lakeDir, dataset, options), whileSwept);
  if (isNew) await completeSnapshotFile(lakeDir, options);
  return openUpgraded(lakeDir, dataset, options);
}

/** Adds the columns and properties of this version to a table's metadata. */
function upgradeMetaData(metaData: MetaDataAction, columns: readonly Column[]): MetaDataAction {
  return {
    ...metaData,
    schemaString: upgradeSchema(metaData.schemaString, columns),
    configuration: { ...metaData.configuration, ...statsProperty(columns) },
  };
}

async function openUpgraded(lakeDir: string, dataset: Dataset, options: LakeOptions & TableOptions): Promise<Table> {
  const { table: tableDir } = tablePaths(lakeDir, dataset);
  await retry(() => logStore(tableDir).probe(), whileSwept);
  const table = await openTable(tableDir, options);
  const metaData = table.state().metaData;
  if (metaData === undefined) throw logDamaged("the lake's log has no metaData");
  const columns = options.columns ?? dataset.columns;
  const upgraded = upgradeMetaData(metaData, columns);
  if (upgraded.schemaString !== metaData.schemaString) {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    try {
      // Written before the commit: readers see NULL in a column that the table lacks.
      await writeEmptyFile(duckdb, tableDir, parseSchemaString(upgraded.schemaString));
    } finally {
      duckdb.close();
    }
  }
  if (!isDeepStrictEqual(upgraded, metaData))
    await table.commit((state) => ({
      cause: 'schema',
      actions: [{ metaData: upgradeMetaData(state.metaData ?? metaData, columns) }],
    }));
  if (!isOwnProtocol(table.state().protocol))
    await table.commit(() => ({ cause: 'protocol', actions: [{ protocol: tableProtocol }] }));
  return table;
}

/** Returns the key of a table's file in quarantine. Names of files of secondary tables get the prefix `TABLE.`. */
export function quarantineKey({ table }: TableName, file: string): string {
  return `quarantine/${table === events.table ? file : `${table}.${file}`}`;
}

export function quarantinedDataset(name: string): Dataset {
  return datasets.get(name.split('.')[0] ?? '') ?? events;
}
