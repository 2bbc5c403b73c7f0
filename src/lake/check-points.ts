import path from 'node:path';
import { describeError, isAppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';
import type { Problem } from './check-log.ts';
import type { Restamp } from './log/lake-state.ts';
import { listLog } from './log/log-files.ts';
import { findBrokenLines, findEnd, ledgerName } from './log/version-ledger.ts';
import { readSteps } from './log/version-points.ts';

const ledgerAdvice = 'places in the history that it says something of are refused; put it back from a backup';

/** Checks every line of what the log said of versions that are trimmed, and that no version of them is left out. */
async function checkLedger(tableDir: string): Promise<Problem[]> {
  const at = path.posix.join(path.basename(tableDir), ledgerName);
  // Before the ledger is read: what is gone from the log was in the ledger before.
  const { commits } = await listLog(tableDir);
  const broken = await findBrokenLines(tableDir);
  const { last, isCutOff } = await findEnd(tableDir);
  const tell = (what: string): Problem => ({ problem: 'damaged_file', path: at, detail: `${what}; ${ledgerAdvice}` });
  const covered = last?.version ?? -1;
  const first = commits[0] ?? 0;
  // A lake of before there were ledgers has none until its log is trimmed anew.
  const isShort = (last !== undefined || isCutOff) && covered < first - 1;
  return [
    ...(broken.length === 0 ? [] : [tell(`the lines ${broken.join(', ')} are not those that were written`)]),
    ...(isShort ? [tell(`it ends with version ${covered}, and the log begins with ${first}`)] : []),
  ];
}

/** Checks what tells where versions stand in the order of rows: the ledger, and the steps of repairs of the clock. */
export async function checkPoints(tableDir: string, restamps: readonly Restamp[] = []): Promise<Problem[]> {
  const problems = await checkLedger(tableDir);
  for (const { steps } of restamps) {
    if (steps === undefined) continue;
    const problem = (await exists(path.join(tableDir, steps))) ? 'damaged_file' : 'missing_file';
    await readSteps(tableDir, steps).catch((error: unknown) => {
      if (!isAppError(error, 'log_damaged')) throw error;
      problems.push({ problem, path: path.posix.join(path.basename(tableDir), steps), detail: describeError(error) });
    });
  }
  return problems;
}
