/**
 * Runs a task for each item, at most `width` at a time, started in the order of the items. After a failure no further
 * one starts; it is thrown when those that run have ended.
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
  const work = async (): Promise<void> => {
    for (const item of queue) await task(item);
  };
  const ends = await Promise.allSettled(Array.from({ length: width }, work));
  const failed = ends.find((end) => end.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
}
