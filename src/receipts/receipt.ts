/**
 * Receipts: a client's proof that its request, with its events, was acknowledged.
 *
 * In: the lines of a request whose client asks for a receipt, and the sequence of its message. Out: a receipt
 * in the response, which verifies on its own, and by which its events are found in a lake.
 * Invariant: a changed receipt does not verify: each member is in its leaf, in the path, or signed. A receipt is made
 * only after the PubAck of its group.
 * Crash: no receipt is stored here; the keys that sign are in the data folder (receipt-keys.ts).
 */
import { randomBytes, sign, verify, type KeyObject } from 'node:crypto';
import type { ImportMethod, Platform } from '../datasets/field-schema.ts';
import { toPublicKey } from '../runtime/encrypted-text.ts';
import { digestEvent, parseRenderedLines } from './event-digest.ts';
import { buildTree, followPath, hashLeaf } from './merkle-tree.ts';

export interface ReceiptEvent {
  readonly eventId: string;
  /** Digest under the receipt's salt (event-digest.ts), hex. */
  readonly sha256: string;
}

/** The content of a request: its leaf, as JSON without spaces. */
export interface ReceiptStatement {
  readonly receiptVersion: 1;
  readonly idApp: number;
  readonly method: ImportMethod;
  readonly platform: Platform;
  readonly receivedAt: string;
  /** 16 random bytes, hex. */
  readonly salt: string;
  readonly events: readonly ReceiptEvent[];
}

/** The message of a group commit. It is signed as JSON without spaces, with the root of its leaves and the key. */
interface GroupPosition {
  readonly stream: string;
  readonly sequence: number;
  readonly storedAt: string;
  /** Number of leaves: requests of the group with a receipt. */
  readonly requests: number;
}

interface ReceiptGroup extends GroupPosition {
  readonly index: number;
  readonly path: readonly string[];
  readonly key: string;
  readonly signature: string;
}

export interface Receipt extends ReceiptStatement {
  readonly group: ReceiptGroup;
}

export interface ReceiptKey {
  readonly key: string;
  readonly privateKey: KeyObject;
}

interface ReceiptRequest {
  readonly idApp: number;
  readonly platform: Platform;
  readonly method: ImportMethod;
  readonly receivedAtMs: number;
  readonly lines: Buffer;
}

export function createReceiptStatement(request: ReceiptRequest): ReceiptStatement {
  const { idApp, method, platform, receivedAtMs, lines } = request;
  const salt = randomBytes(16).toString('hex');
  return {
    receiptVersion: 1,
    idApp,
    method,
    platform,
    receivedAt: new Date(receivedAtMs).toISOString(),
    salt,
    events: parseRenderedLines(lines).map((values) => ({
      eventId: values.event_id,
      sha256: digestEvent(salt, values),
    })),
  };
}

function renderStatement({ idApp, method, platform, receivedAt, salt, events }: ReceiptStatement): string {
  const eventHashes = events.map(({ eventId, sha256 }) => ({ eventId, sha256 }));
  return JSON.stringify({ receiptVersion: 1, idApp, method, platform, receivedAt, salt, events: eventHashes });
}

function renderPosition({ stream, sequence, storedAt, requests }: GroupPosition, root: Buffer, key: string): Buffer {
  const signed = { receiptVersion: 1, stream, sequence, storedAt, requests, root: root.toString('hex'), key };
  return Buffer.from(JSON.stringify(signed));
}

/** Returns the receipts of a group's requests, in their order, with one signature. */
export function signGroup(
  receiptStatements: readonly ReceiptStatement[],
  where: Omit<GroupPosition, 'requests'>,
  { key, privateKey }: ReceiptKey,
): Receipt[] {
  const { stream, sequence, storedAt } = where;
  const place = { stream, sequence, storedAt, requests: receiptStatements.length };
  const { root, pathOf } = buildTree(
    receiptStatements.map((receiptStatement) => hashLeaf(renderStatement(receiptStatement))),
  );
  const signature = sign(undefined, renderPosition(place, root, key), privateKey).toString('hex');
  return receiptStatements.map((receiptStatement, index) => {
    const group = { ...place, index, path: pathOf(index), key, signature };
    return { ...receiptStatement, group };
  });
}

/** Reports whether the path of a receipt leads to what its key has signed. */
export function isSigned({ group, ...statement }: Receipt): boolean {
  const { index, requests: size, path, key, signature } = group;
  const root = followPath(hashLeaf(renderStatement(statement)), { index, size, path });
  if (root === undefined) return false;
  return verify(undefined, renderPosition(group, root, key), toPublicKey(key), Buffer.from(signature, 'hex'));
}
