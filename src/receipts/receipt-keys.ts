import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import path from 'node:path';
import type { Clock } from '../runtime/clock.ts';
import { publicKeyHex } from '../runtime/ed25519.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { AppError, describeError } from '../runtime/errors.ts';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { createExclusive, ensureFolder, findTextFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import { findTextFileSync } from '../runtime/files/text-file.ts';
import { watchOptionalFile } from '../runtime/files/watched-file.ts';
import type { Logger } from '../runtime/logger.ts';
import type { ReceiptKey } from './receipt.ts';

/**
 * The keys of receipts at rest: one that signs, and the public halves of those before it, for ever, since a receipt has
 * no end. A key of its own: processes that strangers talk to hold it, and they have no need of that of the manifests.
 */
export interface ReceiptKeys {
  /** The key that signs; undefined: there is none, and no receipt is given. */
  current(): ReceiptKey | undefined;
  /** Every public key, hex, the one that signs last. */
  known(): readonly string[];
  /** What an operator should look at: keys that cannot be read. */
  notices(): readonly Problem[];
  close(): void;
}

interface KeyRecord {
  /** The public half, hex. */
  readonly key: string;
  readonly createdMs: number;
  /** PKCS8, PEM: of the last one only. */
  readonly privateKey?: string;
}

interface KeyFile {
  readonly current: ReceiptKey;
  readonly known: readonly string[];
  readonly records: readonly KeyRecord[];
}

const lockWaitMs = 5000;

/** Path of the file of the keys: JSON, mode 0600. */
export function receiptKeysPath(keysDir: string): string {
  return path.join(keysDir, 'receipts.json');
}

function isRecord(value: unknown): value is KeyRecord {
  const { key, createdMs } = (value ?? {}) as Partial<KeyRecord>;
  return /^[0-9a-f]{64}$/.test(String(key)) && Number.isSafeInteger(createdMs);
}

function parseKeys(file: string, text: string): KeyFile {
  let cause: unknown;
  try {
    const { keys: records } = parseChecked(text);
    if (Array.isArray(records) && records.every(isRecord)) {
      const last = records.at(-1);
      const privateKey: KeyObject = createPrivateKey(last?.privateKey ?? '');
      const current = { key: publicKeyHex(privateKey), privateKey };
      if (current.key === last?.key) return { current, known: records.map(({ key }) => key), records };
    }
  } catch (error) {
    cause = error;
  }
  throw new AppError('record_damaged', `${file} does not hold the keys of receipts`, {
    cause,
    hint: 'Restore it from a backup, or remove it and start the service again: receipts are then signed by a new key, and those of before verify with the public keys that were noted.',
  });
}

function newRecord(clock: Clock): KeyRecord {
  const { privateKey } = generateKeyPairSync('ed25519');
  const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  return { key: publicKeyHex(privateKey), createdMs: clock.nowMs(), privateKey: pem };
}

/** Makes the first key where there is none. Of several processes that make it at once all get that of one. */
async function ensureKeys(keysDir: string, clock: Clock): Promise<void> {
  const file = receiptKeysPath(keysDir);
  if ((await findTextFile(file)) !== undefined) return;
  await ensureFolder(keysDir);
  await createExclusive(file, renderChecked({ keys: [newRecord(clock)] }));
}

/**
 * Makes a new key that signs from now on, in a running service within a second. Of those before it the private half is
 * gone, and the public one stays. Durable when it returns. Errors: `record_damaged`.
 */
export async function rotateReceiptKey(
  keysDir: string,
  clock: Clock,
): Promise<{ readonly key: string; readonly retired: readonly string[] }> {
  await ensureFolder(keysDir);
  const file = receiptKeysPath(keysDir);
  const lock = await waitForLock(keysDir, 'a change of the keys of receipts', lockWaitMs);
  try {
    const text = await findTextFile(file);
    const before = text === undefined ? [] : parseKeys(file, text).records;
    const retired = before.map(({ key, createdMs }) => ({ key, createdMs }));
    const record = newRecord(clock);
    await writeFileDurably(file, renderChecked({ keys: [...retired, record] }));
    return { key: record.key, retired: retired.map(({ key }) => key) };
  } finally {
    lock.release();
  }
}

function describeTrouble(why: string, isSigning: boolean): Problem {
  return {
    code: 'receipt_keys_unreadable',
    what: `the keys of receipts cannot be read, ${isSigning ? 'those read last stay in force' : 'imports are answered without receipts'}: ${why}`,
    todo: 'Restore keys/receipts.json from a backup, or remove it and start the service again, which makes a new key.',
  };
}

/** Every public key of a data folder, hex; none where it has made no receipt yet. Errors: `record_damaged`. */
export async function findReceiptKeys(keysDir: string): Promise<readonly string[]> {
  const file = receiptKeysPath(keysDir);
  const text = await findTextFile(file);
  return text === undefined ? [] : parseKeys(file, text).known;
}

/**
 * Opens the keys, and makes the first one. Throws nothing: without a key import goes on, and gives no receipts. A file
 * that cannot be read later is logged, and the last good keys stay.
 */
export async function openReceiptKeys(keysDir: string, clock: Clock, logger: Logger): Promise<ReceiptKeys> {
  const file = receiptKeysPath(keysDir);
  await ensureKeys(keysDir, clock).catch((error: unknown) =>
    logger.error({ file, error: describeError(error) }, 'no key of receipts could be made'),
  );
  const watched = watchOptionalFile(file, () => parseKeys(file, findTextFileSync(file) ?? ''), logger);
  return {
    current: () => watched.current()?.current,
    known: () => watched.current()?.known ?? [],
    notices() {
      const why = watched.problem();
      return why === undefined ? [] : [describeTrouble(why, watched.current() !== undefined)];
    },
    close: () => watched.close(),
  };
}
