import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import path from 'node:path';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { createExclusive, ensureFolder } from '../runtime/files/durable-file.ts';
import { AppError } from '../runtime/errors.ts';
import { findTextFileSync } from '../runtime/files/text-file.ts';
import { watchOptionalFile } from '../runtime/files/watched-file.ts';
import type { Logger } from '../runtime/logger.ts';

/** The key that signs manifests, renewed from its file within a second of a change. */
export interface ManifestKey {
  /** Undefined: it cannot be read. */
  current(): KeyObject | undefined;
  problems(): readonly Problem[];
  close(): void;
}

const keyHint =
  'Restore it from a backup, or remove it and start the service again: a new key then signs manifests, and earlier ones verify with the old public key.';

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
      hint: keyHint,
    });
  }
}

/**
 * Opens the private Ed25519 key, and makes it on first use. Of two processes that make it at once both get that of one.
 * Where manifests were signed already (`isInUse`), a new one is logged as a warning: it is not the one that their readers
 * have noted. A key that cannot be read is a problem, and no manifest is given until it can.
 */
export async function openManifestKey(keysDir: string, logger: Logger, isInUse = false): Promise<ManifestKey> {
  const file = manifestKeyPath(keysDir);
  await ensureFolder(keysDir);
  if (findTextFileSync(file) === undefined) {
    if (isInUse) logger.warn({ file }, 'the key of manifests is gone: a new one signs them from now on');
    const pem = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' });
    await createExclusive(file, renderChecked({ privateKey: pem }));
  }
  const watched = watchOptionalFile(file, () => parseKey(file, findTextFileSync(file) ?? ''), logger);
  return {
    current: () => watched.current(),
    problems() {
      const why = watched.problem();
      const effect =
        watched.current() === undefined ? 'no manifest is given' : 'no manifest is given after the next start';
      return why === undefined ? [] : [{ code: 'manifest_key_unreadable', what: `${effect}: ${why}`, todo: keyHint }];
    },
    close: () => watched.close(),
  };
}
