import { describeError } from './errors.ts';
import type { Logger } from './logger.ts';

/** A thing that was started and can be stopped; stopping twice is the same as stopping once. */
export interface Stoppable {
  stop(): Promise<void>;
}

/**
 * Collects what must be undone while a composition is being built, and undoes it in reverse order: on a normal stop,
 * and when a later step of the start fails half-way. Every closer runs, whatever the others do.
 */
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

/** Builds something from parts; a failure unwinds the parts already there before it is thrown on. */
export async function buildWithClosers<T>(logger: Logger, build: (closers: Closers) => Promise<T>): Promise<T> {
  const closers = createClosers(logger);
  try {
    return await build(closers);
  } catch (error) {
    await closers.stop();
    throw error;
  }
}
