import { pruneFiles } from '../../lake/files/prune.ts';
import type { DataFile, Snapshot } from '../../lake/log/snapshot.ts';
import { hasColumns, parseSchemaString } from '../../lake/table-schema.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import { removeFile } from '../../runtime/files/durable-file.ts';
import { writeWorkFile } from '../../runtime/files/work-files.ts';
import type { WorkerLimits, WorkerPlan } from '../jobs/worker-messages.ts';
import { assertBasisWhole } from './basis.ts';
import type { ExportQuery } from './export-query.ts';
import type { Format } from './formats/format.ts';
import { startResultFiles, type ResultFiles } from './formats/result-files.ts';
import { buildEmptyQuery, buildQuery, fileFilter, isEmptyResult, isFiltered } from './query.ts';
import { openQueryEngine, type QueryEngine } from './query-engine.ts';
import { LimitError, tooManyBytes, watch, type OnShare, type WatchedJob } from './watch-statement.ts';

/** The share of a query that its preparation has. */
const preparationShare = 0.6;
/** What a thread of the engine may hold of rows that are only streamed: two row groups of the lake and their text. */
const streamMemoryMb = 256;
const tooManyRows = 'Too many lines in export';

/** An operator's lists that a request reads. */
export type Lists = Pick<WorkerPlan, 'segment' | 'titles'>;

/** What a query runs on. */
export interface QueryJob extends WatchedJob {
  readonly snapshot: Snapshot;
  /** Only rows that became available after this, Unix milliseconds; undefined: all. */
  readonly sinceMs: number | undefined;
  readonly format: Format;
  readonly tempDir: string;
  /** The plan's, with their files where nobody removes them. */
  readonly lists: Lists;
  /** Gets the share of the result that has become files, from when the query has ended. */
  readonly onFileShare: OnShare;
}

/** The files that a query reads: more with each reach, those that were there in their places. */
interface ReadFiles {
  readonly files: readonly DataFile[];
  /** Adds the files of a reach, compared with their hashes. Errors: `file_damaged`. */
  reachOut(reachSeconds: number): Promise<void>;
}

/** `whole`: paths that were compared with their hashes before. */
function createReadFiles({ plan, snapshot, sinceMs }: QueryJob, whole: Set<string>): ReadFiles {
  const { request, apps } = plan;
  const files: DataFile[] = [];
  return {
    files,
    async reachOut(reachSeconds) {
      const known = new Set(files);
      const added = pruneFiles(snapshot.files, fileFilter(request, apps, { reachSeconds, sinceMs })).filter(
        (file) => !known.has(file),
      );
      const unread = added.filter(({ absolutePath }) => !whole.has(absolutePath));
      await assertBasisWhole(request, snapshot, unread);
      for (const { absolutePath } of added) whole.add(absolutePath);
      files.push(...added);
    },
  };
}

/** The rows that were written, what is made of them, and how many files they were read from. */
export interface WrittenRows {
  readonly rows: number;
  readonly result: ResultFiles;
  readonly filesRead: number;
}

/** Makes what the query reads beside the files: step after step, until no row can change any more. */
async function prepare(
  engine: QueryEngine,
  { preparation }: ExportQuery,
  job: QueryJob,
  read: ReadFiles,
  onShare: OnShare,
): Promise<void> {
  const { reachSeconds } = preparation ?? { reachSeconds: [0] };
  for (const [step, reach] of reachSeconds.entries()) {
    await read.reachOut(reach);
    if (preparation === undefined) return;
    const paths = pathsOf(job, read);
    const begin = step / reachSeconds.length;
    for (const statement of preparation.statements(step))
      await watch(engine, job, (share) => onShare(begin + share / reachSeconds.length), engine.run(statement, paths));
    const unfinished = preparation.unfinished(step);
    if (unfinished === undefined || (await engine.run(unfinished, paths)) === 0) return;
  }
}

/** The first holds every column, so that the list is never empty. */
function pathsOf({ snapshot }: QueryJob, { files }: ReadFiles): string[] {
  return [snapshot.emptyFile, ...files.map(({ absolutePath }) => absolutePath)];
}

function startFiles({ plan, file, format, onFileShare }: QueryJob): ResultFiles {
  const { folder, stem, limits } = plan;
  return startResultFiles(file, format, { folder, stem, limits, onProgress: onFileShare });
}

/** Copies the rows into the job's file, an old one replaced, while files are made of them. */
async function copyRows(
  engine: QueryEngine,
  { select }: ExportQuery,
  job: QueryJob,
  read: ReadFiles,
  onShare: OnShare,
): Promise<WrittenRows> {
  const { file, format } = job;
  await removeFile(file);
  const result = startFiles(job);
  try {
    const copying = engine.copyTo(select, pathsOf(job, read), file, format.copyOptions);
    const rows = await watch(engine, job, onShare, copying, () => result.fault());
    return { rows, result, filesRead: read.files.length };
  } catch (error) {
    await result.abandon();
    throw error;
  }
}

/**
 * What the engine may take of the limits. A query that streams its rows needs little memory, and with little it is
 * faster: the same pages are used again. Where its rows are compressed meanwhile, a half of the threads is left for
 * that, unless most of the work is to read rows that a filter drops.
 */
function shareOf({ plan, format }: QueryJob, { isStreamed }: ExportQuery): Pick<WorkerLimits, 'memoryMb' | 'threads'> {
  const { request, limits } = plan;
  const { memoryMb, threads } = limits;
  if (!isStreamed) return { memoryMb, threads };
  const { parts } = format;
  const isCompressed = parts?.isCompressed === true && parts.plainMaxBytes(limits) < limits.partMaxBytes;
  const used = isCompressed && !isFiltered(request) ? Math.ceil(threads / 2) : threads;
  return { memoryMb: Math.min(memoryMb, streamMemoryMb * used), threads: used };
}

/** Runs the query of the request into one file. `lean` as in `buildQuery`, on one thread. */
async function runQuery(job: QueryJob, onShare: OnShare, lean: boolean, whole: Set<string>): Promise<WrittenRows> {
  const { plan, snapshot, sinceMs, format, tempDir, lists } = job;
  const { request, apps, limits } = plan;
  const { schemaString } = snapshot;
  const isEmpty = schemaString === undefined || isEmptyResult(request, apps);
  const query = isEmpty
    ? buildEmptyQuery(request)
    : buildQuery(request, apps, {
        lean,
        cells: format.cells,
        columns: parseSchemaString(schemaString),
        sinceMs,
        ...lists,
      });
  const read = createReadFiles(job, whole);
  const engine = await openQueryEngine({
    apps,
    inline: query.inline,
    folders: [plan.tableDir, plan.folder],
    tempDir,
    tempMaxBytes: limits.maxBytes,
    ...(lean ? { memoryMb: limits.memoryMb, threads: 1 } : shareOf(job, query)),
  });
  try {
    if (!isEmpty && !hasColumns(await engine.describe(snapshot.emptyFile), schemaString))
      throw new AppError('file_damaged', `${snapshot.emptyFile} is damaged: it has not the table's columns`, {
        hint: 'Remove it: the next start writes it.',
      });
    const prepared = query.preparation === undefined ? 0 : preparationShare;
    if (!isEmpty) await prepare(engine, query, job, read, (share) => onShare(share * prepared));
    const paths = pathsOf(job, read);
    const atMost = read.files.reduce((sum, { numRecords }) => sum + (numRecords ?? Infinity), 0);
    if (
      atMost > limits.maxRows &&
      (await watch(engine, job, () => undefined, engine.run(query.count, paths))) > limits.maxRows
    )
      throw new LimitError(tooManyRows);
    return await copyRows(engine, query, job, read, (share) => onShare(prepared + share * (1 - prepared)));
  } catch (error) {
    // A sort may take as much of the disk as a result.
    if (isAppError(error, 'disk') && error.message.includes('max_temp_directory_size'))
      throw new LimitError(tooManyBytes);
    throw error;
  } finally {
    engine.close();
  }
}

/** Whether no file can have a row of the result, which then needs no query. */
function hasNoFiles({ plan: { request, apps }, snapshot, sinceMs }: QueryJob): boolean {
  return (
    isEmptyResult(request, apps) || pruneFiles(snapshot.files, fileFilter(request, apps, { sinceMs })).length === 0
  );
}

/** Writes the rows of the request into the job's file. Errors: `LimitError`, `file_damaged`, `disk`, `sql`. */
export async function writeRows(job: QueryJob, onShare: OnShare): Promise<WrittenRows> {
  const { emptyFile } = job.format;
  if (emptyFile !== undefined && hasNoFiles(job)) {
    await writeWorkFile(job.file, emptyFile(job.plan.request.selectors));
    return { rows: 0, result: startFiles(job), filesRead: 0 };
  }
  const whole = new Set<string>();
  return runQuery(job, onShare, false, whole).catch((error: unknown) => {
    // Wide rows: once more in the way that needs the least memory.
    if (!isAppError(error, 'memory')) throw error;
    return runQuery(job, onShare, true, whole);
  });
}
