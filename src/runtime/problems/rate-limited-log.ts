import { createTokenBuckets } from '../async/rate-limits.ts';

/** A log of events that untrusted clients can repeat at will: it must not fill the disk. */
export interface RateLimitedLog {
  /** Writes a line, or counts it: `leftOut` of the next line is the number of lines that were dropped. */
  add(fields: Readonly<Record<string, unknown>>): void;
}

interface LogBound {
  readonly maxLines: number;
  readonly windowMs: number;
}

/** The bound for requests that failed inside the service. */
export const failureBound: LogBound = { maxLines: 10, windowMs: 60_000 };

/** Creates a log that passes `maxLines` at once to `write`, and `maxLines` per window over time. */
export function createRateLimitedLog(
  write: (fields: Readonly<Record<string, unknown>>) => void,
  { maxLines, windowMs }: LogBound,
): RateLimitedLog {
  const lines = createTokenBuckets(maxLines, (maxLines * 1000) / windowMs);
  let leftOut = 0;
  return {
    add(fields) {
      if (!lines.take()) {
        leftOut += 1;
        return;
      }
      write(leftOut === 0 ? fields : { ...fields, leftOut });
      leftOut = 0;
    },
  };
}
