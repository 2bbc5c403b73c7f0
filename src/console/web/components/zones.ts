/** Dates and times in the time zones that the browser knows. */

const formats = new Map<string, Intl.DateTimeFormat>();

function formatOf(zone: string): Intl.DateTimeFormat {
  const known = formats.get(zone);
  if (known !== undefined) return known;
  const format = new Intl.DateTimeFormat('en-CA', {
    timeZone: zone,
    hourCycle: 'h23',
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
  });
  formats.set(zone, format);
  return format;
}

export const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

export function isKnownZone(zone: string): boolean {
  try {
    return formatOf(zone) !== undefined;
  } catch {
    return false;
  }
}

/** Returns the local time of a Unix second in a time zone: `YYYY-MM-DDTHH:MM:SS`. */
export function wallTimeOf(zone: string, seconds: number): string {
  const parts: Readonly<Record<string, string>> = Object.fromEntries(
    formatOf(zone)
      .formatToParts(seconds * 1000)
      .map(({ type, value }) => [type, value]),
  );
  const { year, month, day, hour, minute, second } = parts;
  return `${year?.padStart(4, '0')}-${month}-${day}T${hour}:${minute}:${second}`;
}

const daySeconds = 86_400;

/** Parses a local time as if it were UTC. */
const asUtc = (text: string): number => Date.parse(`${text.length === 16 ? `${text}:00` : text}Z`) / 1000;

/**
 * Returns the Unix second of a local time as an inclusive end of a period. If the clocks show it twice, a period starts
 * with the first and ends with the second occurrence; if they skip it, with the second after or before the gap. NaN for
 * an invalid time or zone.
 */
export function secondsOf(zone: string, wallTime: string, end: 'from' | 'to'): number {
  const wanted = asUtc(wallTime);
  if (Number.isNaN(wanted) || !isKnownZone(zone)) return Number.NaN;
  const offsetAt = (seconds: number): number => asUtc(wallTimeOf(zone, seconds)) - seconds;
  const moments = [wanted - daySeconds, wanted + daySeconds].map((near) => wanted - offsetAt(near));
  let [before, after] = [Math.min(...moments), Math.max(...moments)];
  const shown = moments.filter((seconds) => offsetAt(seconds) === wanted - seconds);
  if (shown.length > 0) return end === 'from' ? Math.min(...shown) : Math.max(...shown);
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    if (asUtc(wallTimeOf(zone, middle)) < wanted) before = middle;
    else after = middle;
  }
  return end === 'from' ? after : before;
}

export function todayIn(zone: string, nowMs = Date.now()): string {
  return wallTimeOf(zone, nowMs / 1000).slice(0, 10);
}

export function addDays(date: string, days: number): string {
  return new Date(Date.parse(`${date}T00:00:00Z`) + days * 86_400_000).toISOString().slice(0, 10);
}
