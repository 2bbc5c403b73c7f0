import { randomBytes, randomUUID } from 'node:crypto';
import type { StreamConfig } from '@nats-io/jetstream';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import {
  findTextFile,
  writeFileDurably,
  ensureFolder,
  removeFile,
  writeNewFile,
} from '../runtime/files/durable-file.ts';
import { AppError } from '../runtime/errors.ts';
import type { FolderPlace } from '../runtime/files/folder-id.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import path from 'node:path';
import { RequestError, type Subscription } from '@nats-io/transport-node';
import { exists } from '../runtime/files/file-checks.ts';
import type { StreamConnection } from './connection.ts';

/**
 * The claim on a stream: which lake its events go to, and which data folder's service may publish to it now. It stands
 * in the stream's metadata. Its token is part of the subject that the stream takes, so that the broker itself refuses
 * what a former owner publishes, without any clock: a process that was stopped for long cannot even send what it had in
 * hand.
 */
export interface Claim {
  /** Id of the lake. */
  readonly lake: string;
  /** Random; a new one at each take-over. */
  readonly token: string;
  /** Grows by one at each take-over: of two claims of one lake, the higher holds. */
  readonly generation: number;
}

/** A claim as the stream carries it, with the place of its owner. */
export interface PlacedClaim extends Claim {
  readonly place: FolderPlace;
}

/**
 * How the claim that a stream carries stands to one's own. `older`: one's own lake's, from before it: the stream was
 * restored.
 */
type ClaimVerdict = 'ours' | 'unclaimed' | 'older' | 'taken' | 'foreign';

const prefix = 'tributary.';

/** The subject of the messages of a stream under a claim. */
export function claimedSubject(streamName: string, token: string): string {
  return `tributary.${streamName}.events.${token}`;
}

/** Makes a token. */
export function createToken(): string {
  return randomBytes(8).toString('hex');
}

/** The claim as a stream's metadata, beside what else the operator keeps there. */
export function renderMetadata(claim: PlacedClaim, others: StreamConfig['metadata']): Record<string, string> {
  // What the server itself adds is not to be sent back.
  const kept = Object.entries(others ?? {}).filter(([key]) => !key.startsWith('_nats.') && !key.startsWith(prefix));
  const { lake, token, generation, place } = claim;
  const members = {
    lake,
    claim: token,
    generation: String(generation),
    host: place.host,
    folder: place.folder,
    place: place.fingerprint,
  };
  return {
    ...Object.fromEntries(kept),
    ...Object.fromEntries(Object.entries(members).map(([key, value]) => [prefix + key, value])),
  };
}

/** Reads the claim out of a stream's metadata; undefined when it names no lake. */
export function findClaim(metadata: StreamConfig['metadata']): PlacedClaim | undefined {
  const read = (name: string): string => metadata?.[prefix + name] ?? '';
  const generation = Number(read('generation'));
  if (read('lake') === '') return undefined;
  return {
    lake: read('lake'),
    token: read('claim'),
    generation: Number.isSafeInteger(generation) && generation > 0 ? generation : 0,
    place: {
      host: read('host') || 'an unknown host',
      folder: read('folder') || 'an unknown folder',
      fingerprint: read('place'),
    },
  };
}

/** Compares the claim that a stream carries with one's own. */
export function judgeClaim(found: Claim | undefined, own: Claim): ClaimVerdict {
  if (found === undefined) return 'unclaimed';
  if (found.lake !== own.lake) return 'foreign';
  if (found.generation < own.generation) return 'older';
  return found.generation === own.generation && found.token === own.token ? 'ours' : 'taken';
}

/**
 * Reads the claim that a data folder holds; undefined when it holds none, or one that is damaged: then another is made.
 * A read that fails says nothing of the claim, and throws: `disk`.
 */
export async function findKeptClaim(file: string): Promise<Claim | undefined> {
  const text = await findTextFile(file).catch((error: unknown) => {
    throw new AppError('disk', `the claim on the stream cannot be read from ${file}`, {
      cause: error,
      hint: 'See that the user of the service may read and write the data folder.',
    });
  });
  try {
    const { lake, token, generation } = parseChecked(text ?? '') as Partial<Claim>;
    if (typeof lake !== 'string' || typeof token !== 'string' || typeof generation !== 'number') return undefined;
    return { lake, token, generation };
  } catch {
    return undefined;
  }
}

/** Keeps the claim in the data folder, durably, where every process of the folder's service finds it. */
export async function keepClaim(file: string, { lake, token, generation }: Claim): Promise<void> {
  await writeFileDurably(file, renderChecked({ lake, token, generation }));
}

function describePlace({ folder, host }: FolderPlace): string {
  return `${folder} on ${host}`;
}

/** Why a service may not start on a stream of another lake. */
export function foreignStream(streamName: string, found: PlacedClaim, lake: string, place: FolderPlace): AppError {
  return new AppError(
    'stream_taken',
    `the stream ${streamName} belongs to the lake ${found.lake} of ${describePlace(found.place)}, and this is the lake ${lake} of ${describePlace(place)}`,
    { hint: 'Name another stream by TRIBUTARY_STREAM, or that data folder by --data.' },
  );
}

/** The problem of a running service whose stream is another's. */
export function takenProblem(streamName: string, { place }: PlacedClaim): Problem {
  return {
    code: 'stream_taken',
    what: `the stream ${streamName} belongs to the service of ${describePlace(place)} now: this one takes no events and commits none`,
    todo: 'Let only one of them run: stop this one; or stop that one, and then start this one again.',
  };
}

/** What a running owner of a stream answers to one who would own it too. */
interface PresentOwner {
  readonly pid: number;
  readonly place: FolderPlace;
  /** It runs on the very data folder of the one who asks: it has seen the file that was put there. */
  readonly sameFolder: boolean;
}

/** `nobody`: the broker knows nobody who would answer. `silent`: somebody is there and does not answer. */
type PresenceAnswer = PresentOwner | 'nobody' | 'silent';

const subjectOf = (streamName: string): string => `tributary.${streamName}.owner`;
const pattern = /^question-[0-9a-f-]{36}$/;

/** Answers whoever asks for the owner of the stream, while this process owns it. */
export interface Presence {
  /** Begins to answer, unless it does already. */
  begin(): void;
  end(): void;
}

/** Where the owner of a stream is asked, and what it answers. */
interface PresenceOptions {
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
