/**
 * The lake: where events rest, as Parquet files under Delta logs: a table for each dataset, that of the imported events
 * first. The others come into being with their first rows.
 *
 * In: files that were written and fsynced, named by a commit. Out: snapshots, for exports, for SQL, for other engines.
 * Invariant: an event is in the lake when the commit that adds its file is in the log of its table, and not before. The
 * log is the only truth: about the files, about the position in the stream (txn), about the totals (log/lake-state.ts).
 * Crash: a commit is one link(2), so it is there whole or not at all. Files no commit names are swept at the next
 * start, or put aside when the stream says that the log has lost entries; a change that was interrupted is settled by
 * its record (files/change.ts).
 *
 * Layout: events/ (the table of the imported events), a folder like it for each other dataset that has had rows
 * (tablePaths), failed/ (events that could not be written), staging/ (work in hand, that of the other tables in folders
 * of their names), quarantine/ (files that no commit names), snapshot.sql, erased-ids.parquet (once there was an erasure). The lake's folder and the tables' are locked themselves.
 */
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { ensureFolder, moveFile, removeEmptyFolder, removeFile, syncFolder } from '../runtime/files/durable-file.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { isLocked } from '../runtime/files/lock.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { retry, type RetryOptions } from '../runtime/async/retry.ts';
import { datasets, events, type Dataset } from '../datasets/dataset.ts';
import type { Column } from '../datasets/field-schema.ts';
import { isTableName } from '../datasets/pipeline-file.ts';
import { ensureViews } from './catalogue/renew.ts';
import { type MetaDataAction, isOwnProtocol, tableProtocol, logDamaged } from './log/actions.ts';
import { writeCheckpoint } from './log/checkpoint.ts';
import { openDuckdb, type Duckdb } from './sql/duckdb.ts';
import { sqlName, sqlText } from './sql/literals.ts';
import { followGroupAccess, tableFolderMode } from '../runtime/files/group-access.ts';
import { ensureLakeId } from './identity.ts';
import { emptyTotals } from './log/lake-state.ts';
import { listLog, logFolder, logStore } from './log/log-files.ts';
import { emptyFileName, emptyFilePath, loadTableState, readSnapshot } from './log/snapshot.ts';
import { ensureSnapshotFile } from './sql/snapshot-sql.ts';
import { linkCommit, openTable, toCommitInfo, type Table, type TableOptions } from './log/table.ts';
import {
  parseSchemaString,
  sealedColumnsProperty,
  toSchemaString,
  upgradeSchema,
  type TableColumn,
} from './table-schema.ts';
import { listDataFiles, statsProperty, tableStore } from './files/data-file.ts';
import { findNames, listNames } from '../runtime/files/folder-names.ts';
import { youngFolder } from './log/young-folder.ts';

/** Paths below the lake's folder. */
export function lakePaths(lakeDir: string) {
  const root = path.resolve(lakeDir);
  return {
    root,
    ...tablePaths(lakeDir, events),
    failed: path.join(root, 'failed'),
    /**
     * Files that no commit names: young ones that were moved when the stream contradicted the log, so that they may
     * have events that the lake has lost, and those of other engines.
     */
    quarantine: path.join(root, 'quarantine'),
    /** Their folder before version 0.4. Read until 0.5. */
    formerQuarantine: path.join(root, 'orphans'),
    /** The last stream sequence that the compactor has seen. */
    streamEnd: path.join(root, 'stream-end.json'),
    /** The watermark of the newest commit's position, if later than the commit's own. */
    watermark: path.join(root, 'watermark.json'),
    /** Hashes of erased ids (find/erased-ids.ts). */
    erasedIds: path.join(root, 'erased-ids.parquet'),
    snapshotSql: path.join(root, 'snapshot.sql'),
    /** The folder that the running compactor locks. */
    compactorLock: root,
  } as const;
}

/** A table by name, with or without a dataset. */
export type TableName = Pick<Dataset, 'table'>;

/** Paths of a table. */
export function tablePaths(lakeDir: string, { table: name }: TableName) {
  const root = path.resolve(lakeDir);
  const table = path.join(root, name);
  const staging = path.join(root, 'staging');
  return {
    table,
    young: path.join(table, youngFolder),
    /** The folder that rewrites of existing files lock: seal, erasure, replay. */
    maintenanceLock: table,
    /** Work in progress of the lock's holder; the next holder completes or removes it. */
    staging: name === events.table ? staging : path.join(staging, name),
  } as const;
}

export interface LakeOptions {
  readonly clock: Clock;
  /** How long removed files and old log entries stay for readers, ms. */
  readonly retentionMs: number;
  /** Columns of the table; the dataset's by default. Tests of schema changes pass others. */
  readonly columns?: readonly Column[];
}

/** Retries writes whose temporaries the start of a compactor removed. */
const whileSwept: RetryOptions = { forMs: 2000, everyMs: 50, retryable: (error) => isSystemError(error, 'ENOENT') };

/** Writes the Parquet file with every column and no row, atomically. */
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

/** Commits version 0. Of concurrent processes, one succeeds and the others find it. */
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

/** Refuses to start a log where files of another log exist: they would be removed as leftovers. */
async function assertNoFiles(tableDir: string): Promise<void> {
  const found = await listDataFiles(tableDir);
  if (found.length === 0) return;
  // Another process may have started the log concurrently, with its own files.
  if ((await listLog(tableDir)).commits.length > 0) return;
  throw new AppError('log_damaged', `the lake has ${found.length} files and no log`, {
    hint: `Put the entries of ${logFolder(tableDir)} back from a copy, or move the files away.`,
  });
}

async function readColumns(tableDir: string): Promise<TableColumn[]> {
  const { metaData } = await loadTableState(tableDir);
  if (metaData === undefined) throw logDamaged("the lake's log has no metaData");
  return parseSchemaString(metaData.schemaString);
}

/** Reports whether everything that readers need exists; then nothing has to be opened. */
async function isComplete(tableDir: string): Promise<boolean> {
  return (await listLog(tableDir)).checkpoints.length > 0 && (await exists(emptyFilePath(tableDir)));
}

/**
 * Ensures that a lake exists that readers can use, possibly empty: folders, version 0 with its checkpoint, the empty
 * file, snapshot.sql. Any process may call it. Errors: `start_failed` without hard links, `lake_protocol`.
 */
export async function ensureLake(lakeDir: string, options: LakeOptions): Promise<void> {
  // The concurrent start of a compactor removes our temporaries.
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

/** Moves the quarantined files of version 0.3. One whose name is taken stays, since both may have lost events. */
async function moveFormerQuarantine({ formerQuarantine, quarantine }: ReturnType<typeof lakePaths>): Promise<void> {
  if (!(await exists(formerQuarantine))) return;
  await ensureFolder(quarantine);
  const taken = new Set(await listNames(quarantine));
  for (const name of await findNames(formerQuarantine))
    if (!taken.has(name)) await moveFile(path.join(formerQuarantine, name), path.join(quarantine, name));
  await syncFolder(quarantine);
  await removeEmptyFolder(formerQuarantine);
}

/** Lists the paths of the quarantined files of all tables. */
export async function listQuarantined(lakeDir: string): Promise<string[]> {
  const { quarantine, formerQuarantine } = lakePaths(lakeDir);
  const files: string[] = [];
  for (const folder of [quarantine, formerQuarantine])
    for (const name of await findNames(folder)) files.push(path.join(folder, name));
  return files;
}

/** Ensures that snapshot.sql names the existing tables. */
async function completeSnapshotFile(lakeDir: string, options: LakeOptions): Promise<void> {
  const { snapshotSql: file, root } = lakePaths(lakeDir);
  await ensureSnapshotFile({ ...options, file, root }, await listTables(lakeDir));
}

/** Ensures that a dataset's table exists: folders, version 0 with its checkpoint, the empty file. */
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
    if (!(await exists(emptyFilePath(paths.table)))) await writeEmptyFile(duckdb, paths.table, columns);
    if (isNew) await createTable(lakeDir, dataset, options);
    if (checkpoints.length === 0)
      await writeCheckpoint(duckdb, paths.table, await loadTableState(paths.table), noCrashPoint);
  } finally {
    duckdb.close();
  }
}

/** Reports whether a dataset has a table: it is created with its first rows. */
export async function hasTable(lakeDir: string, dataset: TableName): Promise<boolean> {
  const { commits, checkpoints } = await listLog(tablePaths(lakeDir, dataset).table);
  return commits.length > 0 || checkpoints.length > 0;
}

/** Lists the datasets with a table, the imported events first; empty if there is no lake. */
export async function listTables(lakeDir: string): Promise<Dataset[]> {
  const names = new Set(await findNames(path.resolve(lakeDir)));
  const tables: Dataset[] = [];
  for (const dataset of datasets.values())
    if (names.has(dataset.table) && (await hasTable(lakeDir, dataset))) tables.push(dataset);
  return tables;
}

/**
 * Lists the tables that no pipeline names, such as those of a dataset whose files an upgrade has replaced. Their rows
 * cannot be exported or erased until the pipeline is restored.
 */
export async function listUnnamedTables(lakeDir: string): Promise<TableName[]> {
  const tables: TableName[] = [];
  for (const table of await findNames(path.resolve(lakeDir)))
    if (isTableName(table) && !datasets.has(table) && (await hasTable(lakeDir, { table }))) tables.push({ table });
  return tables;
}

export const unnamedTableTodo =
  "Restore the dataset's pipeline and row schema in TRIBUTARY_DATASETS_DIR (datasets/ in the data folder), and start the service again.";

export async function findUnnamedTables(lakeDir: string): Promise<Problem[]> {
  return (await listUnnamedTables(lakeDir)).map(({ table }) => ({
    code: 'table_unnamed',
    subject: table,
    message: `no pipeline names the table lake/${table}: its rows are not exported, not sealed and cannot be erased`,
    action: unnamedTableTodo,
  }));
}

/** Refuses to work on a lake with a table whose rows cannot be read. Error: `conflict`. */
export async function assertTablesNamed(lakeDir: string): Promise<void> {
  const tables = await listUnnamedTables(lakeDir);
  if (tables.length === 0) return;
  throw new AppError('conflict', `no pipeline names ${tables.map(({ table }) => `lake/${table}`).join(', ')}`, {
    hint: unnamedTableTodo,
  });
}

/**
 * Refuses a lake with a column that its dataset lacks or has with another type: exports would leave it empty. An
 * unreadable log is reported elsewhere. Error: `schema_change`.
 */
export async function assertTableColumns(lakeDir: string): Promise<void> {
  for (const dataset of await listTables(lakeDir)) {
    const snapshot = await readSnapshot(tablePaths(lakeDir, dataset).table).catch(() => undefined);
    if (snapshot?.schemaString !== undefined) upgradeSchema(snapshot.schemaString, dataset.columns);
  }
}

export async function listOtherTables(lakeDir: string): Promise<Dataset[]> {
  return (await listTables(lakeDir)).filter((dataset) => dataset !== events);
}

export function isCompactorRunning(lakeDir: string): boolean {
  return isLocked(lakePaths(lakeDir).compactorLock);
}

/**
 * Opens the lake for writing: checks that commits can work, upgrades the protocol of a table of an earlier version, and
 * adds columns of new optional fields and missing properties, each by one commit. The caller has the compactor's lock.
 * Errors: those of `ensureLake` and `openTable`, `schema_change`.
 */
export async function openLake(lakeDir: string, options: LakeOptions & TableOptions): Promise<Table> {
  await ensureLake(lakeDir, options);
  return openUpgraded(lakeDir, events, options);
}

/**
 * Opens the table of a dataset for writing, and creates it if it is missing. Any process may do so. The lake exists.
 */
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

/** Returns the metadata of a table with the columns and properties of this version. */
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
      // Before the commit: readers see NULL in a column that the table lacks.
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

/** Returns the name of a table's file in quarantine: its own name for imported events, else with the prefix `TABLE.`. */
export function quarantinedName({ table }: Pick<Dataset, 'table'>, file: string): string {
  return table === events.table ? file : `${table}.${file}`;
}

/** Returns the dataset of a quarantined file. */
export function quarantinedDataset(name: string): Dataset {
  return datasets.get(name.split('.')[0] ?? '') ?? events;
}
