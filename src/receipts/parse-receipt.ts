import { platforms } from '../datasets/event-kinds.ts';
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

/** An object with these members and no other: a further one would be covered by no signature. */
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

/** The answer of an import, whole. */
const isAnswer = objectOf({ message: (value) => value === 'Ok', receipt: isReceipt });

function refuse(why: string): AppError {
  return new AppError('receipt_invalid', `the receipt ${why}`, {
    hint: 'Give it as it was in the answer of the import. If that is what it is, do not trust it.',
  });
}

/**
 * Reads a receipt, or the whole answer that it came in, and verifies its path and its signature, by the key that it
 * names; by none but those `trusted` (hex) where some are given. Spaces and the order of members do not matter. Error:
 * `receipt_invalid`.
 */
export function parseReceipt(text: string, trusted?: readonly string[]): Receipt {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw refuse('is not JSON');
  }
  if (isAnswer(value)) value = (value as { readonly receipt: unknown }).receipt;
  if (!isReceipt(value)) throw refuse('is none that this version understands');
  const receipt = value as Receipt;
  const { key } = receipt.group;
  if (trusted?.includes(key) === false) throw refuse(`was signed by another key, ${key}`);
  if (!isSigned(receipt)) throw refuse('is not what was signed');
  return receipt;
}
