/** Runs tasks one after the other, in the order in which they were asked for. */
export interface Mutex {
  /** Runs `task` when every task that was asked for before has ended, however it ended. */
  run<T>(task: () => Promise<T>): Promise<T>;
}

/** Creates a mutex that nobody holds. */
export function createMutex(): Mutex {
  let tail: Promise<unknown> = Promise.resolve();
  return {
    run(task) {
      const result = tail.then(task, task);
      tail = result.catch(() => undefined);
      return result;
    },
  };
}

/** A mutex for each key: changes of one thing run one after the other, those of different things side by side. */
export interface KeyedMutex {
  /** Runs `change` when every change of the same key that was asked for before has ended, however it ended. */
  run<T>(key: number | string, change: () => Promise<T>): Promise<T>;
}

/** Creates the mutex of each key; a key without changes takes no memory. */
export function createKeyedMutex(): KeyedMutex {
  const mutexes = new Map<number | string, { readonly mutex: Mutex; waiting: number }>();
  return {
    async run(key, change) {
      const held = mutexes.get(key) ?? { mutex: createMutex(), waiting: 0 };
      mutexes.set(key, held);
      held.waiting += 1;
      try {
        return await held.mutex.run(change);
      } finally {
        held.waiting -= 1;
        if (held.waiting === 0) mutexes.delete(key);
      }
    },
  };
}

/** A mutex for the tasks of many: of those who wait each gets a turn after the other, however much one of them asks for. */
export interface FairMutex {
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

/** Lets so many tasks run at a time; the others wait, first come, first served. */
export interface Slots {
  run<T>(task: () => Promise<T>): Promise<T>;
}

/** Creates `width` slots that are free. */
export function createSlots(width: number): Slots {
  let free = width;
  const waiting: (() => void)[] = [];
  return {
    async run(task) {
      if (free > 0) free -= 1;
      else await new Promise<void>((resolve) => waiting.push(resolve));
      try {
        return await task();
      } finally {
        const next = waiting.shift();
        if (next === undefined) free += 1;
        else next();
      }
    },
  };
}

/** Slots for each key: so many tasks of one key run at a time, and those of others do not wait for them. */
export interface KeyedSlots {
  run<T>(key: string, task: () => Promise<T>): Promise<T>;
}

/** Creates `width` slots for each key; a key without tasks takes no memory. */
export function createKeyedSlots(width: number): KeyedSlots {
  const byKey = new Map<string, { readonly slots: Slots; tasks: number }>();
  return {
    async run(key, task) {
      const held = byKey.get(key) ?? { slots: createSlots(width), tasks: 0 };
      byKey.set(key, held);
      held.tasks += 1;
      try {
        return await held.slots.run(task);
      } finally {
        held.tasks -= 1;
        if (held.tasks === 0) byKey.delete(key);
      }
    },
  };
}
