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

/** Runs changes of one thing one after the other, and those of different things side by side. */
export interface Turns {
  /** Runs `change` when every change of the same key that was asked for before has ended, however it ended. */
  take<T>(key: number, change: () => Promise<T>): Promise<T>;
}

/** Creates the mutex of each key; a key without changes takes no memory. */
export function createTurns(): Turns {
  const mutexes = new Map<number, { readonly mutex: Mutex; waiting: number }>();
  return {
    async take(key, change) {
      const turn = mutexes.get(key) ?? { mutex: createMutex(), waiting: 0 };
      mutexes.set(key, turn);
      turn.waiting += 1;
      try {
        return await turn.mutex.run(change);
      } finally {
        turn.waiting -= 1;
        if (turn.waiting === 0) mutexes.delete(key);
      }
    },
  };
}
