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
