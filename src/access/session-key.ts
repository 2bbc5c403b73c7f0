import { createHash, randomBytes } from 'node:crypto';
import path from 'node:path';
import { createExclusive, ensureFolder, writeFileDurably } from '../runtime/files/durable-file.ts';
import { AppError } from '../runtime/errors.ts';
import { findTextFileSync } from '../runtime/files/text-file.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { watchOptionalFile } from '../runtime/files/watched-file.ts';
import type { Logger } from '../runtime/logger.ts';

/** The key that signs the console's sessions, renewed from its file within a second of a change. */
export interface SessionKey {
  /** Without a readable key: a random one that signs nothing that was given out. */
  current(): Buffer;
  /** Why nobody can sign in or is signed in, or stays so only until the service stops. */
  problems(): readonly Problem[];
  isReadable(): boolean;
  close(): void;
}

const keyBytes = 32;
const keyHint = "Restore it from a backup, or run 'tributary key sessions': everybody then signs in again.";

/** Path of the key: 64 hex digits, mode 0600. */
function sessionKeyPath(keysFolder: string): string {
  return path.join(keysFolder, 'sessions.key');
}

function renderKey(): string {
  return `${randomBytes(keyBytes).toString('hex')}\n`;
}

function readKey(file: string): Buffer {
  const text = findTextFileSync(file)?.trim() ?? '';
  if (/^[0-9a-f]{64}$/.test(text)) return Buffer.from(text, 'hex');
  throw new AppError('file_damaged', `${file} does not hold the key that signs sessions of the console`, {
    hint: keyHint,
  });
}

/** What tells the keys of two services apart: 8 hex digits, which say nothing of the key. */
export function sessionKeyId(key: Buffer): string {
  return createHash('sha256').update('session key\n').update(key).digest('hex').slice(0, 8);
}

/** Makes a new key: every session ends, within a second where the service runs. Durable when it returns. */
export async function renewSessionKey(keysFolder: string): Promise<{ readonly keyId: string }> {
  await ensureFolder(keysFolder);
  const file = sessionKeyPath(keysFolder);
  await writeFileDurably(file, renderKey());
  return { keyId: sessionKeyId(readKey(file)) };
}

/**
 * Opens the key, and makes it on first use; of two processes that make it at once both get that of one. A key that
 * cannot be read is a problem: while running, the last good one stays; from the start on, nobody can sign in.
 */
export async function openSessionKey(keysFolder: string, logger: Logger): Promise<SessionKey> {
  const file = sessionKeyPath(keysFolder);
  await ensureFolder(keysFolder);
  if (findTextFileSync(file) === undefined) await createExclusive(file, renderKey());
  const watched = watchOptionalFile(file, () => readKey(file), logger);
  const substitute = randomBytes(keyBytes);
  return {
    current: () => watched.current() ?? substitute,
    problems() {
      const why = watched.problem();
      if (why === undefined) return [];
      const isDown = watched.current() === undefined;
      const effect = isDown ? 'nobody can sign in to the console' : 'all sessions end with the next start';
      return [{ code: 'session_key_unreadable', what: `${effect}: ${why}`, todo: keyHint }];
    },
    isReadable: () => watched.current() !== undefined,
    close: () => watched.close(),
  };
}
