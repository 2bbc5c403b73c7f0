/**
 * Runs several starts side by side, so that none waits for another. When one fails, the signal of the others is
 * aborted; its error is thrown when all have ended, so that the caller knows everything that did start.
 */
export async function startTogether(
  starts: readonly ((signal: AbortSignal) => Promise<void>)[],
  signal: AbortSignal,
): Promise<void> {
  const failing = new AbortController();
  const failures: unknown[] = [];
  const unwanted = AbortSignal.any([signal, failing.signal]);
  await Promise.all(
    starts.map(async (start) => {
      try {
        await start(unwanted);
      } catch (error) {
        // The others' errors only say that they were stopped.
        failures.push(error);
        failing.abort();
      }
    }),
  );
  if (failures.length > 0) throw failures[0];
}
