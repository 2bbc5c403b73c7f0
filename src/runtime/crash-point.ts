import process from 'node:process';

/** A named point where a test may kill the process; does nothing in production. The next start repairs the data. */
export type CrashPoint = (step: string) => Promise<void>;

export const noCrashPoint: CrashPoint = () => Promise.resolve();

/** Creates a crash point that kills the process at `STEP`, or at call N of `STEP:N`; undefined never does. */
export function createCrashPoint(crashAt: string | undefined): CrashPoint {
  if (crashAt === undefined) return noCrashPoint;
  const [wanted, count] = crashAt.split(':');
  let left = count === undefined ? 1 : Number(count);
  return (step) => {
    if (step === wanted && (left -= 1) === 0) process.kill(process.pid, 'SIGKILL');
    return Promise.resolve();
  };
}
