import { createHash } from 'node:crypto';
import path from 'node:path';
import { ensureFolder, writeFileDurably } from '../runtime/files/durable-file.ts';
import { findTextFileSync } from '../runtime/files/text-file.ts';

/**
 * The revision that access.json has reached, kept a second time beside the keys. It says that there was such a file
 * once it is gone, and that a file is an older copy: then revoked tokens would be let in again, and new apps be
 * refused.
 */
export function revisionPath(keysFolder: string): string {
  return path.join(keysFolder, 'access-revision');
}

const checksum = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Reads the revision; undefined when none was kept, or what was kept is damaged: it must keep nobody out. */
export function findRevision(keysFolder: string): number | undefined {
  const text = findTextFileSync(revisionPath(keysFolder)) ?? '';
  const [, revision, sha256] = /^(\d{1,15}) ([0-9a-f]{64})\n$/.exec(text) ?? [];
  return revision === undefined || checksum(revision) !== sha256 ? undefined : Number(revision);
}

/** Keeps a revision, durably. The file that has it is written first. */
export async function keepRevision(keysFolder: string, revision: number): Promise<void> {
  await ensureFolder(keysFolder);
  await writeFileDurably(revisionPath(keysFolder), `${revision} ${checksum(String(revision))}\n`);
}
