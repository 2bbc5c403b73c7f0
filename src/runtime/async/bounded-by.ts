/**
 * Waits for work no longer than `ms` milliseconds: then it throws, and the work goes on unheard, also when it fails.
 * For a look at what may stand still; work that can be ended takes a signal instead.
 */
export async function boundedBy<T>(ms: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const bound = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([work, bound]);
  } finally {
    clearTimeout(timer);
  }
}
