import process from 'node:process';

/**
 * A named place where a test may kill the process: `await crashPoint('flush-committed')`. In production it does
 * nothing. A crash at any of them must leave data that the next start puts right.
 */
export type CrashPoint = (step: string) => Promise<void>;

/** The crash point of production: none. */
export const noCrashPoint: CrashPoint = () => Promise.resolve();

/**
 * Creates the crash point of a process that a test starts: `STEP` or `STEP:N` ends it by SIGKILL the first or the N-th
 * time it gets there. Undefined: never. The service itself has no setting for it.
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
