import { randomUUID } from 'node:crypto';
import { access, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { RequestError } from '@nats-io/transport-node';
import { ensureFolder } from '../runtime/files/durable-file.ts';
import type { FolderPlace } from '../runtime/files/folder-place.ts';
import type { StreamConnection } from './connection.ts';

/** What a running owner of a stream answers to one who would own it too. */
export interface PresentOwner {
  readonly pid: number;
  readonly place: FolderPlace;
  /** It runs on the very data folder of the one who asks: it has seen the file that was put there. */
  readonly sameFolder: boolean;
}

/** `nobody`: the broker knows nobody who would answer. `silent`: somebody is there and does not answer. */
export type PresenceAnswer = PresentOwner | 'nobody' | 'silent';

const subjectOf = (streamName: string): string => `tributary.${streamName}.owner`;
const pattern = /^question-[0-9a-f-]{36}$/;

async function exists(file: string): Promise<boolean> {
  try {
    await access(file);
    return true;
  } catch {
    return false;
  }
}

/** Answers for as long as this process owns the stream; gives the function that ends it. */
export function answerPresence(
  connection: StreamConnection,
  streamName: string,
  folder: string,
  place: FolderPlace,
): () => void {
  const subscription = connection.nats.subscribe(subjectOf(streamName));
  async function answer(): Promise<void> {
    for await (const message of subscription) {
      const name = message.string();
      if (!pattern.test(name)) continue;
      const sameFolder = await exists(path.join(folder, name));
      message.respond(JSON.stringify({ pid: process.pid, place, sameFolder } satisfies PresentOwner));
    }
  }
  // It ends with the subscription; one that the account may not have leaves the question unanswered.
  answer().catch(() => undefined);
  return () => subscription.unsubscribe();
}

/**
 * Asks who owns the stream now. A copy of a data folder has all that the original has, so the question is a file that
 * is put into `folder` for this once: only who works on the same folder can see it.
 */
export async function askPresence(
  connection: StreamConnection,
  streamName: string,
  folder: string,
  timeoutMs: number,
): Promise<PresenceAnswer> {
  const name = `question-${randomUUID()}`;
  await ensureFolder(folder);
  await writeFile(path.join(folder, name), '', { mode: 0o600 });
  try {
    const answer = await connection.nats.request(subjectOf(streamName), name, { timeout: timeoutMs });
    return answer.json<PresentOwner>();
  } catch (error) {
    return error instanceof RequestError && error.isNoResponders() ? 'nobody' : 'silent';
  } finally {
    await rm(path.join(folder, name), { force: true });
  }
}
