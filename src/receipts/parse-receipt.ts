import { platforms } from '../datasets/field-schema.ts';
import { AppError } from '../runtime/errors.ts';
import { isSigned, type Receipt } from './receipt.ts';

type Rule = (value: unknown) => boolean;

const matches =
  (pattern: RegExp): Rule =>
  (value) =>
    typeof value === 'string' && pattern.test(value);
const isCount: Rule = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
const isHash = matches(/^[0-9a-f]{64}$/);
const isTime = matches(/^\d{4,6}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
const listOf =
  (rule: Rule): Rule =>
  (value) =>
    Array.isArray(value) && value.every(rule);

/** Matches an object with exactly these members: no signature covers others. */
const objectOf =
  (members: Readonly<Record<string, Rule>>): Rule =>
  (value) =>
    typeof value === 'object' &&
    value !== null &&
    Object.keys(value).length === Object.keys(members).length &&
    Object.entries(members).every(([name, rule]) => rule((value as Readonly<Record<string, unknown>>)[name]));

const isReceipt = objectOf({
  receiptVersion: (value) => value === 1,
  idApp: isCount,
  method: matches(/^[A-Za-z]+$/),
  platform: (value) => platforms.some((platform) => platform === value),
  receivedAt: isTime,
  salt: matches(/^[0-9a-f]{32}$/),
  events: listOf(objectOf({ eventId: matches(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/), sha256: isHash })),
  group: objectOf({
    stream: (value) => typeof value === 'string' && value !== '',
    sequence: isCount,
    storedAt: isTime,
    requests: isCount,
    index: isCount,
    path: listOf(isHash),
    key: isHash,
    signature: matches(/^[0-9a-f]{128}$/),
  }),
});

const isAnswer = objectOf({ message: (value) => value === 'Ok', receipt: isReceipt });

/**
 * Reports whether a JSON text repeats a member, or writes a value in an unusual way: two readers of it may see
 * different receipts. Spaces are allowed.
 */
function isAmbiguous(text: string, value: unknown): boolean {
  return text.replaceAll(/("(?:[^"\\]|\\.)*")|\s+/g, '$1').length !== JSON.stringify(value).length;
}

const asItWas = 'Pass the receipt exactly as the import returned it. If you did, do not trust it.';

function refuse(why: string, hint = asItWas): AppError {
  return new AppError('receipt_invalid', `the receipt ${why}`, { hint });
}

/**
 * Parses a receipt, or the response with it, and verifies its path and its signature by the key that it names, which
 * must be one of `trusted` (hex) if given. Spaces and the order of members do not matter. Error: `receipt_invalid`.
 */
export function parseReceipt(text: string, trusted?: readonly string[]): Receipt {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw refuse('is not JSON');
  }
  const found = isAnswer(value) ? (value as { readonly receipt: unknown }).receipt : value;
  if (!isReceipt(found)) throw refuse('has an unknown format');
  if (isAmbiguous(text, value)) throw refuse('has a duplicate member or a non-canonical value');
  const receipt = found as Receipt;
  const { key } = receipt.group;
  if (trusted?.includes(key) === false)
    throw refuse(
      `is signed by an unknown key, ${key}`,
      'Compare it with your saved public keys of the service, and pass it as --key only if it is one of them.',
    );
  if (!isSigned(receipt)) throw refuse('does not match its signature');
  return receipt;
}
