import { randomBytes } from 'node:crypto';
import { openStore } from './open-store.ts';
import { createRecords, type Codec, type RecordKind, type Records } from './records.ts';

const keyBytes = 32;

const hexCodec: Codec<Buffer> = {
  parse: (text) => (/^[0-9a-f]{64}$/.test(text.trim()) ? Buffer.from(text.trim(), 'hex') : undefined),
  render: (key) => `${key.toString('hex')}\n`,
};

const isKey = (key: unknown): key is Buffer => Buffer.isBuffer(key);

/** Opens the secret keys of a folder: 32 bytes each, as hexadecimal digits in `NAME.key`. */
export function openKeys(keysFolder: string, damaged: RecordKind<Buffer>['damaged']): Records<Buffer> {
  const kind = { isValid: isKey, damaged, codec: hexCodec, ending: '.key' };
  return createRecords(openStore(keysFolder), kind);
}

export function newKey(): Buffer {
  return randomBytes(keyBytes);
}

/** Creates a record unless there is one, damaged or not. Concurrent processes all get the same one. */
export async function ensureRecord<T>(records: Records<T>, id: string, create: () => T): Promise<void> {
  if (!(await records.ids()).includes(id)) await records.create(id, create());
}

/** Reads a key; creates it on first use. */
export async function ensureKey(keys: Records<Buffer>, name: string): Promise<Buffer> {
  await ensureRecord(keys, name, newKey);
  return (await keys.get(name)) ?? (await ensureKey(keys, name));
}
