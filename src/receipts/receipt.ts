/**
 * Receipts: what a client keeps to show later that its request was acknowledged, and of what.
 *
 * In: the lines of a request whose client asks for one, and where the stream has the group that they came in. Out: a
 * receipt in the answer; verified with nothing but the receipt, and its events found again in a lake.
 * Invariant: nothing of a receipt can be changed and verify: each member is in its leaf, in the path, or signed. A
 * receipt is made after the PubAck of its group only.
 * Crash: nothing of a receipt rests here; the keys that sign are in the data folder (receipt-keys.ts).
 */
import { randomBytes, sign, verify, type KeyObject } from 'node:crypto';
import type { ImportMethod, Platform } from '../datasets/field-schema.ts';
import { toPublicKey } from '../runtime/sealed-text.ts';
import { digestEvent, readLines } from './event-digest.ts';
import { buildTree, followPath, hashLeaf } from './merkle-tree.ts';

/** One event of a receipt. */
export interface ReceiptEvent {
  readonly eventId: string;
  /** Its digest under the salt of the receipt (event-digest.ts), hex. */
  readonly sha256: string;
}

/** What a request was, as its receipt says: the leaf of the request, as JSON without spaces. */
export interface Statement {
  readonly receiptVersion: 1;
  readonly idApp: number;
  readonly method: ImportMethod;
  readonly platform: Platform;
  /** ISO 8601, to the millisecond. */
  readonly receivedAt: string;
  /** 16 random bytes, hex. */
  readonly salt: string;
  readonly events: readonly ReceiptEvent[];
}

/** Where a group is: what is signed, as JSON without spaces, with the root of its leaves and the key behind it. */
interface GroupPlace {
  /** The stream's id, with the time it was made. */
  readonly stream: string;
  /** The stream sequence of the group's message. */
  readonly sequence: number;
  /** When the stream had it, ISO 8601. */
  readonly storedAt: string;
  /** Requests of the group that have a receipt: the leaves. */
  readonly requests: number;
}

/** A group's place, the way to its root, and its signature. */
interface ReceiptGroup extends GroupPlace {
  /** Place of the request among those of the group, from 0. */
  readonly index: number;
  /** Hashes from the leaf to the root, hex. */
  readonly path: readonly string[];
  /** The public key, hex. */
  readonly key: string;
  /** Of Ed25519, hex. */
  readonly signature: string;
}

/** A receipt, as the answer to an import has it. */
export interface Receipt extends Statement {
  readonly group: ReceiptGroup;
}

/** A key that signs, and its public half, hex. */
export interface ReceiptKey {
  readonly key: string;
  readonly privateKey: KeyObject;
}

/** The request that a receipt is asked for. */
interface ReceiptRequest {
  readonly idApp: number;
  readonly platform: Platform;
  readonly method: ImportMethod;
  /** Unix milliseconds. */
  readonly receivedAtMs: number;
  /** Its rendered lines (NDJSON). */
  readonly lines: Buffer;
}

/** States what a request was. */
export function stateRequest(request: ReceiptRequest): Statement {
  const { idApp, method, platform, receivedAtMs, lines } = request;
  const salt = randomBytes(16).toString('hex');
  return {
    receiptVersion: 1,
    idApp,
    method,
    platform,
    receivedAt: new Date(receivedAtMs).toISOString(),
    salt,
    events: readLines(lines).map((values) => ({ eventId: values.event_id, sha256: digestEvent(salt, values) })),
  };
}

/** What is hashed and signed: each of its members, in this order. */
function renderStatement({ idApp, method, platform, receivedAt, salt, events }: Statement): string {
  const told = events.map(({ eventId, sha256 }) => ({ eventId, sha256 }));
  return JSON.stringify({ receiptVersion: 1, idApp, method, platform, receivedAt, salt, events: told });
}

function renderPlace({ stream, sequence, storedAt, requests }: GroupPlace, root: Buffer, key: string): Buffer {
  const signed = { receiptVersion: 1, stream, sequence, storedAt, requests, root: root.toString('hex'), key };
  return Buffer.from(JSON.stringify(signed));
}

/** Makes the receipts of a group's requests, by one signature, in their order. */
export function signGroup(
  statements: readonly Statement[],
  where: Omit<GroupPlace, 'requests'>,
  { key, privateKey }: ReceiptKey,
): Receipt[] {
  const { stream, sequence, storedAt } = where;
  const place = { stream, sequence, storedAt, requests: statements.length };
  const { root, pathOf } = buildTree(statements.map((statement) => hashLeaf(renderStatement(statement))));
  const signature = sign(undefined, renderPlace(place, root, key), privateKey).toString('hex');
  return statements.map((statement, index) => {
    const group = { ...place, index, path: pathOf(index), key, signature };
    return { ...statement, group };
  });
}

/** Says whether the path of a receipt leads to what its key has signed. */
export function isSigned({ group, ...statement }: Receipt): boolean {
  const { index, requests: size, path, key, signature } = group;
  const root = followPath(hashLeaf(renderStatement(statement)), { index, size, path });
  if (root === undefined) return false;
  return verify(undefined, renderPlace(group, root, key), toPublicKey(key), Buffer.from(signature, 'hex'));
}
