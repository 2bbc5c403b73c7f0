import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import { pause } from '../runtime/async/retry.ts';
import { AppError } from '../runtime/errors.ts';
import { defined } from '../runtime/files/checksummed-json.ts';
import type { FolderLocation } from '../runtime/files/folder-id.ts';
import type { Logger } from '../runtime/logger.ts';
import type { StreamConnection } from './connection.ts';
import {
  claimedSubject,
  createFencingToken,
  findClaim,
  findKeptClaim,
  foreignStream,
  compareClaims,
  keepClaim,
  renderMetadata,
  type Claim,
  type ClaimWithLocation,
  checkOwnerLiveness,
} from './claim.ts';
import {
  findDeviations,
  wantedSettings,
  type StreamRequirements,
  assertRepairable,
  createStream,
  usualReplicas,
  findStream,
} from './stream-admin.ts';
import type { Problem } from '../runtime/problems/problem.ts';

interface OwnedLake {
  readonly id: string;
  findStreamId(): Promise<string | undefined>;
}

export interface OwnerOptions {
  readonly streamName: string;
  readonly maxBytes: number;
  /** Copies of the stream in an external cluster. 0: as many as it has servers, at most 3. */
  readonly replicas: number;
  readonly lake: OwnedLake;
  readonly claimFile: string;
  /** Folder of queries that only a process on the same data folder can answer. */
  readonly livenessFolder: string;
  readonly place: FolderLocation;
  /** Whether the broker belongs to this data folder, whose lock is held: then no other service can own the stream. */
  readonly exclusive: boolean;
  /** How long to wait for an owner that does not answer, ms. */
  readonly leaseMs?: number;
  readonly logger: Logger;
  readonly signal?: AbortSignal;
}

const defaultLeaseMs = 10_000;
const ownerCheckIntervalMs = 250;
const answerMs = 1000;

/** Reports whether a stream without a claim, of an earlier version or made by hand, has nothing of another lake. */
export async function isAdoptable(info: StreamInfo, { lake, exclusive }: OwnerOptions): Promise<boolean> {
  if (exclusive) return true;
  const followed = await lake.findStreamId();
  return followed === `${info.config.name}@${info.created}` || info.state.last_seq === 0;
}

export function unclaimedError({ config }: StreamInfo, lake: OwnedLake): AppError {
  return new AppError(
    'stream_taken',
    `the stream ${config.name} has messages but no claim, and this lake has never read it`,
    {
      hint: `Set another TRIBUTARY_STREAM; or, if the messages are this lake's, run: nats stream edit ${config.name} --metadata tributary.lake=${lake.id}`,
    },
  );
}

/**
 * Waits until the stream has no owner. Returns true if its owner shares this data folder, and so the claim. `last`: the
 * place of the last claim; at the same place, an owner that the broker does not know has exited.
 */
async function isShared(connection: StreamConnection, last: FolderLocation, options: OwnerOptions): Promise<boolean> {
  const { streamName, livenessFolder, place, leaseMs = defaultLeaseMs, logger, signal } = options;
  const deadline = performance.now() + leaseMs;
  for (let round = 0; ; round += 1) {
    const answer = await checkOwnerLiveness(connection, streamName, livenessFolder, answerMs);
    if (typeof answer === 'object') {
      if (answer.sameFolder) return true;
      throw new AppError(
        'stream_taken',
        `the stream ${streamName} is in use by the service of ${answer.place.folder} on ${answer.place.host} (pid ${answer.pid}), and this is ${place.folder} on ${place.host}, a copy of its data folder`,
        {
          hint: 'Stop that one first, or set another TRIBUTARY_STREAM.',
        },
      );
    }
    if (answer === 'nobody' && last.fingerprint === place.fingerprint) return false;
    if (performance.now() >= deadline) {
      logger.warn({ stream: streamName, before: last }, 'owner of the stream does not respond, taking over');
      return false;
    }
    if (signal?.aborted === true) throw new AppError('stopping', 'stopped while waiting for the owner of the stream');
    if (round === 0)
      logger.warn(
        { stream: streamName, owner: last, leaseMs },
        'stream claimed elsewhere, or its owner unresponsive, waiting',
      );
    await pause(ownerCheckIntervalMs, signal);
  }
}

/** Returns this data folder's claim, or a new one, with which the broker rejects the former owner. */
async function decideClaim(
  connection: StreamConnection,
  info: StreamInfo | undefined,
  options: OwnerOptions,
): Promise<Claim> {
  const { lake, claimFile, place, exclusive, streamName, logger } = options;
  const found = findClaim(info?.config.metadata);
  if (found !== undefined && found.lake !== lake.id) {
    // An own broker is part of the data folder: its messages have no other lake than the new one.
    if (!exclusive || (await lake.findStreamId()) !== undefined) throw foreignStream(streamName, found, lake.id, place);
    logger.error(
      { stream: streamName, lake: lake.id, before: found.lake },
      'new lake on an existing stream, its messages go to the new lake',
    );
  }
  if (info !== undefined && found === undefined && !(await isAdoptable(info, options)))
    throw unclaimedError(info, lake);
  const shared = !exclusive && (await isShared(connection, found?.place ?? place, options));
  // After the wait: another process of this folder may have claimed the stream.
  const keptClaim = await findKeptClaim(claimFile);
  if (shared && keptClaim?.lake === lake.id) return keptClaim;
  const generation = Math.max(found?.generation ?? 0, keptClaim?.generation ?? 0) + 1;
  return { lake: lake.id, token: createFencingToken(), generation };
}

/** Returns the copies that the settings name. A broker of the data folder is one server. */
export const wantedReplicas = ({ replicas, exclusive }: OwnerOptions): number =>
  exclusive ? 1 : replicas === 0 ? usualReplicas : replicas;

/** Creates the stream, or repairs its settings and claim; undefined if another process has just created it. */
async function settleStream(
  manager: JetStreamManager,
  info: StreamInfo | undefined,
  claim: ClaimWithLocation,
  options: OwnerOptions,
  before: Partial<StreamInfo['config']> = {},
): Promise<StreamInfo | undefined> {
  const { streamName, maxBytes } = options;
  const demands: StreamRequirements = { subject: claimedSubject(streamName, claim.token), maxBytes };
  const metadata = renderMetadata(claim, info?.config.metadata ?? before.metadata);
  if (info === undefined)
    return await createStream(manager, streamName, demands, { ...before, metadata }, wantedReplicas(options));
  assertRepairable(info, demands);
  const carried = findClaim(info.config.metadata);
  const isRight =
    findDeviations(info.config, demands).length === 0 &&
    carried !== undefined &&
    compareClaims(carried, claim) === 'ours' &&
    carried.place.folder === claim.place.folder;
  return isRight
    ? info
    : await manager.streams.update(streamName, { ...info.config, ...wantedSettings(demands), metadata });
}

/** Claims the stream at a start. Errors: `stream_taken`, `broker_unsafe`, the library's, the disk's. */
export async function claimStream(
  connection: StreamConnection,
  manager: JetStreamManager,
  options: OwnerOptions,
): Promise<StreamInfo> {
  const { streamName, claimFile, place } = options;
  for (let round = 0; round < 5; round += 1) {
    const info = await findStream(manager, streamName);
    if (info !== undefined) assertRepairable(info, { subject: '', maxBytes: options.maxBytes });
    const claim = await decideClaim(connection, info, options);
    const keptClaim = await findKeptClaim(claimFile);
    if (keptClaim === undefined || compareClaims(keptClaim, claim) !== 'ours') await keepClaim(claimFile, claim);
    // It may have changed while waiting for another owner.
    const fresh = info === undefined ? undefined : await findStream(manager, streamName);
    if (JSON.stringify(findClaim(fresh?.config.metadata)) !== JSON.stringify(findClaim(info?.config.metadata)))
      continue;
    if ((await settleStream(manager, fresh, { ...claim, place }, options)) === undefined) continue;
    const settled = await findStream(manager, streamName);
    if (settled !== undefined && compareClaims(findClaim(settled.config.metadata), claim) === 'ours') return settled;
  }
  throw new AppError('stream_taken', `the stream ${streamName} is being claimed by several services at once`, {
    hint: 'Start only one of them.',
  });
}

const repairIntervalMs = 1000;
/** Oldest check that an update may depend on, ms: a later one could undo another's change. */
const freshMs = 1000;
const newestNotices = 5;
const noticeTodo =
  'Find the NATS client that did it, and stop it. Messages that it removed before the repair are lost: the warning stream_fault reports them.';

/** Returns the settings that a recreated stream keeps: its replicas and the operator's. */
function operatorsSettings({ config }: StreamInfo): Partial<StreamInfo['config']> {
  const { num_replicas, placement, compression, description, metadata } = config;
  return defined({ num_replicas, placement, compression, description, metadata });
}

export type StreamRepair = ReturnType<typeof createStreamRepair>;

/** Creates the repair of the claimed stream while the service runs; it records what it did for the operator. */
export function createStreamRepair(manager: JetStreamManager, options: OwnerOptions, claimed: StreamInfo) {
  const { streamName, place, logger } = options;
  let last = claimed;
  let notices: readonly Problem[] = [];
  let nextMendMs = 0;
  return {
    /** Records a good state of the stream, whose operator's settings a recreated one gets. */
    keep(info: StreamInfo): void {
      last = info;
    },
    /** Repairs or recreates the stream, unless the check at `seenMs` (monotonic) is old. `what`: the notice. */
    async repair(info: StreamInfo | undefined, claim: Claim, seenMs: number, what: string): Promise<void> {
      const nowMs = performance.now();
      if (nowMs < nextMendMs || nowMs - seenMs > freshMs) return;
      nextMendMs = nowMs + repairIntervalMs;
      const settled = await settleStream(manager, info, { ...claim, place }, options, operatorsSettings(last));
      if (settled === undefined) return;
      last = settled;
      const at = new Date().toISOString();
      const notice: Problem = {
        code: 'stream_repaired',
        subject: at,
        message: `at ${at}: ${what}`,
        action: noticeTodo,
      };
      notices = [...notices, notice].slice(-newestNotices);
      logger.error({ stream: streamName }, what);
    },
    notices: () => notices,
  };
}
