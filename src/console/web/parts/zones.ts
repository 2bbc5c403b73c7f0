/** Calendar dates and clock times of time zones, by what the browser knows of them. */

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

/** The reader's own zone. */
export const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Whether the browser knows a zone. */
export function isKnownZone(zone: string): boolean {
  try {
    return formatOf(zone) !== undefined;
  } catch {
    return false;
  }
}

/** What the clocks of a zone show at a moment (Unix seconds): `YYYY-MM-DDTHH:MM:SS`. */
export function wallTimeOf(zone: string, seconds: number): string {
  const parts = Object.fromEntries(
    formatOf(zone)
      .formatToParts(seconds * 1000)
      .map(({ type, value }) => [type, value]),
  );
  const { year, month, day, hour, minute, second } = parts as Record<string, string>;
  return `${year?.padStart(4, '0')}-${month}-${day}T${hour}:${minute}:${second}`;
}

const daySeconds = 86_400;

/** Reads a clock's time as if it were UTC. */
const asUtc = (text: string): number => Date.parse(`${text.length === 16 ? `${text}:00` : text}Z`) / 1000;

/**
 * The moment (Unix seconds) of a clock's time in a zone as an end of a period that includes it. A time that the clocks
 * show twice, when they go back, begins with the first and ends with the second; one that they leave out, when they go
 * forward, begins with the second after and ends with the second before. NaN for no time and for an unknown zone.
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

/** The date of today in a zone. */
export function todayIn(zone: string, nowMs = Date.now()): string {
  return wallTimeOf(zone, nowMs / 1000).slice(0, 10);
}

/** The date so many days after another. */
export function addDays(date: string, days: number): string {
  return new Date(Date.parse(`${date}T00:00:00Z`) + days * 86_400_000).toISOString().slice(0, 10);
}
