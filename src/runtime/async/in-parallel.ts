/**
 * Runs a task for each item, at most `width` at a time, started in the order of the items. After a failure no further
 * task starts; the first error is thrown when the running tasks have settled, since it may have caused the others.
 */
export async function inParallel<T>(
  items: Iterable<T>,
  width: number,
  task: (item: T) => Promise<void>,
): Promise<void> {
  // One generator for all workers: a worker that throws closes it, which ends the other workers' loops.
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

/** Waits at most `ms` for work, then throws; the work continues. For calls that cannot be aborted. */
export async function withTimeout<T>(ms: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const bound = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no response within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([work, bound]);
  } finally {
    clearTimeout(timer);
  }
}

/** Runs work with a signal that aborts with any of several. Unlike `AbortSignal.any()`, it leaves no listeners. */
export async function withAnySignal<T>(
  signals: readonly AbortSignal[],
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const any = new AbortController();
  const abort = (): void => any.abort();
  if (signals.some(({ aborted }) => aborted)) abort();
  for (const signal of signals) signal.addEventListener('abort', abort, { once: true });
  try {
    return await work(any.signal);
  } finally {
    for (const signal of signals) signal.removeEventListener('abort', abort);
  }
}

/** Runs starts concurrently. The first failure aborts the others, and is thrown when all have settled. */
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
        // The other errors only report the abort.
        failures.push(error);
        failing.abort();
      }
    }),
  );
  if (failures.length > 0) throw failures[0];
}
