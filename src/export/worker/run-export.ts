import path from 'node:path';
import { pruneFiles } from '../../lake/files/prune.ts';
import { withEmptyFile, type Snapshot } from '../../lake/log/snapshot.ts';
import { hasColumns } from '../../lake/table-schema.ts';
import type { ReportFile } from '../../reports/reports.ts';
import { AppError, describeError, isAppError, isDamage, isDiskFull } from '../../runtime/errors.ts';
import { foldersOfFiles } from '../../runtime/store/open-store.ts';
import { removeFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { findSize } from '../../runtime/files/file-checks.ts';
import { localFiles } from '../../runtime/store/open-store.ts';
import { makeWorkFolder, removeTree, writeWorkFile } from '../../runtime/files/work-files.ts';
import type { WorkerOutcome, WorkerPhase, WorkerPlan } from '../jobs/worker-messages.ts';
import { toReportVersion, resolveReadVersion, pinLists } from './read-version.ts';
import { copySlices, planSlices, type Slice } from './copy-slices.ts';
import type { ExportQuery } from './export-query.ts';
import { pinFirstSeen, type UsedParts } from './first-seen.ts';
import { chooseFormat, type Format } from './formats/format.ts';
import { startResultFiles, type ResultFiles } from './formats/result-files.ts';
import { openQueryEngine, type QueryEngine } from './query-engine.ts';
import { fileFilter, isEmptyResult, isFiltered, planQuery } from './query.ts';
import type { ParamColumn } from './param-columns.ts';
import { listSheetColumns } from './selector-sql.ts';
import {
  withoutRows,
  createReadFiles,
  createVerify,
  findParams,
  prepare,
  usePaths,
  type ReadFiles,
  type Source,
  type Verify,
} from './read-files.ts';
import { LimitError, tooManyBytes, runWatched, type OnProgress } from './watch-statement.ts';

const preparationShare = 0.6;
/** Memory of a thread for streamed rows: two row groups of the lake and their text. */
const streamMemoryMb = 256;
/** An engine may fail with less, also for streamed rows. */
const minEngineMb = 64;
const tooManyRows = 'Too many lines in export';

interface QueryJob extends UsedParts {
  /** Its lists are linked into the work folder. */
  readonly plan: WorkerPlan;
  readonly snapshot: Snapshot;
  /** Only rows that became available later, Unix ms; undefined: all. */
  readonly sinceMs: number | undefined;
  readonly format: Format;
  readonly tempDir: string;
  /** Called with the share of the result that is in files, after the query. */
  readonly onFileShare: OnProgress;
  readonly onPhase: OnPhase;
}

type OnPhase = (phase: WorkerPhase) => void;

interface WrittenRows {
  readonly rows: number;
  readonly bytes: number;
  readonly result: ResultFiles;
  readonly filesRead: number;
  /** Columns of parameters; undefined: the request has none. */
  readonly params?: readonly ParamColumn[] | undefined;
}

/** Error: `LimitError` if the query has more rows than the plan allows. */
async function assertFewRows(
  { engines: [engine], read, verify }: Source,
  { count }: ExportQuery,
  job: QueryJob,
): Promise<void> {
  const { plan, format } = job;
  const ofSheet = format.sheet?.maxRows ?? Infinity;
  const maxRows = Math.min(plan.limits.maxRows, ofSheet);
  const atMost = read.files.reduce((sum, { numRecords }) => sum + (numRecords ?? Infinity), 0);
  if (atMost <= maxRows) return;
  await verify(read.files);
  const sum = { ...count, sql: `SELECT coalesce(sum(rows), 0) FROM (${count.sql})` };
  const counting = usePaths(job, read, (paths) => engine.run(sum, paths));
  if ((await runWatched(engine, withoutRows(job), () => undefined, counting)) > maxRows)
    throw new LimitError(ofSheet === maxRows ? `${tooManyRows}: xlsx has at most ${ofSheet}` : tooManyRows);
}

function startFiles(
  job: QueryJob,
  slices: number,
  params: readonly ParamColumn[] = [],
): { paths: [string, ...string[]]; result: ResultFiles } {
  const { plan, format, tempDir, onFileShare } = job;
  const { folder, stem, limits } = plan;
  const pathOf = (slice: number): string => path.join(tempDir, `result.${slice}${format.ending}`);
  const paths: [string, ...string[]] = [pathOf(0)];
  for (let slice = 1; slice < slices; slice += 1) paths.push(pathOf(slice));
  return {
    paths,
    result: startResultFiles(paths, format, {
      folder,
      stem,
      limits,
      columns: listSheetColumns(plan.request, params),
      onProgress: onFileShare,
    }),
  };
}

/** Copies the rows into work files while the files of the result are made. */
async function copyRows(
  { engines, read, verify }: Source,
  query: ExportQuery,
  job: QueryJob,
  slices: readonly Slice[],
  onProgress: OnProgress,
  params?: readonly ParamColumn[],
): Promise<WrittenRows> {
  const { plan, format, snapshot } = job;
  const { emptyFile } = snapshot;
  const { paths, result } = startFiles(job, slices.length, params);
  try {
    const sliceCopyJob = copySlices({ engines, query, format, emptyFile, slices, paths, verify }, result);
    const { writtenBytes } = sliceCopyJob;
    const rows = await runWatched(sliceCopyJob, { plan, writtenBytes }, onProgress, sliceCopyJob.rows, () =>
      result.fault(),
    );
    return { rows, bytes: await writtenBytes(), result, filesRead: read.files.length, params };
  } catch (error) {
    await result.abandon();
    // A retry must start without files of the first.
    for (const file of paths) await removeFile(file);
    throw error;
  }
}

/**
 * Plans the slices of a query that streams its rows. There is one slice if a filter drops most rows, or the result
 * cannot be written in pieces. `lean`: as in `buildQuery`.
 */
function slicesOf({ plan, format }: QueryJob, query: ExportQuery, { files }: ReadFiles, lean: boolean): Slice[] {
  const isCut =
    !lean && query.selectRows !== undefined && format.appendOptions !== undefined && !isFiltered(plan.request);
  const slices = isCut ? planSlices(files) : [];
  return slices.length > 1 ? slices : [{ files }];
}

/**
 * Opens an engine per concurrent slice. A query that streams rows needs little memory, and is faster with little, since
 * pages are reused. Whether that suffices may differ between runs; the bytes of the result may not, so the threads of a
 * format stay the same.
 */
async function openEngines(
  { plan, tempDir, format }: QueryJob,
  { inline, selectRows }: ExportQuery,
  slices: number,
  lean: boolean,
): Promise<[QueryEngine, ...QueryEngine[]]> {
  const { apps, tableDir, folder, limits } = plan;
  const count = Math.max(1, Math.min(slices, limits.threads, Math.floor(limits.memoryMb / minEngineMb)));
  const threads = lean || format.byOneThread === true ? 1 : Math.floor(limits.threads / count);
  const share = Math.floor(limits.memoryMb / count);
  const memoryMb = selectRows === undefined || lean ? share : Math.min(share, streamMemoryMb * threads);
  const open = (engine: number): Promise<QueryEngine> =>
    openQueryEngine({
      apps,
      inline,
      folders: [...foldersOfFiles(tableDir), folder],
      tempDir: path.join(tempDir, `spill.${engine}`),
      tempMaxBytes: limits.maxBytes,
      memoryMb,
      threads,
    });
  const engines: [QueryEngine, ...QueryEngine[]] = [await open(0)];
  try {
    while (engines.length < count) engines.push(await open(engines.length));
    return engines;
  } catch (error) {
    for (const engine of engines) engine.close();
    throw error;
  }
}

/** Error: `file_damaged` if the empty file lacks columns of a schema. */
async function assertEmptyFile(engine: QueryEngine, snapshot: Snapshot, schema: string): Promise<void> {
  const described = await localFiles.use(withEmptyFile(snapshot), ([local = '']) => engine.describe(local));
  if (hasColumns(described, schema)) return;
  throw new AppError('file_damaged', `${snapshot.emptyFile} is damaged: it lacks columns of the table`, {
    hint: 'Remove it and restart the service, which writes it again.',
  });
}

/** Runs the query of a request into work files. `lean`: as in `buildQuery`, on the fewest threads. */
async function runQuery(job: QueryJob, onProgress: OnProgress, lean: boolean, verify: Verify): Promise<WrittenRows> {
  const { plan, snapshot, format } = job;
  const { schemaString } = snapshot;
  const query = planQuery(plan, job, { lean, cells: format.cells });
  const read = createReadFiles(job, query);
  const slices = slicesOf(job, query, read, lean);
  const engines = await openEngines(job, query, slices.length, lean);
  const source: Source = { engines, read, verify };
  job.onPhase('query');
  try {
    const schema = query.select.sql.includes('$files') ? schemaString : undefined;
    if (schema !== undefined) await assertEmptyFile(engines[0], snapshot, schema);
    const prepared = query.preparation === undefined ? 0 : preparationShare;
    await prepare(source, query, job, (share) => onProgress(share * prepared));
    await assertFewRows(source, query, job);
    const params = await findParams(source, query, job);
    const selecting = params === undefined ? query : planQuery(plan, job, { lean, cells: format.cells, params });
    job.onPhase('write');
    const onShare = (share: number): void => onProgress(prepared + share * (1 - prepared));
    return await copyRows(source, selecting, job, slices, onShare, params);
  } catch (error) {
    // A sort may use as much disk as a result.
    if (isAppError(error, 'disk') && error.message.includes('max_temp_directory_size'))
      throw new LimitError(tooManyBytes);
    throw error;
  } finally {
    for (const engine of engines) engine.close();
  }
}

function hasNoFiles({ plan: { request, apps }, snapshot, sinceMs }: QueryJob): boolean {
  return (
    isEmptyResult(request, apps) || pruneFiles(snapshot.files, fileFilter(request, apps, { sinceMs })).length === 0
  );
}

/** Writes the rows of a request. Errors: `LimitError`, `file_damaged`, `disk`, `sql`. */
async function writeRows(job: QueryJob, onProgress: OnProgress): Promise<WrittenRows> {
  const { emptyText } = job.format;
  if (emptyText !== undefined && hasNoFiles(job)) {
    const { paths, result } = startFiles(job, 1);
    await writeWorkFile(paths[0], emptyText(job.plan.request.selectors));
    return { rows: 0, bytes: (await findSize(paths[0])) ?? 0, result, filesRead: 0 };
  }
  const verify = createVerify(job);
  /** Retries with the least memory, if rows are too wide. */
  const orLean =
    (one: QueryJob) =>
    (error: unknown): Promise<WrittenRows> => {
      if (!isAppError(error, 'memory')) throw error;
      return runQuery(one, onProgress, true, verify);
    };
  const { format } = job;
  const { narrowOptions } = format;
  const written = runQuery(job, onProgress, false, verify).catch(orLean(job));
  return narrowOptions === undefined
    ? written
    : written.catch(orLean({ ...job, format: { ...format, copyOptions: narrowOptions } }));
}

/** Percent of the query; the rest is making files. */
const queryPercent = 70;
const lastPercent = 99;

/** Finishes the files, which must have the query's rows, within the limit of bytes. */
async function finishFiles({ plan }: QueryJob, { rows, bytes, result }: WrittenRows): Promise<ReportFile[]> {
  try {
    if (bytes > plan.limits.maxBytes) throw new LimitError(tooManyBytes);
    const files = await result.finish({ bytes, rows });
    const counted = files.reduce((sum, part) => sum + part.rows, 0);
    if (counted !== rows) throw new Error(`the files hold ${counted} rows, the query returned ${rows}`);
    return files;
  } catch (error) {
    await result.abandon();
    throw error;
  }
}

async function makeFiles(
  plan: WorkerPlan,
  format: Format,
  onPercent: (percent: number) => void,
  onPhase: OnPhase,
): Promise<WorkerOutcome> {
  onPhase('read');
  const { folder } = plan;
  const tempDir = path.join(folder, 'work');
  await makeWorkFolder(tempDir);
  const pinned = await pinLists(plan, tempDir);
  const readVersion = await resolveReadVersion(plan);
  const onFileShare = (share: number): void =>
    onPercent(queryPercent + Math.floor(share * (lastPercent - queryPercent)));
  const firstSeen = await pinFirstSeen(pinned, readVersion.snapshot, tempDir);
  const job: QueryJob = { plan: pinned, ...readVersion, firstSeen, format, tempDir, onFileShare, onPhase };
  const written = await writeRows(job, (share) => onPercent(Math.floor(share * queryPercent)));
  onPercent(queryPercent);
  onPhase('files');
  const files = await finishFiles(job, written);
  await removeTree(tempDir);
  await syncFolder(folder);
  const { params } = written;
  return {
    kind: 'done',
    files,
    ...(params === undefined ? {} : { columns: [...plan.request.selectors, ...params.map(({ name }) => name)] }),
    basis: await toReportVersion(plan, readVersion),
    filesRead: written.filesRead,
  };
}

/**
 * Runs an export from one snapshot of the lake to durable files in the attempt's folder. `onPercent` gets the progress,
 * 0 to 99, increasing; `onPhase` each phase when it begins. Never throws; after an error the caller removes the folder.
 */
export async function runExport(
  plan: WorkerPlan,
  onPercent: (percent: number) => void,
  onPhase: OnPhase = () => undefined,
): Promise<WorkerOutcome> {
  let reported = 0;
  const report = (percent: number): void => {
    if (percent <= reported) return;
    reported = Math.min(percent, lastPercent);
    onPercent(reported);
  };
  try {
    return await makeFiles(plan, chooseFormat(plan.request), report, onPhase);
  } catch (error) {
    if (error instanceof LimitError) return { kind: 'failed', reason: 'user', error: error.message };
    const full = isAppError(error, 'disk') || isDiskFull(error);
    // The next attempt would read the same columns.
    const damaged = (isDamage(error) && !error.retryable) || isAppError(error, 'schema_change');
    return { kind: 'failed', reason: full ? 'disk' : damaged ? 'damage' : 'error', error: describeError(error) };
  }
}
