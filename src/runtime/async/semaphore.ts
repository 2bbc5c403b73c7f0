type Key = number | string;

/** Creates a semaphore: `width` tasks per key, `total` in all. Tasks of a key run in order; waiting keys alternate. */
export function createKeyedSemaphore(width = 1, total = Infinity) {
  const running = new Map<Key, number>();
  const waiting = new Map<Key, (() => void)[]>();
  let runningInAll = 0;

  const hasRoom = (key: Key): boolean => runningInAll < total && (running.get(key) ?? 0) < width;
  function add(key: Key, change: 1 | -1): void {
    const count = (running.get(key) ?? 0) + change;
    runningInAll += change;
    if (count === 0) running.delete(key);
    else running.set(key, count);
  }

  function startNext(): void {
    for (const [key, starts] of waiting) {
      if (!hasRoom(key)) continue;
      const start = starts.shift();
      // Its other tasks wait behind those of the other keys.
      waiting.delete(key);
      if (starts.length > 0) waiting.set(key, starts);
      // Counted before it starts, so that no other task can start in between.
      add(key, 1);
      start?.();
      return;
    }
  }

  function waitForTurn(key: Key, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const starts = waiting.get(key) ?? [];
      function start(): void {
        signal?.removeEventListener('abort', onAbort);
        resolve();
      }
      function onAbort(): void {
        starts.splice(starts.indexOf(start), 1);
        if (starts.length === 0) waiting.delete(key);
        reject(signal?.reason);
      }
      starts.push(start);
      waiting.set(key, starts);
      signal?.addEventListener('abort', onAbort, { once: true });
    });
  }

  return {
    /** Runs `task` as soon as the limits allow it. Throws the reason of a signal that aborts before that. */
    async run<T>(key: Key, task: () => Promise<T>, signal?: AbortSignal): Promise<T> {
      signal?.throwIfAborted();
      if (hasRoom(key)) add(key, 1);
      else await waitForTurn(key, signal);
      try {
        return await task();
      } finally {
        add(key, -1);
        startNext();
      }
    },
    /** Returns the number of tasks that wait or run, of one key or of all. */
    count(key?: Key): number {
      const waits = key === undefined ? [...waiting.values()].flat() : (waiting.get(key) ?? []);
      return waits.length + (key === undefined ? runningInAll : (running.get(key) ?? 0));
    },
  };
}

export type KeyedSemaphore = ReturnType<typeof createKeyedSemaphore>;

/** Creates a mutex: it runs tasks one at a time, in the order of the calls. */
export function createMutex(): { run<T>(task: () => Promise<T>): Promise<T> } {
  const semaphore = createKeyedSemaphore();
  return { run: (task) => semaphore.run(0, task) };
}
