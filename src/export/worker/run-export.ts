import assert from 'node:assert/strict';
import path from 'node:path';
import { pruneFiles } from '../../lake/files/prune.ts';
import { readSnapshot, type DataFile, type Snapshot } from '../../lake/log/snapshot.ts';
import { hasColumns } from '../../lake/table-schema.ts';
import { assertFilesWhole } from '../../lake/files/verify-files.ts';
import { pause } from '../../runtime/async/retry.ts';
import { syncFolder } from '../../runtime/files/durable-file.ts';
import { AppError, describeError, isAppError, isDamage, isDiskFull } from '../../runtime/errors.ts';
import { makeWorkFolder, removeTree, writeWorkFile } from '../../runtime/files/work-files.ts';
import { findSize } from '../../runtime/files/file-checks.ts';
import { csv } from './formats/csv.ts';
import type { Format } from './formats/format.ts';
import { buildQuery, fileFilter, isEmptyResult, listReachSeconds } from './query.ts';
import { openQueryEngine, type QueryEngine } from './query-engine.ts';
import type { WorkerOutcome, WorkerPlan } from '../jobs/worker-messages.ts';

/** The share of the work that the query has; the rest is making files of its result. */
const queryPercent = 70;
const lastPercent = 99;
const watchEveryMs = 200;
/** What the process may take beside DuckDB's buffers before it is ended: the buffer limit does not bind everything. */
const memorySlackBytes = 768 * 1024 * 1024;

/** The request asks for more than the limits allow: shown to the user, and never tried again. */
class LimitError extends Error {}

const tooManyRows = 'Too many lines in export';
const tooManyBytes = 'Too many bytes in export';

/** Runs a statement while watching its progress, the size of its output, and the memory of the process. */
async function watch<T>(
  engine: QueryEngine,
  file: string,
  plan: WorkerPlan,
  onPercent: (percent: number) => void,
  statement: Promise<T>,
): Promise<T> {
  let stopped: Error | undefined;
  const ended = new AbortController();
  const memoryLimit = plan.limits.memoryMb * 1024 * 1024 + memorySlackBytes;
  async function look(): Promise<void> {
    onPercent(Math.floor(engine.progress() * queryPercent));
    if (((await findSize(file)) ?? 0) > plan.limits.maxBytes) stopped ??= new LimitError(tooManyBytes);
    if (process.memoryUsage.rss() > memoryLimit)
      stopped ??= new Error(`the export needs more than ${memoryLimit} bytes of memory`);
    if (stopped !== undefined) engine.interrupt();
  }
  async function lookOn(): Promise<void> {
    for (;;) {
      await pause(watchEveryMs, ended.signal);
      if (ended.signal.aborted) return;
      await look().catch(() => undefined);
    }
  }
  void lookOn();
  try {
    const result = await statement;
    if (stopped !== undefined) throw stopped;
    return result;
  } catch (error) {
    throw stopped ?? error;
  } finally {
    ended.abort();
  }
}

/** What a query runs on. */
interface QueryJob extends Pick<Snapshot, 'emptyFile' | 'schemaString'> {
  readonly plan: WorkerPlan;
  readonly files: readonly DataFile[];
  /** How far beyond the end of the request's time the files go. */
  readonly reachSeconds: number;
  /** What the rows are written into, and how. */
  readonly file: string;
  readonly format: Format;
  readonly tempDir: string;
}

/**
 * Runs the query of the request into one file, an old one replaced; returns how many rows it has. Undefined, and nothing
 * written: events beyond those of the files might change them. `lean` as in `buildQuery`, on one thread.
 */
async function runQuery(
  { emptyFile, schemaString, ...job }: QueryJob,
  onPercent: (percent: number) => void,
  lean: boolean,
): Promise<number | undefined> {
  const { plan, files, file, tempDir, reachSeconds } = job;
  const { request, apps, limits } = plan;
  const query = buildQuery(request, apps, { lean, reachSeconds });
  const engine = await openQueryEngine({
    files: [emptyFile, ...files.map(({ absolutePath }) => absolutePath)],
    apps,
    inline: query.inline,
    folders: [plan.tableDir, plan.folder],
    tempDir,
    memoryMb: limits.memoryMb,
    threads: lean ? 1 : limits.threads,
  });
  try {
    if (!hasColumns(await engine.describe(emptyFile), schemaString))
      throw new AppError('file_damaged', `${emptyFile} is damaged: it has not the table's columns`, {
        hint: 'Remove it: the next start writes it.',
      });
    if ((await watch(engine, file, plan, () => undefined, engine.prepare(query))) > 0) return undefined;
    const atMost = files.reduce((sum, { numRecords }) => sum + (numRecords ?? Infinity), 0);
    if (
      atMost > limits.maxRows &&
      (await watch(engine, file, plan, () => undefined, engine.count(query))) > limits.maxRows
    )
      throw new LimitError(tooManyRows);
    return await watch(engine, file, plan, onPercent, engine.copyTo(query, file, job.format.copyOptions));
  } finally {
    engine.close();
  }
}

/** Writes the rows of the request into one file; returns how many they are, or undefined as `runQuery` does. */
async function writeRows(job: QueryJob, onPercent: (percent: number) => void): Promise<number | undefined> {
  if (job.files.length === 0) {
    await writeWorkFile(job.file, job.format.emptyFile(job.plan.request.selectors));
    return 0;
  }
  await assertFilesWhole(job.files);
  return runQuery(job, onPercent, false).catch((error: unknown) => {
    // Wide rows: once more in the way that needs the least memory.
    if (!isAppError(error, 'memory')) throw error;
    return runQuery(job, onPercent, true);
  });
}

async function makeFiles(
  plan: WorkerPlan,
  format: Format,
  onPercent: (percent: number) => void,
): Promise<WorkerOutcome> {
  const { request, apps, folder, stem, limits } = plan;
  const tempDir = path.join(folder, 'work');
  await makeWorkFolder(tempDir);
  const file = path.join(tempDir, `result.${format.extension}`);
  const { emptyFile, schemaString, version, files: live } = await readSnapshot(plan.tableDir);
  const isEmpty = isEmptyResult(request, apps);
  let files: readonly DataFile[] = [];
  let rows: number | undefined;
  for (const reachSeconds of listReachSeconds(request)) {
    files = isEmpty ? [] : pruneFiles(live, fileFilter(request, apps, reachSeconds));
    rows = await writeRows({ plan, files, reachSeconds, file, format, tempDir, emptyFile, schemaString }, onPercent);
    if (rows !== undefined) break;
  }
  assert(rows !== undefined, 'the last reach is as far as the lake goes');
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
  return { kind: 'done', files: result, snapshotVersion: version, filesRead: files.length };
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
    return await makeFiles(plan, csv, report);
  } catch (error) {
    if (error instanceof LimitError) return { kind: 'failed', reason: 'user', error: error.message };
    const full = isAppError(error, 'disk') || isDiskFull(error);
    const damaged = isDamage(error) && !error.retryable;
    return { kind: 'failed', reason: full ? 'disk' : damaged ? 'damage' : 'error', error: describeError(error) };
  }
}
