/**
 * The load: an operator's file becomes rows of a dataset's table.
 *
 * In: a file of CSV, JSON lines or Parquet, its fields named as selectors or by a map (file-fields.ts). Out: one commit
 * with young files of the rows that the table has not yet; rows that cannot be loaded, where so many may be, are kept
 * as failed ones.
 * Order: recognize, plan the fields, stage (stage-rows.ts), enrich (enrich-staged.ts), take out repeats, commit (commit-load.ts).
 * Invariant: a file is loaded whole or not at all; the same file, or rows that the table has, add nothing. Memory is
 * that of the engine, which spills; the file may be of any size.
 * Crash: all or nothing, by one change (lake/files/change.ts). No lock of another is held, but for the commit of a load
 * that was made before and has failed rows; loads of one id commit one after the other.
 */
import { createHash } from 'node:crypto';
import path from 'node:path';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { AppError } from '../../runtime/errors.ts';
import { getSize, hashFileByParts, findStamp } from '../../runtime/files/file-checks.ts';
import { followGroupAccess } from '../../runtime/files/group-access.ts';
import { waitForLock } from '../../runtime/files/lock.ts';
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
import { createErasedIdsSearch } from '../../lake/find/erased-ids.ts';
import type { Enricher } from '../../lake/files/enriched-rows.ts';
import { openChange, recoverChanges, type OpenChange } from '../../lake/files/change.ts';
import { lockLoad } from '../../lake/files/staging.ts';
import { lakePaths, tablePaths } from '../../lake/lake.ts';
import { nextAvailableAtMs, findLoadState } from '../../lake/log/lake-state.ts';
import type { Table } from '../../lake/log/table.ts';
import { openDuckdb, type Duckdb, type DuckdbOptions } from '../../lake/sql/duckdb.ts';
import { defaultKeptBytes, isRefused, noBad, type BadBounds, type BadRows, type KeptBadRow } from './bad-rows.ts';
import { commitLoad, nextLoadState } from './commit-load.ts';
import { enrichStaged } from './enrich-staged.ts';
import { findFaultOfMap, planFields, type FieldMap, type RefusedFile, type BadRow } from './file-fields.ts';
import { recognizeFile, splitArray, type RecognizedFile, type SourceFormat } from './recognize.ts';
import { openSource } from './source.ts';
import {
  assertGoesOn,
  loadApps,
  stageRows,
  type RegisteredApp,
  type StagedRows,
  type StageOptions,
  watchProgress,
  type Progress,
} from './stage-rows.ts';

/** The steps of a load at which a crash is tested, beside those of its commit. */
export const loadSteps = [
  'load-opened',
  'load-written',
  'load-failed-written',
  'load-staged',
  'load-committed',
] as const;

const lockWaitMs = 120_000;

export interface LoadDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly dataset: Dataset;
  /** The registered apps. */
  readonly apps: readonly RegisteredApp[];
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly signal: AbortSignal;
  readonly limits: Pick<DuckdbOptions, 'memoryMb' | 'threads'>;
  /** Tells what rows do not say and their addresses and User-Agents do; without one they stay as they are. */
  readonly enricher?: Enricher | undefined;
  /** Hears how far the load is, about every second. */
  readonly onProgress?: (progress: Progress) => void;
}

/** A file to load. */
export interface LoadInput {
  /** What it is called: in answers, and in the history. */
  readonly name: string;
  /** Its path, or its bytes as they come. */
  readonly from: string | AsyncIterable<Uint8Array>;
}

export interface LoadOptions {
  readonly map?: FieldMap;
  /** The app of rows that name none. */
  readonly idApp?: number;
  /** So many rows may be bad, and are kept as failed ones; 0 by default. */
  readonly maxBad?: number;
  /** So many bytes of bad rows are kept at most; 64 MiB by default. */
  readonly maxKeptBytes?: number;
  readonly format?: SourceFormat;
  /** Rows that were erased are stored again. */
  readonly restoreErased?: boolean;
  /** A file without any text is one without rows; refused unless stated otherwise. */
  readonly allowsEmpty?: boolean;
}

/** What became of a file. */
export type LoadOutcome =
  | {
      readonly file: string;
      readonly load: string;
      /** Rows of the file. */
      readonly rows: number;
      /** Rows added. */
      readonly stored: number;
      /** Rows that the table had already, or the file earlier. */
      readonly repeats: number;
      /** Rows that were erased before, and were not stored again; absent where there are none. */
      readonly erased?: number;
      /** Bad rows, kept as failed ones. */
      readonly bad: number;
      /** The same, under the name that it had up to 0.3. */
      readonly failed: number;
      /** The first bad rows. */
      readonly first?: readonly BadRow[];
    }
  /** The same file was loaded before. */
  | { readonly file: string; readonly load: string; readonly stored: 0; readonly loadedBefore: true }
  | { readonly file: string; readonly refused: RefusedFile }
  | {
      readonly file: string;
      readonly refused: { readonly reason: 'bad_rows'; readonly detail: string };
      readonly badRows: number;
      readonly bad: readonly BadRow[];
    };

/**
 * The identity of a load: of a content, for a dataset, under a map and with an app. One that stores erased rows again is
 * another than one that did not.
 */
function loadIdOf(content: string, { table }: Dataset, options: LoadOptions): string {
  const { map = {}, idApp, restoreErased } = options;
  const names = Object.entries(map).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return createHash('sha256')
    .update(JSON.stringify([content, table, names, idApp ?? null, ...(restoreErased === true ? ['erased'] : [])]))
    .digest('hex')
    .slice(0, 32);
}

/** The file under a name of ours, in the work folder. What comes as a stream is written there. */
async function takeInput({ folder }: OpenChange, { from }: LoadInput, signal: AbortSignal): Promise<string> {
  const file = path.join(folder, 'source');
  if (typeof from !== 'string') await writeInput(from, file, signal);
  else await linkInput(from, file);
  return file;
}

/** What all failed rows of a load say of it. */
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
  const fault = findFaultOfMap(dataset, options.map ?? {});
  if (fault !== undefined) return { file: input.name, refused: fault };
  await followGroupAccess(lakePaths(lakeDir).root);
  const change = await openChange(table, tablePaths(lakeDir, dataset).staging, 'a load', dependencies.crashPoint, true);
  try {
    const file = await takeInput(change, input, signal);
    await dependencies.crashPoint('load-opened');
    const duckdb = await openDuckdb({ ...limits, tempDir: path.join(change.folder, 'spill') });
    try {
      return await loadTaken(dependencies, { ...input, from: file }, options, { change, duckdb });
    } finally {
      duckdb.close();
    }
  } finally {
    await change.close();
  }
}

interface Workplace {
  readonly change: OpenChange;
  readonly duckdb: Duckdb;
}

/** Plans the fields of a file and stages its rows, or says why the file is refused. */
async function stageFile(
  duckdb: Duckdb,
  recognized: RecognizedFile,
  map: FieldMap,
  rest: Omit<StageOptions, 'fields'>,
): Promise<StagedRows | RefusedFile> {
  const file =
    recognized.isArray === true
      ? await splitArray(duckdb, recognized, path.join(await rest.makeRoom(), 'items'))
      : recognized;
  if ('reason' in file) return file;
  if (file.isEmpty === true) return { files: [], bad: noBad };
  const source = await openSource(duckdb, file);
  if ('reason' in source) return source;
  const planned = planFields(rest.dataset, source.names, map, rest.idApp !== undefined);
  return 'reason' in planned ? planned : stageRows(duckdb, source, { ...rest, fields: planned.fields });
}

async function loadTaken(
  dependencies: LoadDependencies,
  input: { readonly name: string; readonly from: string },
  options: LoadOptions,
  workplace: Workplace,
): Promise<LoadOutcome> {
  const { table, dataset, apps, signal } = dependencies;
  const { name, from: file } = input;
  const before = findStamp(file);
  if (before === undefined)
    throw new AppError('not_found', `there is no file ${name}`, { hint: 'Name a file that is there.' });
  const progress = watchProgress(dependencies.onProgress, await getSize(file), workplace.duckdb);
  try {
    progress.phase('hash');
    const recognized = await recognizeFile(file, options, signal);
    assertGoesOn(signal);
    if ('reason' in recognized) return { file: name, refused: recognized };
    const loadId = loadIdOf(await hashFileByParts(file), dataset, options);
    assertGoesOn(signal);
    await table.refresh();
    const known = findLoadState(table.state().txns, loadId);
    if (known?.status === 'loaded') return { file: name, load: loadId, stored: 0, loadedBefore: true };
    progress.phase('read');
    await loadApps(workplace.duckdb, apps);
    const nowMs = dependencies.clock.nowMs();
    const stamp = { loadId, receivedAtMs: nowMs, availableAtMs: nextAvailableAtMs(dependencies.clock, table.lake()) };
    let rooms = 0;
    const makeRoom = (): Promise<string> => workplace.change.makeRoom(`rows-${(rooms += 1)}`);
    const bounds = { maxBad: options.maxBad ?? 0, maxKeptBytes: options.maxKeptBytes ?? defaultKeptBytes };
    const rest = { dataset, idApp: options.idApp, bounds, stamp, signal, makeRoom };
    const read = await stageFile(workplace.duckdb, recognized, options.map ?? {}, rest);
    if ('reason' in read) return { file: name, refused: read };
    const { files: staged, bad } = read;
    if (findStamp(file) !== before)
      throw new AppError('file_damaged', `${name} was changed while it was loaded: nothing of it was`, {
        hint: 'Load it when it is complete.',
      });
    if (isRefused(bad, bounds)) return refuseRows(name, bad, bounds);
    const { enricher } = dependencies;
    const files = await enrichStaged(workplace.duckdb, staged, { dataset, enricher, signal, makeRoom });
    await dependencies.crashPoint('load-written');
    progress.phase('commit');
    return await commitStaged(dependencies, workplace, {
      name,
      loadId,
      files,
      bad,
      options,
      availableAtMs: stamp.availableAtMs,
    });
  } finally {
    progress.stop();
  }
}

function refuseRows(file: string, bad: BadRows, { maxBad, maxKeptBytes }: BadBounds): LoadOutcome {
  const nothing = 'nothing of the file was loaded';
  const detail =
    bad.isTooLarge === true
      ? `${bad.count} rows are bad, of more than the ${maxKeptBytes} bytes together that are kept: ${nothing}. Mend them, or load the file in parts.`
      : `${bad.count} rows are bad and ${maxBad === 0 ? 'none' : `only ${maxBad}`} may be: ${nothing}. Mend them, or keep them as failed rows with --max-bad ${bad.count}.`;
  return { file, refused: { reason: 'bad_rows', detail }, badRows: bad.count, bad: bad.first };
}

interface Staged {
  readonly name: string;
  readonly loadId: string;
  readonly files: StagedRows['files'];
  readonly bad: BadRows;
  readonly options: LoadOptions;
  readonly availableAtMs: number;
}

/** Lists the files of the failed rows that a load has in the table. */
async function listEarlier({ table, lakeDir }: LoadDependencies, loadId: string): Promise<readonly string[]> {
  await table.refresh();
  const folder = failedRowsFolder(lakePaths(lakeDir).failed, table.dir);
  return (await listFailedRows(folder, table.state().txns)).files.filter((file) => file.includes(loadId));
}

/** Commits a load, beside no other of its id: one that has come first has brought the rows. */
async function commitStaged(
  dependencies: LoadDependencies,
  workplace: Workplace,
  staged: Staged,
): Promise<LoadOutcome> {
  const { lakeDir, dataset, signal } = dependencies;
  const lock = await lockLoad(tablePaths(lakeDir, dataset).staging, staged.loadId, () => assertGoesOn(signal));
  try {
    return await commitAlone(dependencies, workplace, staged);
  } finally {
    await lock.close();
  }
}

/**
 * Commits a staged load. Failed rows of an earlier generation give up their place: an erasure, which rewrites such
 * files and counts what it took, is kept away meanwhile.
 */
async function commitAlone(dependencies: LoadDependencies, workplace: Workplace, staged: Staged): Promise<LoadOutcome> {
  if ((await listEarlier(dependencies, staged.loadId)).length === 0) return commitRows(dependencies, workplace, staged);
  const { table, lakeDir, dataset } = dependencies;
  const paths = tablePaths(lakeDir, dataset);
  const lock = await waitForLock(paths.maintenanceLock, 'a load', lockWaitMs);
  try {
    await table.refresh();
    await recoverChanges(table, paths.staging);
    return await commitRows(dependencies, workplace, staged);
  } finally {
    lock.release();
  }
}

async function commitRows(
  dependencies: LoadDependencies,
  { change, duckdb }: Workplace,
  { name, loadId, files, bad, options, availableAtMs }: Staged,
): Promise<LoadOutcome> {
  const { table, lakeDir, dataset, clock, crashPoint, signal } = dependencies;
  const failedFolder = failedRowsFolder(lakePaths(lakeDir).failed, table.dir);
  const failedBefore = await countFailedRows(await listEarlier(dependencies, loadId));
  const before = findLoadState(table.state().txns, loadId);
  if (before?.status === 'loaded') return { file: name, load: loadId, stored: 0, loadedBefore: true };
  const { generation } = nextLoadState(before);
  if (bad.count > 0) {
    const failedAt = new Date(clock.nowMs()).toISOString();
    const { map, idApp } = options;
    const load = {
      id: loadId,
      dataset: dataset.table,
      ...(map === undefined ? {} : { map }),
      ...(idApp === undefined ? {} : { idApp }),
    };
    await writeFailedRows(
      failedFolder,
      { loadId, generation },
      bad.failed.map((row) => toFailedEvent(row, load, failedAt)),
    );
    await crashPoint('load-failed-written');
  }
  const rows = files.reduce((sum, { numRecords }) => sum + numRecords, 0) + bad.count;
  const findErased = options.restoreErased === true ? undefined : createErasedIdsSearch(lakePaths(lakeDir));
  try {
    const committed = await commitLoad(
      { table, duckdb, clock, crashPoint },
      { loadId, change, files, failed: bad.count, failedBefore, before, availableAtMs, findErased, name },
      () => assertGoesOn(signal),
    );
    if (committed === undefined) return { file: name, load: loadId, stored: 0, loadedBefore: true };
    const { stored, repeats, erased } = committed;
    return {
      file: name,
      load: loadId,
      rows,
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
