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
 * The exact digits of an integer written in JSON's grammar (`12`, `1.50e1`), without the loss of a double; undefined
 * for fractions, for anything else, and beyond 40 digits.
 */
export function parseJsonInteger(text: string): string | undefined {
  const parts = /^(?<sign>-?)(?<whole>0|[1-9]\d*)(?:\.(?<fraction>\d+))?(?:[eE](?<exponent>[+-]?\d+))?$/.exec(
    text,
  )?.groups;
  if (parts === undefined) return undefined;
  const fraction = parts['fraction'] ?? '';
  const digits = `${parts['whole']}${fraction}`.replace(/^0+/, '');
  if (digits === '') return '0';
  const significant = digits.replace(/0+$/, '');
  const zeros = digits.length - significant.length - fraction.length + Number(parts['exponent'] ?? 0);
  if (zeros < 0 || significant.length + zeros > maxIntegerDigits) return undefined;
  return `${parts['sign']}${significant}${'0'.repeat(zeros)}`;
}
