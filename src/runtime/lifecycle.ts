import { describeError } from './errors.ts';
import type { Logger } from './logger.ts';

/** A started part. `stop` is idempotent. */
export interface Stoppable {
  stop(): Promise<void>;
}

/** Closers of a composition in progress: they run in reverse order, at a stop or a failed start, even if one fails. */
export interface Closers extends Stoppable {
  add(name: string, close: () => Promise<void> | void): void;
}

export function createClosers(logger: Logger): Closers {
  const closers: { name: string; close: () => Promise<void> | void }[] = [];
  let stopping: Promise<void> | undefined;

  async function unwind(): Promise<void> {
    for (let closer = closers.pop(); closer !== undefined; closer = closers.pop()) {
      try {
        await closer.close();
      } catch (error) {
        logger.error({ part: closer.name, error: describeError(error) }, 'part did not stop cleanly');
      }
    }
  }

  return {
    add: (name, close) => void closers.push({ name, close }),
    stop: () => (stopping ??= unwind()),
  };
}

/** Builds a value from parts; a failure closes the existing parts and is thrown. */
export async function buildWithClosers<T>(logger: Logger, build: (closers: Closers) => Promise<T>): Promise<T> {
  const closers = createClosers(logger);
  try {
    return await build(closers);
  } catch (error) {
    await closers.stop();
    throw error;
  }
}
