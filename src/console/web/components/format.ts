/** Formats numbers and times in the reader's locale. */
import { isKnownZone, ownZone } from './zones.ts';

const numbers = new Intl.NumberFormat();
const short = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });
const decimals = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: 'always', style: 'short' });

export function formatCount(value: number): string {
  return numbers.format(value);
}

export const formatRows = (rows: number): string => (rows === 1 ? '1 row' : `${formatCount(rows)} rows`);

/** Formats a number by its magnitude, as `1.2M`. */
export function formatShort(value: number): string {
  return value < 10_000 ? numbers.format(value) : short.format(value);
}

const units = ['byte', 'kilobyte', 'megabyte', 'gigabyte', 'terabyte'];

export function formatBytes(bytes: number): string {
  const power = bytes < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3));
  const format = new Intl.NumberFormat(undefined, {
    style: 'unit',
    unit: units[power] ?? 'byte',
    unitDisplay: power === 0 ? 'long' : 'short',
    maximumFractionDigits: power === 0 ? 0 : 1,
  });
  return format.format(bytes / 1000 ** power);
}

/** Formats a duration, s, in the most suitable unit. */
export function formatSpan(seconds: number): string {
  const [value, unit] =
    seconds < 90 ? [seconds, 'second'] : seconds < 5400 ? [seconds / 60, 'minute'] : [seconds / 3600, 'hour'];
  return new Intl.NumberFormat(undefined, {
    style: 'unit',
    unit,
    unitDisplay: 'short',
    maximumFractionDigits: seconds < 10 ? 1 : 0,
  }).format(value);
}

/** Formats the distance of a Unix time, as `in 3 hr.`. */
export function formatAway(seconds: number, nowMs = Date.now()): string {
  const away = seconds - nowMs / 1000;
  const size = Math.abs(away);
  if (size < 90) return relative.format(Math.round(away), 'second');
  if (size < 5400) return relative.format(Math.round(away / 60), 'minute');
  return size < 129_600
    ? relative.format(Math.round(away / 3600), 'hour')
    : relative.format(Math.round(away / 86_400), 'day');
}

/** Formats a Unix time in a time zone; the reader's by default and if the browser does not know it. */
export function formatTime(seconds: number, timeZone = ownZone, second?: '2-digit'): string {
  return new Intl.DateTimeFormat(undefined, {
    year: 'numeric',
    month: 'short',
    day: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
    ...(second === undefined ? {} : { second }),
    timeZoneName: 'short',
    timeZone: isKnownZone(timeZone) ? timeZone : ownZone,
  }).format(seconds * 1000);
}

/** Formats a calendar date, `YYYY-MM-DD`. */
export function formatDate(date: string): string {
  return new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeZone: 'UTC' }).format(Date.parse(date));
}

export function formatShare(share: number): string {
  return `${decimals.format(share * 100)} %`;
}
