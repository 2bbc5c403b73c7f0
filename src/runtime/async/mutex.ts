/** Runs changes of one thing one after the other, and those of different things side by side. */
export interface Turns {
  /** Runs `change` when every change of the same key that was asked for before has ended, however it ended. */
  take<T>(key: number, change: () => Promise<T>): Promise<T>;
}

/** Creates the queue of each key; a key without changes takes no memory. */
export function createTurns(): Turns {
  const tails = new Map<number, Promise<unknown>>();
  return {
    take(key, change) {
      const result = (tails.get(key) ?? Promise.resolve()).then(change, change);
      const tail = result.catch(() => undefined).then(() => void (tails.get(key) === tail && tails.delete(key)));
      tails.set(key, tail);
      return result;
    },
  };
}
