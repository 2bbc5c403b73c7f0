/** A log for what any stranger can make happen again and again: it must not fill the disk. */
export interface BoundedLog {
  /** Writes a line with the fields, or counts it: `leftOut` in the next line says how many were not written. */
  add(fields: Readonly<Record<string, unknown>>): void;
}

export interface LogBound {
  readonly maxLines: number;
  /** Milliseconds, on the monotonic clock. */
  readonly windowMs: number;
}

/** Creates a log that hands at most `maxLines` in each window to `write`. */
export function createBoundedLog(
  write: (fields: Readonly<Record<string, unknown>>) => void,
  { maxLines, windowMs }: LogBound,
): BoundedLog {
  let window = 0;
  let lines = 0;
  let leftOut = 0;
  return {
    add(fields) {
      const now = Math.floor(performance.now() / windowMs);
      if (now !== window) {
        window = now;
        lines = 0;
      }
      lines += 1;
      if (lines > maxLines) {
        leftOut += 1;
        return;
      }
      write(leftOut === 0 ? fields : { ...fields, leftOut });
      leftOut = 0;
    },
  };
}

/** The bound of lines about requests that failed inside the service. */
export const failureBound: LogBound = { maxLines: 10, windowMs: 60_000 };
