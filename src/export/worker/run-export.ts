import path from 'node:path';
import type { ReportFile } from '../../reports/reports.ts';
import { describeError, isAppError, isDamage, isDiskFull } from '../../runtime/errors.ts';
import { syncFolder } from '../../runtime/files/durable-file.ts';
import { makeWorkFolder, removeTree } from '../../runtime/files/work-files.ts';
import type { WorkerOutcome, WorkerPlan } from '../jobs/worker-messages.ts';
import { describeBasis, findBasis, pinLists } from './basis.ts';
import { chooseFormat, type Format } from './formats/format.ts';
import { LimitError, tooManyBytes } from './watch-statement.ts';
import { writeRows, type QueryJob, type WrittenRows } from './write-rows.ts';

/** Percent of the query; the rest is making files. */
const queryPercent = 70;
const lastPercent = 99;

/** Finishes the files, which must have the query's rows, within the limit of bytes. */
async function finishFiles({ plan }: QueryJob, { rows, bytes, result }: WrittenRows): Promise<ReportFile[]> {
  try {
    if (bytes > plan.limits.maxBytes) throw new LimitError(tooManyBytes);
    const files = await result.finish({ bytes, rows });
    const counted = files.reduce((sum, part) => sum + part.rows, 0);
    if (counted !== rows) throw new Error(`the files hold ${counted} rows, the query gave ${rows}`);
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
): Promise<WorkerOutcome> {
  const { folder } = plan;
  const tempDir = path.join(folder, 'work');
  await makeWorkFolder(tempDir);
  const pinned = await pinLists(plan, tempDir);
  const basis = await findBasis(plan);
  const onFileShare = (share: number): void =>
    onPercent(queryPercent + Math.floor(share * (lastPercent - queryPercent)));
  const job: QueryJob = { plan: pinned, ...basis, format, tempDir, onFileShare };
  const written = await writeRows(job, (share) => onPercent(Math.floor(share * queryPercent)));
  onPercent(queryPercent);

  const files = await finishFiles(job, written);
  await removeTree(tempDir);
  await syncFolder(folder);
  return {
    kind: 'done',
    files,
    basis: await describeBasis(plan, basis),
    filesRead: written.filesRead,
  };
}

/**
 * Runs an export from one snapshot of the lake to durable files in the attempt's folder. `onPercent` gets the progress,
 * 0 to 99, increasing. Never throws; after an error the caller removes the folder.
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
    // The next attempt would read the same columns.
    const damaged = (isDamage(error) && !error.retryable) || isAppError(error, 'schema_change');
    return { kind: 'failed', reason: full ? 'disk' : damaged ? 'damage' : 'error', error: describeError(error) };
  }
}
