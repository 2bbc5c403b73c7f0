/**
 * The load: an operator's file becomes rows of a dataset's table.
 *
 * In: a file of CSV, JSON lines or Parquet, fields named as selectors or by a map (file-fields.ts). Out: one commit
 * with young files of the new rows; bad rows, up to the allowed number, are kept as failed rows.
 * Order: recognize, plan the fields, stage (stage-rows.ts), enrich (enrich-staged.ts), remove duplicates and commit
 * (commit-load.ts).
 * Invariant: a file is loaded completely or not at all; the same file, or rows that the table has, add nothing. The
 * engine bounds the memory and spills; the file may have any size.
 * Crash: atomic, by one change (lake/files/change.ts). A load takes the maintenance lock only to replace failed rows of
 * its earlier generation; loads of one id commit one after the other.
 */
import { createHash } from 'node:crypto';
import path from 'node:path';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { AppError } from '../../runtime/errors.ts';
import { getSize, hashFileByParts, findStamp } from '../../runtime/files/file-checks.ts';
import { followGroupAccess } from '../../runtime/files/group-access.ts';
import { linkInput, writeInput } from '../../runtime/files/input-file.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import {
  countFailedRows,
  failedRowsFolder,
  listFailedRows,
  removeFailedRows,
  writeFailedRows,
  type FailedEvent,
} from '../../lake/files/failed-events.ts';
import { createErasedIdsSearch } from '../../lake/event-index/erased-ids.ts';
import type { Enricher } from '../../lake/files/enriched-rows.ts';
import { openChange, type OpenChange } from '../../lake/files/change.ts';
import { lockLoad } from '../../lake/files/staging.ts';
import { lakePaths, tablePaths } from '../../lake/lake.ts';
import { nextAvailableAtMs, findLoadState } from '../../lake/log/lake-state.ts';
import type { Table } from '../../lake/log/table.ts';
import { openDuckdb, type Duckdb, type DuckdbOptions } from '../../lake/sql/duckdb.ts';
import {
  defaultKeptBytes,
  exceedsBounds,
  noBadRows,
  type BadBounds,
  type BadRows,
  type KeptBadRow,
} from './bad-rows.ts';
import { withTableLock } from '../tables.ts';
import { commitLoad, countRows, nextLoadState } from './commit-load.ts';
import { enrichStaged } from './enrich-staged.ts';
import { namesOf, type FieldMap } from './field-rules.ts';
import { validateFieldMap, planFileFields, type RejectedFile, type BadRow } from './file-fields.ts';
import { recognizeFile, splitArray, type RecognizedFile, type LoadFormat } from './recognize.ts';
import type { LoadStamp } from './row-sql.ts';
import { openSource } from './source.ts';
import {
  throwIfStopped,
  loadApps,
  stageRows,
  type RegisteredApp,
  type StagedRows,
  type StageOptions,
  watchProgress,
  type LoadProgress,
} from './stage-rows.ts';

export interface LoadDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly dataset: Dataset;
  readonly apps: readonly RegisteredApp[];
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly signal: AbortSignal;
  readonly limits: Pick<DuckdbOptions, 'memoryMb' | 'threads'>;
  /** Fills empty enriched columns; absent: they stay empty. */
  readonly enricher?: Enricher | undefined;
  /** Called about once per second. */
  readonly onProgress?: (loadProgress: LoadProgress) => void;
}

export interface LoadInput {
  /** Name in results and in the log. */
  readonly name: string;
  readonly from: string | AsyncIterable<Uint8Array>;
}

export interface LoadOptions {
  readonly map?: FieldMap;
  /** The app of rows that name none. */
  readonly idApp?: number;
  /** Maximum number of bad rows, which are kept as failed rows; 0 by default. */
  readonly maxBad?: number;
  /** Maximum size of kept bad rows, bytes; 64 MiB by default. */
  readonly maxKeptBytes?: number;
  readonly format?: LoadFormat;
  readonly restoreErased?: boolean;
  /** Accepts a file without text as one without rows. */
  readonly allowsEmpty?: boolean;
}

export type LoadOutcome =
  | {
      readonly file: string;
      readonly load: string;
      readonly rows: number;
      readonly stored: number;
      readonly repeats: number;
      /** Rows left out because they were erased; absent if none. */
      readonly erased?: number;
      readonly bad: number;
      /** Former name of `bad`, up to 0.3. */
      readonly failed: number;
      readonly first?: readonly BadRow[];
    }
  | { readonly file: string; readonly load: string; readonly stored: 0; readonly loadedBefore: true }
  | { readonly file: string; readonly refused: RejectedFile }
  | {
      readonly file: string;
      readonly refused: { readonly reason: 'bad_rows'; readonly detail: string };
      readonly badRows: number;
      readonly bad: readonly BadRow[];
    };

/** Returns the id of a load, from its content, dataset, map, app, and whether it restores erased rows. */
function loadIdOf(content: string, { table }: Dataset, options: LoadOptions): string {
  const { map = {}, idApp, restoreErased } = options;
  const names = Object.entries(map).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return createHash('sha256')
    .update(JSON.stringify([content, table, names, idApp ?? null, ...(restoreErased === true ? ['erased'] : [])]))
    .digest('hex')
    .slice(0, 32);
}

type KeptLoad = Pick<NonNullable<FailedEvent['load']>, 'id' | 'dataset' | 'map' | 'idApp'>;

function toFailedEvent(row: KeptBadRow, load: KeptLoad, failedAt: string): FailedEvent {
  const { line, reason, field, text } = row;
  return {
    reason: reason === 'bad_json' || reason === 'bad_line' ? 'bad_json' : 'bad_value',
    failedAt,
    line: text,
    load: { ...load, line, reason, ...(field === undefined ? {} : { field }) },
  };
}

/** Loads one file. Errors: `stopping`, `not_found`, `file_damaged`, `disk`, `memory`, `sql`, `commit_conflict`. */
export async function loadFile(
  dependencies: LoadDependencies,
  input: LoadInput,
  options: LoadOptions = {},
): Promise<LoadOutcome> {
  const { table, lakeDir, dataset, limits, signal } = dependencies;
  const fieldMapError = validateFieldMap(dataset, options.map ?? {});
  if (fieldMapError !== undefined) return { file: input.name, refused: fieldMapError };
  await followGroupAccess(lakePaths(lakeDir).root);
  const change = await openChange(table, tablePaths(lakeDir, dataset).staging, 'a load', dependencies.crashPoint, true);
  try {
    // The name has no pattern of the engine's.
    const file = path.join(change.folder, 'source');
    if (typeof input.from === 'string') await linkInput(input.from, file);
    else await writeInput(input.from, file, signal);
    await dependencies.crashPoint('load-opened');
    const duckdb = await openDuckdb({ ...limits, tempDir: path.join(change.folder, 'spill') });
    try {
      return await loadLinked({ ...dependencies, name: input.name, options, change, duckdb }, file);
    } finally {
      duckdb.close();
    }
  } finally {
    await change.close();
  }
}

interface Work extends LoadDependencies {
  readonly name: string;
  readonly options: LoadOptions;
  readonly change: OpenChange;
  readonly duckdb: Duckdb;
}

async function stageFile(
  duckdb: Duckdb,
  recognized: RecognizedFile,
  map: FieldMap,
  stageOptions: Omit<StageOptions, 'fields'>,
): Promise<StagedRows | RejectedFile> {
  const file =
    recognized.isArray === true
      ? await splitArray(duckdb, recognized, path.join(await stageOptions.makeRoom(), 'items'))
      : recognized;
  if ('reason' in file) return file;
  if (file.isEmpty === true) return { files: [], bad: noBadRows };
  const loadSource = await openSource(duckdb, file);
  if ('reason' in loadSource) return loadSource;
  const planned = planFileFields(stageOptions.dataset, loadSource.names, map, stageOptions.idApp !== undefined);
  return 'reason' in planned ? planned : stageRows(duckdb, loadSource, { ...stageOptions, fields: planned.fields });
}

async function loadLinked(work: Work, file: string): Promise<LoadOutcome> {
  const { table, dataset, apps, clock, signal, enricher, name, options, change, duckdb } = work;
  const before = findStamp(file);
  if (before === undefined)
    throw new AppError('not_found', `${name} does not exist`, { hint: 'Pass an existing file.' });
  const progress = watchProgress(work.onProgress, await getSize(file), duckdb);
  try {
    progress.phase('hash');
    const recognized = await recognizeFile(file, options, signal);
    throwIfStopped(signal);
    if ('reason' in recognized) return { file: name, refused: recognized };
    const loadId = loadIdOf(await hashFileByParts(file), dataset, options);
    throwIfStopped(signal);
    await table.refresh();
    const known = findLoadState(table.state().txns, loadId);
    if (known?.status === 'loaded') return loadedBefore(name, loadId);
    progress.phase('read');
    await loadApps(duckdb, apps);
    const stamp = { loadId, receivedAtMs: clock.nowMs(), availableAtMs: nextAvailableAtMs(clock, table.lake()) };
    let rooms = 0;
    const makeRoom = (): Promise<string> => change.makeRoom(`rows-${(rooms += 1)}`);
    const bounds = { maxBad: options.maxBad ?? 0, maxKeptBytes: options.maxKeptBytes ?? defaultKeptBytes };
    const stageOptions = { dataset, idApp: options.idApp, bounds, stamp, signal, makeRoom };
    const staged = await stageFile(duckdb, recognized, options.map ?? {}, stageOptions);
    if ('reason' in staged) return { file: name, refused: staged };
    if (findStamp(file) !== before)
      throw new AppError('file_damaged', `${name} changed during the load: nothing was loaded`, {
        hint: 'Run the load again when the file is complete.',
      });
    if (exceedsBounds(staged.bad, bounds)) return refuseRows(name, staged.bad, bounds);
    const files = await enrichStaged(duckdb, staged.files, { dataset, enricher, signal, makeRoom });
    await work.crashPoint('load-written');
    progress.phase('commit');
    return await commitStaged(work, { ...stamp, files, bad: staged.bad });
  } finally {
    progress.stop();
  }
}

const loadedBefore = (file: string, load: string): LoadOutcome => ({ file, load, stored: 0, loadedBefore: true });

function refuseRows(file: string, bad: BadRows, { maxBad, maxKeptBytes }: BadBounds): LoadOutcome {
  const nothing = 'nothing was loaded';
  const detail =
    bad.isTooLarge === true
      ? `${bad.count} rows are bad, and larger than the ${maxKeptBytes} bytes that are kept: ${nothing}. Fix them, or load the file in parts.`
      : `${bad.count} rows are bad; at most ${maxBad} are allowed: ${nothing}. Fix them, or keep them as failed rows with --max-bad ${bad.count}.`;
  return { file, refused: { reason: 'bad_rows', detail }, badRows: bad.count, bad: bad.first };
}

interface Staged extends StagedRows, LoadStamp {}

export async function listFailedOfLoad(table: Table, lakeDir: string, loadId: string): Promise<readonly string[]> {
  const folder = failedRowsFolder(lakePaths(lakeDir).failed, table.dir);
  return (await listFailedRows(folder, table.state().txns)).files.filter((file) => file.includes(loadId));
}

/**
 * Commits a load; loads of one id commit one after the other. If it replaces failed rows of an earlier generation, it
 * excludes erasures, which rewrite such files.
 */
async function commitStaged(work: Work, staged: Staged): Promise<LoadOutcome> {
  const { table, lakeDir, dataset, signal } = work;
  const lock = await lockLoad(tablePaths(lakeDir, dataset).staging, staged.loadId, () => throwIfStopped(signal));
  try {
    await table.refresh();
    return (await listFailedOfLoad(table, lakeDir, staged.loadId)).length === 0
      ? await commitRows(work, staged)
      : await withTableLock(table, lakeDir, 'a load', () => commitRows(work, staged));
  } finally {
    await lock.close();
  }
}

async function commitRows(work: Work, { loadId, files, bad, availableAtMs }: Staged): Promise<LoadOutcome> {
  const { table, lakeDir, dataset, clock, crashPoint, signal, name, options, change, duckdb } = work;
  const failedFolder = failedRowsFolder(lakePaths(lakeDir).failed, table.dir);
  await table.refresh();
  const failedBefore = await countFailedRows(await listFailedOfLoad(table, lakeDir, loadId));
  const before = findLoadState(table.state().txns, loadId);
  if (before?.status === 'loaded') return loadedBefore(name, loadId);
  if (bad.count > 0) {
    const failedAt = new Date(clock.nowMs()).toISOString();
    const { map, idApp } = options;
    const load = {
      id: loadId,
      dataset: dataset.table,
      ...(map === undefined ? {} : { map: namesOf(map) }),
      ...(idApp === undefined ? {} : { idApp }),
    };
    const failed = bad.failed.map((row) => toFailedEvent(row, load, failedAt));
    const { generation } = nextLoadState(before);
    await writeFailedRows(failedFolder, change.folder, { loadId, generation }, failed);
    await crashPoint('load-failed-written');
  }
  const findErased = options.restoreErased === true ? undefined : createErasedIdsSearch(lakePaths(lakeDir));
  try {
    const committed = await commitLoad(
      { table, duckdb, clock, crashPoint },
      { loadId, change, files, failed: bad.count, failedBefore, before, availableAtMs, findErased, name },
      () => throwIfStopped(signal),
    );
    if (committed === undefined) return loadedBefore(name, loadId);
    const { stored, repeats, erased } = committed;
    return {
      file: name,
      load: loadId,
      rows: countRows(files) + bad.count,
      stored,
      repeats,
      ...(erased === 0 ? {} : { erased }),
      bad: bad.count,
      failed: bad.count,
      ...(bad.count === 0 ? {} : { first: bad.first }),
    };
  } finally {
    await table.refresh();
    const { stale } = await listFailedRows(failedFolder, table.state().txns);
    await removeFailedRows(failedFolder, stale, loadId);
  }
}
