/**
 * Forms of time in files: Unix seconds, milliseconds, microseconds or nanoseconds, ISO 8601, or a pattern such as
 * `%d.%m.%Y %H:%M`. A time without an offset is UTC. Fractions of a second are truncated.
 */

export const namedTimeFormats = ['auto', 's', 'ms', 'us', 'ns', 'iso'] as const;

/** Reads a time as Unix seconds; undefined for a text of another form. */
export type TimeReader = (text: string) => number | undefined;

/** Digits after the second of each unit. */
const unitDigits: Readonly<Record<string, number>> = { s: 0, ms: 3, us: 6, ns: 9 };

function readUnix(text: string, digits: number | undefined): number | undefined {
  const [, whole] = /^(\d{1,19})(?:\.\d*)?$/.exec(text) ?? [];
  if (whole === undefined) return undefined;
  // By length: seconds until the year 5138, milliseconds from 1973 on.
  const cut = digits ?? (whole.length <= 11 ? 0 : whole.length <= 14 ? 3 : whole.length <= 17 ? 6 : 9);
  return Number(cut === 0 ? whole : whole.slice(0, -cut));
}

interface TimeParts {
  readonly year: number;
  readonly month: number;
  readonly day: number;
  readonly hour?: number;
  readonly minute?: number;
  readonly second?: number;
  /** `Z`, `UTC`, or `+hh:mm`. */
  readonly offset?: string | undefined;
}

/** Returns Unix seconds of parts; undefined for a day or an hour that does not exist. */
function toSeconds({ year, month, day, hour = 0, minute = 0, second = 0, offset }: TimeParts): number | undefined {
  if (hour > 23 || minute > 59 || second > 60) return undefined;
  const midnight = new Date(Date.UTC(year, month - 1, day));
  if (midnight.getUTCMonth() !== month - 1 || midnight.getUTCDate() !== day) return undefined;
  const [, sign = '+', hours = '0', minutes = '0'] = /^([+-])(\d\d):?(\d\d)?$/.exec(offset ?? '') ?? [];
  const aheadSeconds = (sign === '-' ? -1 : 1) * (Number(hours) * 3600 + Number(minutes) * 60);
  return midnight.getTime() / 1000 + hour * 3600 + minute * 60 + second - aheadSeconds;
}

const offsetPattern = String.raw`Z|UTC|[+-]\d\d(?::?\d\d)?`;
const iso = new RegExp(
  String.raw`^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d{1,9})?)?(?: ?(${offsetPattern}))?)?$`,
  'i',
);

function readIso(text: string): number | undefined {
  const found = iso.exec(text);
  if (found === null) return undefined;
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = found
    .slice(1, 7)
    .map((part) => Number(part ?? 0));
  return toSeconds({ year, month, day, hour, minute, second, offset: found[7]?.toUpperCase() });
}

const monthNames = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];

/** Regular expressions of the codes of a pattern, as in strptime. */
const codes: Readonly<Record<string, string>> = {
  Y: String.raw`(?<Y>\d{4})`,
  y: String.raw`(?<y>\d\d)`,
  m: String.raw`(?<m>\d\d?)`,
  b: '(?<b>[A-Za-z]{3})',
  d: String.raw`(?<d>\d\d?)`,
  H: String.raw`(?<H>\d\d?)`,
  I: '(?<I>0?[1-9]|1[0-2])',
  p: '(?<p>[AaPp][Mm])',
  M: String.raw`(?<M>\d\d)`,
  S: String.raw`(?<S>\d\d)`,
  f: String.raw`\d{1,9}`,
  z: `(?<z>${offsetPattern})`,
};
export const timeCodes = Object.keys(codes);

function readClockHour(parts: Readonly<Record<string, string>>): number {
  if (parts['I'] === undefined) return Number(parts['H'] ?? 0);
  return (Number(parts['I']) % 12) + (parts['p']?.toLowerCase() === 'pm' ? 12 : 0);
}

const literal = (text: string): string => text.replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`);

function readByPattern(pattern: string): TimeReader | undefined {
  const names = [...pattern.matchAll(/%(.?)/gs)].map(([, name = '']) => name);
  const isDate = (names.includes('Y') || names.includes('y')) && (names.includes('m') || names.includes('b'));
  if (!isDate || !names.includes('d') || new Set(names).size !== names.length) return undefined;
  if (names.some((name) => codes[name] === undefined) || names.includes('I') !== names.includes('p')) return undefined;
  const [first = '', ...others] = pattern.split('%');
  const source = [literal(first), ...others.map((part) => `${codes[part[0] ?? '']}${literal(part.slice(1))}`)].join('');
  const expression = new RegExp(`^${source}$`);
  return (text) => {
    const parts = expression.exec(text)?.groups;
    if (parts === undefined) return undefined;
    const { Y, y = '0', m, b = '', d, M = '0', S = '0', z } = parts;
    return toSeconds({
      year: Y === undefined ? 2000 + Number(y) : Number(Y),
      month: m === undefined ? monthNames.indexOf(b.toLowerCase()) + 1 : Number(m),
      day: Number(d),
      hour: readClockHour(parts),
      minute: Number(M),
      second: Number(S),
      offset: z,
    });
  };
}

/** Creates the reader of a format; undefined if the format is unknown. `auto`: Unix times by length, or ISO 8601. */
export function createTimeReader(format: string): TimeReader | undefined {
  if (format === 'auto') return (text) => readUnix(text, undefined) ?? readIso(text);
  if (format === 'iso') return readIso;
  return Object.hasOwn(unitDigits, format) ? (text) => readUnix(text, unitDigits[format]) : readByPattern(format);
}
