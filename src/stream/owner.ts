import { jetstreamManager, type JetStreamManager, type StreamInfo } from '@nats-io/jetstream';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import type { FolderPlace } from '../runtime/files/folder-place.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { pause } from '../runtime/async/retry.ts';
import { describeRefused, wrapBrokerError } from './broker-errors.ts';
import {
  claimedSubject,
  createToken,
  findClaim,
  findKeptClaim,
  foreignStream,
  judgeClaim,
  keepClaim,
  renderMetadata,
  takenProblem,
  type Claim,
  type PlacedClaim,
} from './lease.ts';
import { whileConnected, type StreamConnection } from './connection.ts';
import { claimMissingProblem, missingProblem, unsafeProblem } from './guard.ts';
import { answerPresence, askPresence } from './presence.ts';
import { hearChanges } from './stream-changes.ts';
import { describeDeviations, findDeviations, wantedSettings, type StreamDemands } from './stream-settings.ts';
import { assertBroker, assertMendable, createStream, findStream } from './topology.ts';

/**
 * The stream's owner: the one process of a service that creates and claims the stream, puts it right and makes it anew.
 *
 * In: the stream as the broker has it, and the claim that the data folder keeps. Out: a stream with safe settings that
 * carries this lake's claim; problems and notices.
 * Invariant: at most one claim holds, and only under its subject does the broker take messages. Nobody's claim is taken
 * over while its owner answers; a running service never takes one over at all, only a start does.
 * Crash: the claim is kept in the folder before the stream carries it; the next start goes on with what the stream
 * carries.
 */
export interface StreamOwner extends Stoppable {
  problems(): readonly Problem[];
  /** What was put right, for the operator to look at. */
  notices(): readonly Problem[];
}

/** What the stream's owner has to know of its lake. */
export interface OwnedLake {
  readonly id: string;
  /** Id of the stream that the lake's log has followed last; undefined while it has followed none. */
  findStreamId(): Promise<string | undefined>;
}

export interface OwnerOptions {
  readonly streamName: string;
  readonly maxBytes: number;
  readonly lake: OwnedLake;
  /** Where the data folder keeps its claim. */
  readonly claimFile: string;
  /** Folder for the question that only a process on the same data folder can answer. */
  readonly questionFolder: string;
  readonly place: FolderPlace;
  /** The broker is this data folder's own, and its lock is held: nobody else can be there. */
  readonly exclusive: boolean;
  /** For how long an owner that does not answer is waited for, milliseconds. */
  readonly leaseMs?: number;
  readonly logger: Logger;
  readonly signal?: AbortSignal;
}

const defaultLeaseMs = 10_000;
const askEveryMs = 250;
const answerMs = 1000;
const lookEveryMs = 2000;
/** Between tries to put the stream right, when that did not help, milliseconds. */
const mendEveryMs = 1000;
/** An update that is sent later than this after the look it rests on could undo what another did meanwhile. */
const freshMs = 1000;
const newestNotices = 5;

/**
 * A stream without a claim, from a version before claims or made by hand: ours only where nothing of another lake can
 * be in it.
 */
async function isAdoptable(info: StreamInfo, { lake, exclusive }: OwnerOptions): Promise<boolean> {
  // The store of the broker lies in the data folder, and goes with it.
  if (exclusive) return true;
  const followed = await lake.findStreamId();
  return followed === `${info.config.name}@${info.created}` || info.state.last_seq === 0;
}

function unclaimedError({ config }: StreamInfo, lake: OwnedLake): AppError {
  return new AppError(
    'stream_taken',
    `the stream ${config.name} has messages, names no lake, and this lake has never read it`,
    {
      hint: `Name another stream by TRIBUTARY_STREAM; or, if its messages are this lake's, say so: nats stream edit ${config.name} --metadata tributary.lake=${lake.id}`,
    },
  );
}

/**
 * Waits until nobody owns the stream any more. Says whether its owner works on this data folder too, so that both have
 * one claim. `last`: where it was claimed from; from the same place nobody need be waited for whom the broker does not
 * know.
 */
async function isShared(connection: StreamConnection, last: FolderPlace, options: OwnerOptions): Promise<boolean> {
  const { streamName, questionFolder, place, leaseMs = defaultLeaseMs, logger, signal } = options;
  const deadline = performance.now() + leaseMs;
  for (let round = 0; ; round += 1) {
    const answer = await askPresence(connection, streamName, questionFolder, answerMs);
    if (typeof answer === 'object') {
      if (answer.sameFolder) return true;
      throw new AppError(
        'stream_taken',
        `the stream ${streamName} is in use by the service of ${answer.place.folder} on ${answer.place.host} (pid ${answer.pid}), and this is ${place.folder} on ${place.host}, a copy of its data folder`,
        {
          hint: 'Stop that one first, or name another stream by TRIBUTARY_STREAM.',
        },
      );
    }
    if (answer === 'nobody' && last.fingerprint === place.fingerprint) return false;
    if (performance.now() >= deadline) {
      logger.warn({ stream: streamName, before: last }, 'the owner of the stream does not answer: it is taken over');
      return false;
    }
    if (signal?.aborted === true) throw new AppError('stopping', 'stopped while waiting for the owner of the stream');
    if (round === 0)
      logger.warn(
        { stream: streamName, owner: last, leaseMs },
        'the stream was claimed from another place, or its owner is silent: waiting for it',
      );
    await pause(askEveryMs, signal);
  }
}

/**
 * Decides under which claim this service may own the stream, which carries `found` or none. Each start makes a new
 * claim, unless another process of this data folder has one: whoever held the one before, on a copy of the folder or of
 * the whole machine, is then refused by the broker.
 */
async function decideClaim(
  connection: StreamConnection,
  info: StreamInfo | undefined,
  options: OwnerOptions,
): Promise<Claim> {
  const { lake, claimFile, place, exclusive, streamName, logger } = options;
  const found = findClaim(info?.config.metadata);
  if (found !== undefined && found.lake !== lake.id) {
    // The broker's folder lies in the data folder: beside a new lake, what waits in it has no other.
    if (!exclusive || (await lake.findStreamId()) !== undefined) throw foreignStream(streamName, found, lake.id, place);
    logger.error(
      { stream: streamName, lake: lake.id, before: found.lake },
      'the lake is new and the stream is not: what waits in it goes to the new lake',
    );
  }
  if (info !== undefined && found === undefined && !(await isAdoptable(info, options)))
    throw unclaimedError(info, lake);
  const shared = !exclusive && (await isShared(connection, found?.place ?? place, options));
  // Read after the wait: another process of this folder may have claimed meanwhile.
  const kept = await findKeptClaim(claimFile);
  if (shared && kept?.lake === lake.id) return kept;
  const generation = Math.max(found?.generation ?? 0, kept?.generation ?? 0) + 1;
  return { lake: lake.id, token: createToken(), generation };
}

/** Creates the stream, or puts settings and claim right; undefined when another process came between. */
async function settle(
  manager: JetStreamManager,
  info: StreamInfo | undefined,
  claim: PlacedClaim,
  options: OwnerOptions,
  before: Partial<StreamInfo['config']> = {},
): Promise<StreamInfo | undefined> {
  const { streamName, maxBytes } = options;
  const demands: StreamDemands = { subject: claimedSubject(streamName, claim.token), maxBytes };
  const metadata = renderMetadata(claim, info?.config.metadata ?? before.metadata);
  if (info === undefined) return await createStream(manager, streamName, demands, { ...before, metadata });
  assertMendable(info, demands);
  const carried = findClaim(info.config.metadata);
  const isRight =
    findDeviations(info.config, demands).length === 0 &&
    carried !== undefined &&
    judgeClaim(carried, claim) === 'ours' &&
    carried.place.folder === claim.place.folder;
  return isRight
    ? info
    : await manager.streams.update(streamName, { ...info.config, ...wantedSettings(demands), metadata });
}

/** Claims the stream at the start of a service. */
async function claimStream(
  connection: StreamConnection,
  manager: JetStreamManager,
  options: OwnerOptions,
): Promise<StreamInfo> {
  const { streamName, claimFile, place } = options;
  for (let round = 0; round < 5; round += 1) {
    const info = await findStream(manager, streamName);
    if (info !== undefined) assertMendable(info, { subject: '', maxBytes: options.maxBytes });
    const claim = await decideClaim(connection, info, options);
    const kept = await findKeptClaim(claimFile);
    if (kept === undefined || judgeClaim(kept, claim) !== 'ours') await keepClaim(claimFile, claim);
    // Waiting for another owner took its time.
    const fresh = info === undefined ? undefined : await findStream(manager, streamName);
    if (JSON.stringify(findClaim(fresh?.config.metadata)) !== JSON.stringify(findClaim(info?.config.metadata)))
      continue;
    if ((await settle(manager, fresh, { ...claim, place }, options)) === undefined) continue;
    const settled = await findStream(manager, streamName);
    if (settled !== undefined && judgeClaim(findClaim(settled.config.metadata), claim) === 'ours') return settled;
  }
  throw new AppError('stream_taken', `the stream ${streamName} is being claimed by several services at once`, {
    hint: 'Start only one of them.',
  });
}

/**
 * Claims the stream for a service and keeps it: see `StreamOwner`. Errors: `stream_taken` (it is another's),
 * `broker_unsafe` (it cannot keep events, or may not be changed), `broker_away`.
 */
export async function ownStream(connection: StreamConnection, options: OwnerOptions): Promise<StreamOwner> {
  const { streamName, claimFile, place, maxBytes, lake, logger, questionFolder } = options;
  assertBroker(connection);
  const manager = await jetstreamManager(connection.nats).catch((error: unknown) => {
    throw wrapBrokerError(error, 'open the stream');
  });
  const stopping = new AbortController();
  let waiting = new AbortController();
  let changes = 0;
  const heard = await hearChanges(connection, streamName, () => {
    changes += 1;
    waiting.abort();
  });
  let last: StreamInfo;
  try {
    last = await claimStream(connection, manager, options);
  } catch (error) {
    heard.stop();
    if (isSystemError(error, 'ENOSPC', 'EDQUOT', 'EACCES', 'EPERM', 'EROFS'))
      throw new AppError('disk', `the claim on the stream cannot be written to ${claimFile}`, {
        cause: error,
        hint: 'See that the user of the service may write to the data folder, and that its disk has room.',
      });
    throw wrapBrokerError(error, `claim the stream ${streamName}`);
  }
  let silence: (() => void) | undefined = answerPresence(connection, streamName, questionFolder, place);
  let problems: readonly Problem[] = [];
  let notices: readonly Problem[] = [];
  let nextMendMs = 0;

  function notice(what: string, todo: string): void {
    const at = new Date().toISOString();
    notices = [...notices, { code: 'stream_mended' as const, subject: at, what: `at ${at}: ${what}`, todo }].slice(
      -newestNotices,
    );
    logger.error({ stream: streamName }, what);
  }

  /** Puts right or makes anew; what it rests on must be fresh, since an update replaces all settings at once. */
  async function mend(info: StreamInfo | undefined, claim: Claim, seenMs: number, what: string): Promise<void> {
    const nowMs = performance.now();
    if (nowMs < nextMendMs || nowMs - seenMs > freshMs) return;
    nextMendMs = nowMs + mendEveryMs;
    // A stream that is made anew keeps its replicas and what else the operator gave it.
    const { num_replicas, placement, compression, description, metadata } = last.config;
    const before = JSON.parse(
      JSON.stringify({ num_replicas, placement, compression, description, metadata }),
    ) as Partial<StreamInfo['config']>;
    const settled = await settle(manager, info, { ...claim, place }, options, before);
    if (settled === undefined) return;
    last = settled;
    notice(
      what,
      'Find out who did it: what it removed from the stream before it was put right is gone, and the compactor reports what the lake misses.',
    );
  }

  /** Looks once: whose the stream is, and whether it keeps what it takes. */
  async function look(): Promise<readonly Problem[]> {
    const seenMs = performance.now();
    const info = await findStream(manager, streamName);
    const own = await findKeptClaim(claimFile);
    if (own === undefined || own.lake !== lake.id) return [claimMissingProblem(claimFile)];
    if (info === undefined) {
      await mend(info, own, seenMs, `the stream ${streamName} was deleted while the service ran, and was made anew`);
      return (await findStream(manager, streamName)) === undefined ? [missingProblem(streamName)] : [];
    }
    const found = findClaim(info.config.metadata);
    const verdict = judgeClaim(found, own);
    if (found !== undefined && (verdict === 'taken' || verdict === 'foreign')) {
      silence?.();
      silence = undefined;
      return [takenProblem(streamName, found)];
    }
    silence ??= answerPresence(connection, streamName, questionFolder, place);
    if (verdict === 'unclaimed' && !(await isAdoptable(info, options))) {
      const { message, hint } = unclaimedError(info, lake);
      return [{ code: 'stream_unclaimed', what: message, todo: hint ?? '' }];
    }
    const demands = { subject: claimedSubject(streamName, own.token), maxBytes };
    // The others wait for the next start: two supervisors of one folder with other limits would never come to an end.
    const deviations = findDeviations(info.config, demands).filter((deviation) => deviation.vital);
    if (deviations.length === 0 && verdict === 'ours') {
      last = info;
      return [];
    }
    const clause = deviations.length === 0 ? 'its claim was removed' : describeDeviations(deviations);
    const failed = await mend(
      info,
      own,
      seenMs,
      `the stream ${streamName} was changed while the service ran (${clause}), and was put right`,
    ).then(() => undefined, describeError);
    const now = await findStream(manager, streamName);
    const left =
      now === undefined ? deviations : findDeviations(now.config, demands).filter((deviation) => deviation.vital);
    if (left.length === 0) return [];
    const problem = unsafeProblem(streamName, left);
    return [failed === undefined ? problem : { ...problem, todo: `${problem.todo} The broker says: ${failed}` }];
  }

  async function run(): Promise<void> {
    let failing = false;
    while (!stopping.signal.aborted) {
      const asOf = changes;
      try {
        problems = await whileConnected(connection, 'look at the stream', look);
        failing = false;
      } catch (error) {
        // The pings tell of a broker that is away.
        if (!failing) logger.warn({ error: describeError(error) }, 'the stream cannot be looked at, will retry');
        const refused = failing ? describeRefused(error, `look at the stream ${streamName}`) : undefined;
        if (refused !== undefined) problems = [refused];
        failing = true;
      }
      if (asOf !== changes && problems.length === 0) continue;
      await pause(
        problems.length > 0 || failing ? askEveryMs : lookEveryMs,
        AbortSignal.any([waiting.signal, stopping.signal]),
      );
      waiting = new AbortController();
    }
  }
  const running = run();

  return {
    problems: () => problems,
    notices: () => notices,
    async stop() {
      stopping.abort();
      silence?.();
      heard.stop();
      await running;
    },
  };
}
