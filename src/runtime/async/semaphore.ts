/** Runs so many tasks of each key at a time, in the order in which they were asked for, and those of other keys beside them. */
export interface KeyedSemaphore {
  /** Runs `task` when its key has a place free, and frees the place however the task ended. */
  run<T>(key: number | string, task: () => Promise<T>): Promise<T>;
}

/** Creates a semaphore of `width` places for each key; a key without tasks takes no memory. */
export function createKeyedSemaphore(width = 1): KeyedSemaphore {
  const byKey = new Map<number | string, { running: number; readonly waiting: (() => void)[] }>();
  return {
    async run(key, task) {
      const places = byKey.get(key) ?? { running: 0, waiting: [] };
      byKey.set(key, places);
      if (places.running < width) places.running += 1;
      else await new Promise<void>((resolve) => places.waiting.push(resolve));
      try {
        return await task();
      } finally {
        // The place is handed on, so that nobody gets in between.
        const next = places.waiting.shift();
        if (next !== undefined) next();
        else if ((places.running -= 1) === 0) byKey.delete(key);
      }
    },
  };
}

/** Creates a mutex: it runs tasks one after the other, in the order in which they were asked for. */
export function createMutex(): { run<T>(task: () => Promise<T>): Promise<T> } {
  const semaphore = createKeyedSemaphore();
  return { run: (task) => semaphore.run(0, task) };
}

/** A mutex for the tasks of many: of those who wait each gets a turn after the other, however much one of them asks for. */
interface FairMutex {
  /** Runs `task` in the turn of its key; tasks of one key run in the order in which they were asked for. */
  run<T>(key: number, task: () => Promise<T>): Promise<T>;
  /** Tasks of a key, those that wait and the one that runs; of all without one. */
  count(key?: number): number;
}

/** Creates a mutex that nobody holds. */
export function createFairMutex(): FairMutex {
  /** Those who wait; the first of them is next. */
  const queues = new Map<number, (() => Promise<void>)[]>();
  const counts = new Map<number, number>();
  let isHeld = false;

  async function work(): Promise<void> {
    isHeld = true;
    for (let next = queues.entries().next().value; next !== undefined; next = queues.entries().next().value) {
      const [key, [first, ...others]] = next;
      queues.delete(key);
      if (others.length > 0) queues.set(key, others);
      await first?.();
    }
    isHeld = false;
  }

  return {
    async run<T>(key: number, task: () => Promise<T>): Promise<T> {
      counts.set(key, (counts.get(key) ?? 0) + 1);
      try {
        return await new Promise<T>((resolve, reject) => {
          const turn = async (): Promise<void> => {
            try {
              resolve(await task());
            } catch (error) {
              reject(error);
            }
          };
          queues.set(key, [...(queues.get(key) ?? []), turn]);
          if (!isHeld) void work();
        });
      } finally {
        const left = (counts.get(key) ?? 1) - 1;
        if (left > 0) counts.set(key, left);
        else counts.delete(key);
      }
    },
    count: (key) =>
      key === undefined ? [...counts.values()].reduce((sum, count) => sum + count, 0) : (counts.get(key) ?? 0),
  };
}
