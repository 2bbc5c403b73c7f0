import type { ReceiptKeys } from '../receipts/receipt-keys.ts';
import { signGroup, createReceiptStatement, type Receipt, type ReceiptStatement } from '../receipts/receipt.ts';
import type { Clock } from '../runtime/clock.ts';
import type { PublishAck } from '../stream/stream.ts';
import type { ImportRequest } from './import-request.ts';

/** Returns the content of a request's receipt; undefined unless it asks for one by `Prefer: receipt` (RFC 7240). */
export function createStatementIfRequested(
  { head, method, app, receivedAtMs }: ImportRequest,
  lines: Buffer,
): ReceiptStatement | undefined {
  const { prefer } = head.headers;
  if (prefer === undefined || !/(?:^|,)\s*receipt\s*(?:[;,]|$)/i.test(String(prefer))) return undefined;
  return createReceiptStatement({ idApp: app.idApp, platform: app.platform, method, receivedAtMs, lines });
}

/** Signs the receipts of a stored group, in the order of its members; members without a statement get none. */
export type SignReceipts = (
  group: readonly { readonly receiptStatement?: ReceiptStatement | undefined }[],
  ack: PublishAck,
) => readonly (Receipt | undefined)[];

/** Creates the signer of one process. Without a key it gives no receipts. */
export function createReceiptSigner(keys: Pick<ReceiptKeys, 'current'>, clock: Clock): SignReceipts {
  return (group, { stream, streamId = stream, sequence }) => {
    const key = keys.current();
    if (key === undefined) return [];
    const storedAt = new Date(clock.nowMs()).toISOString();
    const receiptStatements = group.flatMap(({ receiptStatement }) => receiptStatement ?? []);
    const receipts = signGroup(receiptStatements, { stream: streamId, sequence, storedAt }, key).values();
    return group.map(({ receiptStatement }) => (receiptStatement === undefined ? undefined : receipts.next().value));
  };
}
