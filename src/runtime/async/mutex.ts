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
