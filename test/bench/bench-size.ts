/** Full mode: the sizes of the figures that are published; an hour instead of minutes. */
export const isFull = process.env['TRIBUTARY_BENCH_FULL'] === '1';

/** Quick mode: everything in two minutes, to see what a change does; its figures spread further. */
export const isQuick = process.env['TRIBUTARY_BENCH_QUICK'] === '1';

/** Rows of a benchmark: `TRIBUTARY_BENCH_ROWS`, or what the mode has. */
export function benchRows(usual: number, full: number): number {
  const text = process.env['TRIBUTARY_BENCH_ROWS'];
  if (text === undefined) return isFull ? full : isQuick ? Math.ceil(usual / 10) : usual;
  if (!/^[1-9]\d{2,9}$/.test(text))
    throw new Error(`TRIBUTARY_BENCH_ROWS must be a whole number from 100, not '${text}'`);
  return Number(text);
}

/** Runs of each contestant, in turn; the middle one counts. */
export const rounds = isFull || isQuick ? 1 : 3;

/** How long a load lasts, milliseconds, or how many times what is not long is done. */
export const inQuick = (quick: number, otherwise: number): number => (isQuick ? quick : otherwise);

/** Writes bytes as MB, and a rate of bytes in so many seconds as MB/s (10^6). */
export function formatMb(bytes: number, seconds = 1): string {
  return (bytes / 1e6 / seconds).toFixed(bytes < 1e7 * seconds ? 1 : 0);
}
