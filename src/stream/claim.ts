import { randomBytes, randomUUID } from 'node:crypto';
import type { StreamConfig } from '@nats-io/jetstream';
import { parseChecksummed, renderChecksummed } from '../runtime/files/checksummed-json.ts';
import { AppError } from '../runtime/errors.ts';
import type { FolderLocation } from '../runtime/files/folder-id.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import path from 'node:path';
import { RequestError, type Subscription } from '@nats-io/transport-node';
import { findText } from '../runtime/store/object-store.ts';
import { openStore } from '../runtime/store/open-store.ts';
import type { StreamConnection } from './connection.ts';

/**
 * The claim on a stream, in its metadata: the lake of its events, and the data folder whose service may publish to it.
 * Its token is part of the stream's subject: the broker itself rejects a former owner, without a clock.
 */
export interface Claim {
  readonly lake: string;
  /** Random, a new one at each take-over. */
  readonly token: string;
  /** Grows by one at each take-over: of two claims of one lake, the higher holds. */
  readonly generation: number;
}

/** A claim as the stream carries it, with the place of its owner. */
export interface ClaimWithLocation extends Claim {
  readonly place: FolderLocation;
}

/** Result of comparing a stream's claim with this service's. `older`: an earlier one of the same lake. */
type ClaimStatus = 'ours' | 'unclaimed' | 'older' | 'taken' | 'foreign';

const prefix = 'tributary.';

/** Returns the subject of the messages of a stream under a claim. */
export function claimedSubject(streamName: string, token: string): string {
  return `tributary.${streamName}.events.${token}`;
}

export function createFencingToken(): string {
  return randomBytes(8).toString('hex');
}

/** Renders a claim as metadata of a stream, in addition to the operator's. */
export function renderMetadata(claim: ClaimWithLocation, others: StreamConfig['metadata']): Record<string, string> {
  // The server's own metadata must not be sent back.
  const otherMetadata = Object.entries(others ?? {}).filter(
    ([key]) => !key.startsWith('_nats.') && !key.startsWith(prefix),
  );
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
    ...Object.fromEntries(otherMetadata),
    ...Object.fromEntries(Object.entries(members).map(([key, value]) => [prefix + key, value])),
  };
}

/** Parses the claim in a stream's metadata; undefined if it names no lake. */
export function findClaim(metadata: StreamConfig['metadata']): ClaimWithLocation | undefined {
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

export function compareClaims(found: Claim | undefined, own: Claim): ClaimStatus {
  if (found === undefined) return 'unclaimed';
  if (found.lake !== own.lake) return 'foreign';
  if (found.generation < own.generation) return 'older';
  return found.generation === own.generation && found.token === own.token ? 'ours' : 'taken';
}

async function readKeptClaim(file: string): Promise<Claim | undefined> {
  const text = await findText(openStore(path.dirname(file)), path.basename(file)).catch((error: unknown) => {
    if (error instanceof AppError) throw error;
    throw new AppError('disk', `cannot read the claim on the stream from ${file}`, {
      cause: error,
      hint: 'Check that the user of the service may read and write the data folder.',
    });
  });
  try {
    const { lake, token, generation } = parseChecksummed(text ?? '');
    if (typeof lake !== 'string' || typeof token !== 'string' || typeof generation !== 'number') return undefined;
    return { lake, token, generation };
  } catch {
    return undefined;
  }
}

/** The claims in buckets, as last read: imports continue while a bucket is away. */
const knownClaims = new Map<string, Claim>();

/**
 * Reads the claim of a data folder; undefined if missing or damaged. One in a bucket is read again only if it is not the
 * one that the stream carries. Errors: `disk` if the read fails; those of the bucket.
 */
export async function findKeptClaim(file: string, carried?: Claim): Promise<Claim | undefined> {
  const known = knownClaims.get(file);
  if (known !== undefined && compareClaims(carried, known) === 'ours') return known;
  const claim = await readKeptClaim(file);
  if (claim !== undefined && openStore(path.dirname(file)).isShared) knownClaims.set(file, claim);
  return claim;
}

export async function keepClaim(file: string, { lake, token, generation }: Claim): Promise<void> {
  const bytes = Buffer.from(renderChecksummed({ lake, token, generation }));
  await openStore(path.dirname(file)).replace(path.basename(file), bytes, 'any');
}

function describeLocation({ folder, host }: FolderLocation): string {
  return `${folder} on ${host}`;
}

export function foreignStream(
  streamName: string,
  found: ClaimWithLocation,
  lake: string,
  place: FolderLocation,
): AppError {
  return new AppError(
    'stream_taken',
    `the stream ${streamName} belongs to the lake ${found.lake} of ${describeLocation(found.place)}, and this is the lake ${lake} of ${describeLocation(place)}`,
    { hint: 'Set another TRIBUTARY_STREAM, or pass that data folder with --data.' },
  );
}

export function streamTakenProblem(streamName: string, { place }: ClaimWithLocation): Problem {
  return {
    code: 'stream_taken',
    message: `the stream ${streamName} belongs to the service of ${describeLocation(place)} now; this service rejects imports and commits nothing`,
    action: 'Stop one of the two services. If this one stays, restart it.',
  };
}

/** The response of a running owner to a process that also wants the stream. */
interface LiveOwner {
  readonly pid: number;
  readonly place: FolderLocation;
  /** Whether it runs on the same data folder: it has seen the object of the query. */
  readonly sameFolder: boolean;
}

const subjectOf = (streamName: string): string => `tributary.${streamName}.owner`;
const pattern = /^question-[0-9a-f-]{36}$/;

interface PresenceOptions {
  readonly streamName: string;
  readonly livenessFolder: string;
  readonly place: FolderLocation;
}

async function answerQuestions(subscription: Subscription, { livenessFolder, place }: PresenceOptions): Promise<void> {
  for await (const message of subscription) {
    const name = message.string();
    if (!pattern.test(name)) continue;
    const sameFolder = await openStore(livenessFolder)
      .findSize(name)
      .then(
        (size) => size !== undefined,
        () => false,
      );
    message.respond(JSON.stringify({ pid: process.pid, place, sameFolder } satisfies LiveOwner));
  }
}

export type OwnerLivenessResponder = ReturnType<typeof createOwnerLivenessResponder>;

/** Creates the presence of the owner: from `begin` on it responds to processes that ask for the owner. */
export function createOwnerLivenessResponder(connection: StreamConnection, options: PresenceOptions) {
  let subscription: Subscription | undefined;
  return {
    begin(): void {
      if (subscription !== undefined) return;
      subscription = connection.nats.subscribe(subjectOf(options.streamName));
      // Without the right to subscribe the query stays unanswered.
      answerQuestions(subscription, options).catch(() => undefined);
    },
    end(): void {
      subscription?.unsubscribe();
      subscription = undefined;
    },
  };
}

/**
 * Asks for the owner of the stream: `nobody` if the broker knows none, `silent` without a response. The query is a new
 * object in `folder`, which a copy of the data folder lacks.
 */
export async function checkOwnerLiveness(
  connection: StreamConnection,
  streamName: string,
  folder: string,
  timeoutMs: number,
): Promise<LiveOwner | 'nobody' | 'silent'> {
  const name = `question-${randomUUID()}`;
  const store = openStore(folder);
  await store.note(name, Buffer.from(name));
  try {
    const answer = await connection.nats.request(subjectOf(streamName), name, { timeout: timeoutMs });
    return answer.json<LiveOwner>();
  } catch (error) {
    return error instanceof RequestError && error.isNoResponders() ? 'nobody' : 'silent';
  } finally {
    await store.remove([name]);
  }
}
