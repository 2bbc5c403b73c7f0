/** Full mode: the sizes of the published figures; takes an hour instead of minutes. */
export const isFull = process.env['TRIBUTARY_BENCH_FULL'] === '1';

/** Quick mode: shows the effect of a change within two minutes; its figures vary more. */
export const isQuick = process.env['TRIBUTARY_BENCH_QUICK'] === '1';

/** Returns the number of rows: `TRIBUTARY_BENCH_ROWS`, or the number of the mode. */
export function benchRows(usual: number, full: number): number {
  const text = process.env['TRIBUTARY_BENCH_ROWS'];
  if (text === undefined) return isFull ? full : isQuick ? Math.ceil(usual / 10) : usual;
  if (!/^[1-9]\d{2,9}$/.test(text))
    throw new Error(`TRIBUTARY_BENCH_ROWS must be a whole number from 100, not '${text}'`);
  return Number(text);
}

/** Runs of each contestant, one contestant after the other; the median counts. */
export const rounds = isFull || isQuick ? 1 : 3;

/** Returns the value for the mode: a duration in milliseconds, or a number of repetitions. */
export const inQuick = (quick: number, otherwise: number): number => (isQuick ? quick : otherwise);

/** Formats bytes as MB, or bytes in `seconds` as MB/s (10^6). */
export function formatMb(bytes: number, seconds = 1): string {
  return (bytes / 1e6 / seconds).toFixed(bytes < 1e7 * seconds ? 1 : 0);
}
