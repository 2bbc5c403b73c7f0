import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import path from 'node:path';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { createExclusive, ensureFolder, findTextFile } from '../runtime/files/durable-file.ts';
import { AppError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';

/** Path of the file of the key that signs manifests: JSON, mode 0600. */
export function manifestKeyPath(keysDir: string): string {
  return path.join(keysDir, 'manifests.json');
}

function parseKey(file: string, text: string): KeyObject {
  try {
    return createPrivateKey(String(parseChecked(text)['privateKey']));
  } catch (error) {
    throw new AppError('file_damaged', `${file} does not hold the key that signs manifests`, {
      cause: error,
      hint: 'Restore it from a backup, or remove it: manifests are then signed by a new key, and those of before verify with the old public one.',
    });
  }
}

/**
 * Opens the private Ed25519 key, and makes it on first use. Of two processes that make it at once both get that of one.
 * Where manifests were signed already (`isInUse`), a new one is logged as a warning: it is not the one that their readers
 * have noted. Errors: `file_damaged`.
 */
export async function openManifestKey(keysDir: string, logger: Logger, isInUse = false): Promise<KeyObject> {
  const file = manifestKeyPath(keysDir);
  const found = await findTextFile(file);
  if (found !== undefined) return parseKey(file, found);
  if (isInUse) logger.warn({ file }, 'the key of manifests is gone: a new one signs them from now on');
  const { privateKey } = generateKeyPairSync('ed25519');
  await ensureFolder(keysDir);
  const pem = privateKey.export({ type: 'pkcs8', format: 'pem' });
  if ((await createExclusive(file, renderChecked({ privateKey: pem }))) === 'created') return privateKey;
  return parseKey(file, (await findTextFile(file)) ?? '');
}
