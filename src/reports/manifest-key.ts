import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import path from 'node:path';
import type { Problem } from '../runtime/conditions/problem.ts';
import type { Logger } from '../runtime/logger.ts';
import { createFolderStore } from '../runtime/store/folder-store.ts';
import { ensureRecord } from '../runtime/store/keys.ts';
import { createRecords } from '../runtime/store/records.ts';
import { shapeOf } from '../runtime/store/shape.ts';

/** The key that signs manifests, reloaded within a second of a change. */
export interface ManifestKey {
  /** Undefined if it cannot be read. */
  current(): KeyObject | undefined;
  problems(): readonly Problem[];
  close(): void;
}

interface KeyRecord {
  /** PKCS8, PEM. */
  readonly privateKey: string;
}

const hint =
  'Restore it from a backup, or remove it and start the service again: a new key then signs manifests, and earlier ones verify with the old public key.';
const keyId = 'manifests';
const kind = {
  isValid: shapeOf<KeyRecord>({ privateKey: (pem) => createPrivateKey(String(pem)).type === 'private' }),
  damaged: { code: 'file_damaged', what: 'the key that signs manifests', hint },
} as const;

/** Returns the path of the key file: JSON, mode 0600. */
export function manifestKeyPath(keysDir: string): string {
  return path.join(keysDir, `${keyId}.json`);
}

/**
 * Opens the private Ed25519 key, and creates it on first use. If manifests were signed before (`isInUse`), a new key is
 * logged as a warning. An unreadable key is a problem, and no manifest is sent meanwhile.
 */
export async function openManifestKey(keysDir: string, logger: Logger, isInUse = false): Promise<ManifestKey> {
  const records = createRecords(createFolderStore(keysDir), kind);
  await ensureRecord(records, keyId, () => {
    const file = manifestKeyPath(keysDir);
    if (isInUse) logger.warn({ file }, 'the key of manifests is gone: a new one signs them from now on');
    const { privateKey } = generateKeyPairSync('ed25519');
    return { privateKey: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
  });
  const watched = await records.watch(keyId, (record) => createPrivateKey(record?.privateKey ?? ''), logger);
  return {
    current: () => watched.current(),
    problems() {
      const why = watched.problem();
      const effect =
        watched.current() === undefined ? 'no manifest is given' : 'no manifest is given after the next start';
      return why === undefined ? [] : [{ code: 'manifest_key_unreadable', what: `${effect}: ${why}`, todo: hint }];
    },
    close: () => watched.close(),
  };
}
