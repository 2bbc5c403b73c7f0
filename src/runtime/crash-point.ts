import process from 'node:process';

/**
 * A named point where a test may kill the process: `await crashPoint('flush-committed')`. It does nothing in
 * production. After a crash at any of them the next start must repair the data.
 */
export type CrashPoint = (step: string) => Promise<void>;

export const noCrashPoint: CrashPoint = () => Promise.resolve();

/**
 * Creates the crash point of a test: `STEP` or `STEP:N` kills the process at the first or the N-th call with that step;
 * undefined never does.
 */
export function createCrashPoint(crashAt: string | undefined): CrashPoint {
  if (crashAt === undefined) return noCrashPoint;
  const [wanted, count] = crashAt.split(':');
  let left = count === undefined ? 1 : Number(count);
  return (step) => {
    if (step === wanted && (left -= 1) === 0) process.kill(process.pid, 'SIGKILL');
    return Promise.resolve();
  };
}
