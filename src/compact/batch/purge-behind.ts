/**
 * Takes messages out of the stream that the lake has, while the next batch is taken in: for a full batch the broker needs
 * as long as a tenth of its flush, and nothing waits for it.
 */
export interface PurgeBehind {
  /**
   * Begins a purge, once the one before has ended; what that one was to remove, this one removes as well. Throws what it
   * failed with, when this one has begun: so purges that fail again and again are an error each time.
   */
  begin(purge: () => Promise<void>): Promise<void>;
  /** Waits until none is under way. Throws what it failed with, once. */
  ended(): Promise<void>;
}

/** Creates it, with no purge under way. */
export function createPurgeBehind(): PurgeBehind {
  let running = Promise.resolve();

  async function ended(): Promise<void> {
    const last = running;
    running = Promise.resolve();
    await last;
  }

  return {
    ended,
    async begin(purge) {
      const failure = await ended().then(
        () => undefined,
        (error: unknown) => ({ error }),
      );
      running = purge();
      // Whoever waits for it is told.
      running.catch(() => undefined);
      if (failure !== undefined) throw failure.error;
    },
  };
}
