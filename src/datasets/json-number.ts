/** Numbers of RFC 8259: no leading zeros, plus sign, spaces, hexadecimal or infinities. */
const jsonNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
export const jsonNumberPattern = jsonNumber.source;
/** No integer field is longer; limits the cost of exponents. */
const maxIntegerDigits = 40;

/** Parses a number of JSON; undefined for other texts. `1e999` is infinite. */
export function parseJsonNumber(text: string): number | undefined {
  return jsonNumber.test(text) ? Number(text) : undefined;
}

/**
 * Returns the exact value of a JSON number (`12`, `0.5000`, `1.50e1`) as digits with a point, without needless zeros;
 * undefined with more decimal places than `places`, beyond 40 digits, and for other texts.
 */
export function parseJsonDecimal(text: string, places: number): string | undefined {
  const parts = /^(?<sign>-?)(?<whole>0|[1-9]\d*)(?:\.(?<fraction>\d+))?(?:[eE](?<exponent>[+-]?\d+))?$/.exec(
    text,
  )?.groups;
  if (parts === undefined) return undefined;
  const fraction = parts['fraction'] ?? '';
  const digits = `${parts['whole']}${fraction}`.replace(/^0+/, '');
  if (digits === '') return '0';
  const significant = digits.replace(/0+$/, '');
  const scale = fraction.length - (digits.length - significant.length) - Number(parts['exponent'] ?? 0);
  if (scale > places || significant.length - Math.min(0, scale) > maxIntegerDigits) return undefined;
  if (scale <= 0) return `${parts['sign']}${significant}${'0'.repeat(-scale)}`;
  const padded = significant.padStart(scale + 1, '0');
  return `${parts['sign']}${padded.slice(0, -scale)}.${padded.slice(-scale)}`;
}

/** A sum of binary floats is less than `1 / 10 ** floatPlaces` off its decimal. */
const floatPlaces = 9;

/** Parses as `parseJsonDecimal`, or returns the number of `places` that is at most 1e-9 away (3.3000000000000003). */
export function parseFloatDecimal(text: string, places: number): string | undefined {
  const exact = parseJsonDecimal(text, places);
  if (exact !== undefined || !jsonNumber.test(text)) return exact;
  const parts = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d{1,4}))?$/.exec(text);
  if (parts === null) return undefined;
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = parts;
  const scale = fraction.length - Number(exponent);
  const digits = BigInt(whole + fraction);
  const unit = 10n ** BigInt(Math.max(0, scale - places));
  const nearest = (digits + unit / 2n) / unit;
  const distance = digits > nearest * unit ? digits - nearest * unit : nearest * unit - digits;
  const isNear = scale > places && distance * 10n ** BigInt(floatPlaces) <= 10n ** BigInt(scale);
  return isNear ? parseJsonDecimal(`${nearest === 0n ? '' : sign}${nearest}e-${places}`, places) : undefined;
}

/** Returns the exact digits of a JSON integer; undefined for fractions, other texts, and beyond 40 digits. */
export function parseJsonInteger(text: string): string | undefined {
  return parseJsonDecimal(text, 0);
}

/** A JSON text, and the number that it names, if any. */
const textAndNumber = /("(?:[^"\\]|\\.)*")(?:(\s*:\s*)(-?\d[\d.eE+-]*))?/g;

/** Quotes the numbers of the members, digit by digit: a parser would make doubles of them. `json` is valid. */
export function quoteNumbers(json: string, members: ReadonlySet<string>): string {
  return json.replaceAll(textAndNumber, (all, name: string, colon?: string, number?: string) =>
    colon !== undefined && members.has(JSON.parse(name)) ? `${name}${colon}"${number}"` : all,
  );
}
