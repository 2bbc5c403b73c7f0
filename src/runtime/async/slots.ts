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
