/** What may stand for a value on a terminal: control characters and marks of direction would change what is read. */
const unshown = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
const named: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };
/** What joins the parts of an emoji, or says that one is meant: shown as it is. */
const joiners = ['\u200d', '\ufe0f'];

/** Shows a text that somebody else wrote: what a terminal would obey, or not show, is written out. */
export function escapeText(text: string): string {
  return text.replaceAll(unshown, (sign) =>
    joiners.includes(sign) ? sign : (named[sign] ?? `\\u{${(sign.codePointAt(0) ?? 0).toString(16)}}`),
  );
}

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** `12.3 MiB`. */
export function showBytes(bytes: number): string {
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, Math.abs(bytes))) / 10)));
  const value = bytes / 1024 ** power;
  return `${value.toFixed(power === 0 || value >= 100 ? 0 : 1)} ${units[power]}`;
}

const clock = new Intl.DateTimeFormat('en-GB', {
  year: 'numeric',
  month: '2-digit',
  day: '2-digit',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  timeZoneName: 'short',
});

/** `2026-03-29 04:05:06 CEST`: the clocks of the terminal's zone, which TZ names. */
export function showTime(ms: number): string {
  const parts = Object.fromEntries(clock.formatToParts(ms).map(({ type, value }) => [type, value]));
  const { year, month, day, hour, minute, second, timeZoneName } = parts;
  return `${year}-${month}-${day} ${hour}:${minute}:${second} ${timeZoneName}`;
}

const isoTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
/** Numbers that name something: a separator would make another name of them. */
const isName = /^(pid|port|version|since|sinceVersion|limit)$|^id[A-Z]|Id$|Version$/;
/** Later than 2001: a time, and no span, in milliseconds. */
const earliestMs = 1e12;

function showNumber(value: number | bigint, name: string): string {
  if (typeof value === 'number' && /^bytes|Bytes/.test(name)) return showBytes(value);
  if (/[a-z]Ms$/.test(name)) {
    const ms = Number(value);
    return ms >= earliestMs ? showTime(ms) : `${(ms / 1000).toLocaleString('en-US')} s`;
  }
  return isName.test(name) ? String(value) : value.toLocaleString('en-US', { maximumFractionDigits: 6 });
}

/** When a text is: ISO 8601, or the seconds that the API has under names such as timestampCreated. */
function timeOf(text: string, name: string): number | undefined {
  if (isoTime.test(text)) return Date.parse(text);
  return /^timestamp[A-Z]/.test(name) && /^\d{9,11}$/.test(text) ? Number(text) * 1000 : undefined;
}

/** Says whether a value means nothing when a part of it is left out: a number, a time, yes or no. */
export function isWhole(value: unknown, name: string): boolean {
  return typeof value === 'string'
    ? timeOf(value, name) !== undefined
    : !['object', 'undefined'].includes(typeof value);
}

/** Says whether a value is an object of fields. */
export function isFields(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Shows a value on one line; `name` is that of its field, which says what a number is. */
export function showValue(value: unknown, name: string): string {
  if (value === null || value === undefined) return '-';
  if (typeof value === 'string') {
    const ms = timeOf(value, name);
    return ms === undefined ? escapeText(value) : showTime(ms);
  }
  if (typeof value === 'number' || typeof value === 'bigint') return showNumber(value, name);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return value.map((each: unknown) => showValue(each, name)).join(', ');
  if (!isFields(value)) return '';
  return Object.entries(value)
    .filter(([, each]) => each !== undefined)
    .map(([key, each]) => `${escapeText(key)} ${isFields(each) ? `(${showValue(each, key)})` : showValue(each, key)}`)
    .join(', ');
}

const wide =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/u;
const graphemes = new Intl.Segmenter();
const isAscii = /^[\u0020-\u007e]*$/;

const widthOfGrapheme = (grapheme: string): number => (wide.test(grapheme) ? 2 : /^\p{M}/u.test(grapheme) ? 0 : 1);

/** Columns of a terminal that a text takes. */
export function widthOf(text: string): number {
  if (isAscii.test(text)) return text.length;
  return [...graphemes.segment(text)].reduce((width, { segment }) => width + widthOfGrapheme(segment), 0);
}

/** Lays a text out in lines of so many columns at most, cut at spaces; a word that is longer has a line of its own. */
export function wrapText(text: string, columns: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line === undefined || widthOf(line) + 1 + widthOf(word) > columns) lines.push(word);
    else lines[lines.length - 1] = `${line} ${word}`;
  }
  return lines;
}

/** Cuts a text to so many columns; an ellipsis says that there is more. */
export function cutText(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text;
  let [kept, width] = ['', 0];
  for (const { segment } of graphemes.segment(text)) {
    width += widthOfGrapheme(segment);
    if (width > columns - 1) break;
    kept += segment;
  }
  return `${kept}…`;
}
