import path from 'node:path';
import { pruneFiles } from '../../lake/files/prune.ts';
import { assertFilesWhole } from '../../lake/files/verify-files.ts';
import { readSnapshot, type DataFile, type Snapshot } from '../../lake/log/snapshot.ts';
import { hasColumns, parseSchemaString } from '../../lake/table-schema.ts';
import { syncFolder } from '../../runtime/files/durable-file.ts';
import { AppError, describeError, isAppError, isDamage, isDiskFull } from '../../runtime/errors.ts';
import { findSize } from '../../runtime/files/file-checks.ts';
import { makeWorkFolder, removeTree, writeWorkFile } from '../../runtime/files/work-files.ts';
import type { WorkerOutcome, WorkerPlan } from '../jobs/worker-messages.ts';
import type { ExportQuery } from './export-query.ts';
import { pinFile } from './pinned-file.ts';
import { chooseFormat } from './formats/choose-format.ts';
import type { Format } from './formats/format.ts';
import { buildEmptyQuery, buildQuery, fileFilter, isEmptyResult } from './query.ts';
import { openQueryEngine, type QueryEngine } from './query-engine.ts';
import { LimitError, tooManyBytes, watch, type OnShare, type WatchedJob } from './watch-statement.ts';

/** The share of the work that the query has; the rest is making files of its result. */
const queryPercent = 70;
const lastPercent = 99;
/** The share of a query that its preparation has. */
const preparationShare = 0.6;
const tooManyRows = 'Too many lines in export';

/** An operator's lists that a request reads. */
type Lists = Pick<WorkerPlan, 'segment' | 'titles'>;

/** What a query runs on. */
interface QueryJob extends WatchedJob {
  readonly snapshot: Snapshot;
  readonly format: Format;
  readonly tempDir: string;
  /** The plan's, with their files where nobody removes them. */
  readonly lists: Lists;
}

/** The files that a query reads: more with each reach, those that were there in their places. */
interface ReadFiles {
  readonly files: readonly DataFile[];
  /** Adds the files of a reach, compared with their hashes. Errors: `file_damaged`. */
  reachOut(reachSeconds: number): Promise<void>;
}

/** `whole`: paths that were compared with their hashes before. */
function createReadFiles({ plan, snapshot }: QueryJob, whole: Set<string>): ReadFiles {
  const { request, apps } = plan;
  const files: DataFile[] = [];
  return {
    files,
    async reachOut(reachSeconds) {
      const known = new Set(files);
      const added = pruneFiles(snapshot.files, fileFilter(request, apps, reachSeconds)).filter(
        (file) => !known.has(file),
      );
      await assertFilesWhole(added.filter(({ absolutePath }) => !whole.has(absolutePath)));
      for (const { absolutePath } of added) whole.add(absolutePath);
      files.push(...added);
    },
  };
}

/** The rows that were written, and how many files they were read from. */
interface WrittenRows {
  readonly rows: number;
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

/** Runs the query of the request into one file, an old one replaced. `lean` as in `buildQuery`, on one thread. */
async function runQuery(job: QueryJob, onShare: OnShare, lean: boolean, whole: Set<string>): Promise<WrittenRows> {
  const { plan, snapshot, file, format, tempDir, lists } = job;
  const { request, apps, limits } = plan;
  const { schemaString } = snapshot;
  const isEmpty = schemaString === undefined || isEmptyResult(request, apps);
  const query = isEmpty
    ? buildEmptyQuery(request)
    : buildQuery(request, apps, { lean, cells: format.cells, columns: parseSchemaString(schemaString), ...lists });
  const read = createReadFiles(job, whole);
  const engine = await openQueryEngine({
    apps,
    inline: query.inline,
    folders: [plan.tableDir, plan.folder],
    tempDir,
    tempMaxBytes: limits.maxBytes,
    memoryMb: limits.memoryMb,
    threads: lean ? 1 : limits.threads,
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
    const onCopied = (share: number): void => onShare(prepared + share * (1 - prepared));
    const copying = engine.copyTo(query.select, paths, file, format.copyOptions);
    return { rows: await watch(engine, job, onCopied, copying), filesRead: read.files.length };
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
function hasNoFiles({ plan: { request, apps }, snapshot }: QueryJob): boolean {
  return isEmptyResult(request, apps) || pruneFiles(snapshot.files, fileFilter(request, apps)).length === 0;
}

/** Writes the rows of the request into the job's file. Errors: `LimitError`, `file_damaged`, `disk`, `sql`. */
async function writeRows(job: QueryJob, onShare: OnShare): Promise<WrittenRows> {
  const { emptyFile } = job.format;
  if (emptyFile !== undefined && hasNoFiles(job)) {
    await writeWorkFile(job.file, emptyFile(job.plan.request.selectors));
    return { rows: 0, filesRead: 0 };
  }
  const whole = new Set<string>();
  return runQuery(job, onShare, false, whole).catch((error: unknown) => {
    // Wide rows: once more in the way that needs the least memory.
    if (!isAppError(error, 'memory')) throw error;
    return runQuery(job, onShare, true, whole);
  });
}

/** Gives the lists of a plan names of their own in the work folder. Errors: those of `pinFile`. */
async function pinLists({ segment, titles }: WorkerPlan, tempDir: string): Promise<Lists> {
  return {
    ...(segment === undefined
      ? {}
      : { segment: { ...segment, file: await pinFile(segment, tempDir, 'segment.parquet') } }),
    ...(titles === undefined ? {} : { titles: { ...titles, file: await pinFile(titles, tempDir, 'titles.parquet') } }),
  };
}

async function makeFiles(
  plan: WorkerPlan,
  format: Format,
  onPercent: (percent: number) => void,
): Promise<WorkerOutcome> {
  const { folder, stem, limits } = plan;
  const tempDir = path.join(folder, 'work');
  await makeWorkFolder(tempDir);
  const file = path.join(tempDir, `result.${format.extension}`);
  const lists = await pinLists(plan, tempDir);
  const snapshot = await readSnapshot(plan.tableDir);
  const { rows, filesRead } = await writeRows({ plan, snapshot, file, format, tempDir, lists }, (share) =>
    onPercent(Math.floor(share * queryPercent)),
  );
  onPercent(queryPercent);

  const bytes = (await findSize(file)) ?? 0;
  if (bytes > limits.maxBytes) throw new LimitError(tooManyBytes);
  const onProgress = (share: number): void =>
    onPercent(queryPercent + Math.floor(share * (lastPercent - queryPercent)));
  const { singleFileMaxBytes, partMaxBytes } = limits;
  const result = await format.finish(
    { file, bytes, rows },
    { folder, stem, singleFileMaxBytes, partMaxBytes, onProgress },
  );
  const counted = result.reduce((sum, part) => sum + part.rows, 0);
  if (counted !== rows) throw new Error(`the files hold ${counted} rows, the query gave ${rows}`);
  await removeTree(tempDir);
  await syncFolder(folder);
  return { kind: 'done', files: result, snapshotVersion: snapshot.version, filesRead };
}

/**
 * Runs an export from one snapshot of the lake to durable files in the attempt's folder. `onPercent` gets how far it is,
 * 0 to 99, never less than before. Never throws: what went wrong is the outcome, and the folder is then the
 * caller's to remove.
 */
export async function runExport(plan: WorkerPlan, onPercent: (percent: number) => void): Promise<WorkerOutcome> {
  let reported = 0;
  const report = (percent: number): void => {
    if (percent <= reported) return;
    reported = Math.min(percent, lastPercent);
    onPercent(reported);
  };
  try {
    return await makeFiles(plan, chooseFormat(plan.request), report);
  } catch (error) {
    if (error instanceof LimitError) return { kind: 'failed', reason: 'user', error: error.message };
    const full = isAppError(error, 'disk') || isDiskFull(error);
    const damaged = isDamage(error) && !error.retryable;
    return { kind: 'failed', reason: full ? 'disk' : damaged ? 'damage' : 'error', error: describeError(error) };
  }
}
