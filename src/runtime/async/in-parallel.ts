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
