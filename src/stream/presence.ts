import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { RequestError, type Subscription } from '@nats-io/transport-node';
import { ensureFolder, removeFile, writeNewFile } from '../runtime/files/durable-file.ts';
import { exists } from '../runtime/files/file-checks.ts';
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

/** Answers whoever asks for the owner of the stream, while this process owns it. */
export interface Presence {
  /** Begins to answer, unless it does already. */
  begin(): void;
  end(): void;
}

/** Where the owner of a stream is asked, and what it answers. */
export interface PresenceOptions {
  readonly streamName: string;
  /** Folder of the questions. */
  readonly questionFolder: string;
  readonly place: FolderPlace;
}

async function answerQuestions(subscription: Subscription, { questionFolder, place }: PresenceOptions): Promise<void> {
  for await (const message of subscription) {
    const name = message.string();
    if (!pattern.test(name)) continue;
    const sameFolder = await exists(path.join(questionFolder, name)).catch(() => false);
    message.respond(JSON.stringify({ pid: process.pid, place, sameFolder } satisfies PresentOwner));
  }
}

/** Creates the presence of this process, which answers nothing yet. */
export function createPresence(connection: StreamConnection, options: PresenceOptions): Presence {
  let subscription: Subscription | undefined;
  return {
    begin() {
      if (subscription !== undefined) return;
      subscription = connection.nats.subscribe(subjectOf(options.streamName));
      // It ends with the subscription; one that the account may not have leaves the question unanswered.
      answerQuestions(subscription, options).catch(() => undefined);
    },
    end() {
      subscription?.unsubscribe();
      subscription = undefined;
    },
  };
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
  await writeNewFile(path.join(folder, name), '');
  try {
    const answer = await connection.nats.request(subjectOf(streamName), name, { timeout: timeoutMs });
    return answer.json<PresentOwner>();
  } catch (error) {
    return error instanceof RequestError && error.isNoResponders() ? 'nobody' : 'silent';
  } finally {
    await removeFile(path.join(folder, name));
  }
}
