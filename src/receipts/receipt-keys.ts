import { createPrivateKey, generateKeyPairSync } from 'node:crypto';
import path from 'node:path';
import type { Clock } from '../runtime/clock.ts';
import { publicKeyHex } from '../runtime/encrypted-text.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { ensureRecord } from '../runtime/store/keys.ts';
import { createRecords, type Records } from '../runtime/store/records.ts';
import { isInteger, isText, listOf, matching, optional, shapeOf } from '../runtime/store/shape.ts';
import type { ReceiptKey } from './receipt.ts';

interface KeyRecord {
  readonly key: string;
  readonly createdMs: number;
  /** PKCS8, PEM; absent from all keys but the last. */
  readonly privateKey?: string;
}

interface KeyFile {
  readonly keys: readonly KeyRecord[];
}

const keysId = 'receipts';
const isRecord = shapeOf<KeyRecord>({
  key: matching(/^[0-9a-f]{64}$/),
  createdMs: isInteger,
  privateKey: optional(isText),
});
const openRecords = (keysDir: string): Records<KeyFile> =>
  createRecords(openStore(keysDir), {
    isValid: shapeOf<KeyFile>({
      keys: (keys) => listOf(isRecord)(keys) && signing({ keys }).key === keys.at(-1)?.key,
    }),
    damaged: {
      code: 'record_damaged',
      what: 'the receipt keys',
      hint: 'Restore it from a backup; or remove it and restart the service, which creates a new key. Earlier receipts then verify only with saved public keys.',
    },
  });

export function receiptKeysPath(keysDir: string): string {
  return path.join(keysDir, `${keysId}.json`);
}

/** Returns the key that signs. Throws if it is not a private key. */
function signing({ keys }: KeyFile): ReceiptKey {
  const privateKey = createPrivateKey(keys.at(-1)?.privateKey ?? '');
  return { key: publicKeyHex(privateKey), privateKey };
}

const publicKeys = ({ keys }: KeyFile): readonly string[] => keys.map(({ key }) => key);

const loadKeys = (file: KeyFile = { keys: [] }) => ({ current: signing(file), known: publicKeys(file) });

function newRecord(clock: Clock): KeyRecord {
  const { privateKey } = generateKeyPairSync('ed25519');
  const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  return { key: publicKeyHex(privateKey), createdMs: clock.nowMs(), privateKey: pem };
}

/**
 * Creates a new signing key, which a running service uses within a second. Of earlier keys only the public halves stay.
 * Durable when it returns. Error: `record_damaged`.
 */
export async function rotateReceiptKey(
  keysDir: string,
  clock: Clock,
): Promise<{ readonly key: string; readonly retired: readonly string[] }> {
  const record = newRecord(clock);
  const after = await openRecords(keysDir).change(keysId, (before) => ({
    keys: [...(before?.keys ?? []).map(({ key, createdMs }) => ({ key, createdMs })), record],
  }));
  return { key: record.key, retired: after === undefined ? [] : publicKeys(after).slice(0, -1) };
}

function describeProblem(why: string, isSigning: boolean): Problem {
  return {
    code: 'receipt_keys_unreadable',
    message: `cannot read the receipt keys, ${isSigning ? 'keeping the last valid keys' : 'imports return no receipts'}: ${why}`,
    action:
      'Restore keys/receipts.json from a backup. Otherwise remove it and restart the service, which creates a new key: earlier receipts then need a saved public key.',
  };
}

/** Returns every public key of a data folder, hex. Error: `record_damaged`. */
export async function findReceiptKeys(keysDir: string): Promise<readonly string[]> {
  const known = await openRecords(keysDir).get(keysId);
  return known === undefined ? [] : publicKeys(known);
}

export type ReceiptKeys = Awaited<ReturnType<typeof openReceiptKeys>>;

/**
 * Opens the keys of receipts, and creates the first one. The newest key signs. Public halves of earlier keys stay
 * permanently, since a receipt never expires. Manifests have other keys, because import processes hold these. Never
 * throws: without a key, imports return no receipts. If a later read of the file fails, the last valid keys stay.
 */
export async function openReceiptKeys(keysDir: string, clock: Clock, logger: Logger) {
  const records = openRecords(keysDir);
  await ensureRecord(records, keysId, () => ({ keys: [newRecord(clock)] })).catch((error: unknown) =>
    logger.error({ file: receiptKeysPath(keysDir), error: describeError(error) }, 'cannot create the receipt key'),
  );
  const watched = await records.watch(keysId, loadKeys, logger);
  return {
    current: (): ReceiptKey | undefined => watched.current()?.current,
    /** Returns every public key, hex, the signing one last. */
    known: (): readonly string[] => watched.current()?.known ?? [],
    notices(): readonly Problem[] {
      const why = watched.problem();
      return why === undefined ? [] : [describeProblem(why, watched.current() !== undefined)];
    },
    close: () => watched.close(),
  };
}
