import type { ReceiptKeys } from '../receipts/receipt-keys.ts';
import { signGroup, stateRequest, type Receipt, type Statement } from '../receipts/receipt.ts';
import type { Clock } from '../runtime/clock.ts';
import type { PublishAck } from '../stream/stream.ts';
import type { ImportRequest } from './import-request.ts';

/** Says whether a request asks for a receipt: `Prefer: receipt` (RFC 7240), beside others or alone. */
function wantsReceipt({ headers }: ImportRequest['head']): boolean {
  const { prefer } = headers;
  return prefer !== undefined && /(?:^|,)\s*receipt\s*(?:[;,]|$)/i.test(String(prefer));
}

/** What the receipt of a request is to say, of its rendered lines; undefined: its client asks for none. */
export function findStatement(request: ImportRequest, lines: Buffer): Statement | undefined {
  const { head, method, app, receivedAtMs } = request;
  if (!wantsReceipt(head)) return undefined;
  return stateRequest({ idApp: app.idApp, platform: app.platform, method, receivedAtMs, lines });
}

/** Signs the receipts of a group that the stream has, each at the place of its member; those without one have none. */
export type SignReceipts = (
  group: readonly { readonly statement?: Statement | undefined }[],
  ack: PublishAck,
) => readonly (Receipt | undefined)[];

/** Creates the signer of one process. Without a key no receipt is given: what is stored is stored all the same. */
export function createReceiptSigner(keys: Pick<ReceiptKeys, 'current'>, clock: Clock): SignReceipts {
  return (group, { stream, streamId = stream, sequence }) => {
    const key = keys.current();
    if (key === undefined) return [];
    const storedAt = new Date(clock.nowMs()).toISOString();
    const statements = group.flatMap(({ statement }) => statement ?? []);
    const receipts = signGroup(statements, { stream: streamId, sequence, storedAt }, key).values();
    return group.map(({ statement }) => (statement === undefined ? undefined : receipts.next().value));
  };
}
