/** RFC 8259's grammar of a number: no leading zeros, plus sign, spaces, hexadecimal or infinities. */
const jsonNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
/** The same grammar, for a JSON Schema. */
export const jsonNumberPattern = jsonNumber.source;
/** No integer field is longer; a larger exponent would only cost memory. */
const maxIntegerDigits = 40;

/**
 * The number that a text writes in JSON's grammar; undefined when it writes none. May be infinite: `1e999` is in the
 * grammar.
 */
export function parseJsonNumber(text: string): number | undefined {
  return jsonNumber.test(text) ? Number(text) : undefined;
}

/**
 * The exact value of a number written in JSON's grammar (`12`, `0.5000`, `1.50e1`) as digits with a point, without
 * needless zeros; undefined for one with more decimal places than `places`, for anything else, and beyond 40 digits.
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

/** A sum of binary floats is off by less than this from the decimal that was meant: `1 / 10 ** floatPlaces`. */
const floatPlaces = 9;

/**
 * Reads a decimal as `parseJsonDecimal` does, or, if it has more decimal places, as the number of `places` that is at
 * most 1e-9 away: programs that compute in binary floats write 3.3000000000000003 for 3.3. Undefined without one.
 */
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

/**
 * The exact digits of an integer written in JSON's grammar (`12`, `1.50e1`), without the loss of a double; undefined
 * for fractions, for anything else, and beyond 40 digits.
 */
export function parseJsonInteger(text: string): string | undefined {
  return parseJsonDecimal(text, 0);
}

/** A text of JSON, and behind it, where it is a name, the number that it names. */
const textAndNumber = /("(?:[^"\\]|\\.)*")(?:(\s*:\s*)(-?\d[\d.eE+-]*))?/g;

/**
 * Writes the numbers of some members as texts, digit by digit as they stand: a parser would make doubles of them. `json`
 * is valid.
 */
export function quoteNumbers(json: string, members: ReadonlySet<string>): string {
  return json.replaceAll(textAndNumber, (all, name: string, colon?: string, number?: string) =>
    colon !== undefined && members.has(JSON.parse(name) as string) ? `${name}${colon}"${number}"` : all,
  );
}
