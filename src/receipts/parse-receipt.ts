import { platforms } from '../datasets/field-schema.ts';
import { AppError } from '../runtime/errors.ts';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import { isCount, listOf, matching, oneOf, shapeOf, type ShapeCheck } from '../runtime/store/shape.ts';
import { isSigned, type Receipt, type ReceiptEvent } from './receipt.ts';

const isHash = matching(/^[0-9a-f]{64}$/);
const isTime = matching(/^\d{4,6}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

/** Matches an object with exactly these members: no signature covers others. */
function exactly<T>(members: { readonly [Member in keyof Required<T>]: ShapeCheck }) {
  const hasShape = shapeOf<T>(members);
  return (value: unknown): value is T =>
    hasShape(value) && Object.keys(membersOf(value)).length === Object.keys(members).length;
}

const isReceipt = exactly<Receipt>({
  receiptVersion: (value) => value === 1,
  idApp: isCount,
  method: matching(/^[A-Za-z]+$/),
  platform: oneOf(platforms),
  receivedAt: isTime,
  salt: matching(/^[0-9a-f]{32}$/),
  events: listOf(
    exactly<ReceiptEvent>({ eventId: matching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/), sha256: isHash }),
  ),
  group: exactly<Receipt['group']>({
    stream: (value) => typeof value === 'string' && value !== '',
    sequence: isCount,
    storedAt: isTime,
    requests: isCount,
    index: isCount,
    path: listOf(isHash),
    key: isHash,
    signature: matching(/^[0-9a-f]{128}$/),
  }),
});

const isAnswer = exactly<{ readonly message: 'Ok'; readonly receipt: Receipt }>({
  message: (value) => value === 'Ok',
  receipt: isReceipt,
});

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
  const receipt = isAnswer(value) ? value.receipt : value;
  if (!isReceipt(receipt)) throw refuse('has an unknown format');
  if (isAmbiguous(text, value)) throw refuse('has a duplicate member or a non-canonical value');
  const { key } = receipt.group;
  if (trusted?.includes(key) === false)
    throw refuse(
      `is signed by an unknown key, ${key}`,
      'Compare it with your saved public keys of the service, and pass it as --key only if it is one of them.',
    );
  if (!isSigned(receipt)) throw refuse('does not match its signature');
  return receipt;
}
