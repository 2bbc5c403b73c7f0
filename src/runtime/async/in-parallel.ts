/**
 * Runs a task for each item, at most `width` at a time, started in the order of the items. After a failure no further
 * one starts; the first that there was is thrown when those that run have ended: it may be why others failed.
 */
export async function inParallel<T>(
  items: Iterable<T>,
  width: number,
  task: (item: T) => Promise<void>,
): Promise<void> {
  // One generator for all workers; the loop of a worker that throws closes it, which ends the others' loops.
  const queue = (function* take() {
    yield* items;
  })();
  const failures: unknown[] = [];
  const work = async (): Promise<void> => {
    try {
      for (const item of queue) await task(item);
    } catch (error) {
      failures.push(error);
    }
  };
  await Promise.all(Array.from({ length: width }, work));
  if (failures.length > 0) throw failures[0];
}

/**
 * Waits for work no longer than `ms` milliseconds: then it throws, and the work goes on unheard, also when it fails.
 * For a look at what may stand still; work that can be ended takes a signal instead.
 */
export async function boundedBy<T>(ms: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const bound = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([work, bound]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Runs several starts side by side, so that none waits for another. When one fails, the signal of the others is
 * aborted; its error is thrown when all have ended, so that the caller knows everything that did start.
 */
export async function startTogether(
  starts: readonly ((signal: AbortSignal) => Promise<void>)[],
  signal: AbortSignal,
): Promise<void> {
  const failing = new AbortController();
  const failures: unknown[] = [];
  const unwanted = AbortSignal.any([signal, failing.signal]);
  await Promise.all(
    starts.map(async (start) => {
      try {
        await start(unwanted);
      } catch (error) {
        // The others' errors only say that they were stopped.
        failures.push(error);
        failing.abort();
      }
    }),
  );
  if (failures.length > 0) throw failures[0];
}
