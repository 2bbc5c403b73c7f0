import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { wrapBrokerError } from './broker-errors.ts';
import {
  claimStream,
  isAdoptable,
  unclaimedError,
  type OwnerOptions,
  createStreamRepair,
  type StreamRepair,
  wantedReplicas,
} from './claim-stream.ts';
import { whileConnected, type StreamConnection } from './connection.ts';
import {
  claimedSubject,
  findClaim,
  findKeptClaim,
  compareClaims,
  streamTakenProblem,
  type Claim,
  createOwnerLivenessResponder,
  type OwnerLivenessResponder,
} from './claim.ts';
import { claimMissingProblem, missingProblem, openStreamWatch, unsafeProblem } from './publish-gate.ts';
import {
  describeDeviations,
  findDeviations,
  type Deviation,
  assertBroker,
  findStream,
  openManager,
  raiseReplicas,
} from './stream-admin.ts';
import { createReplicaWatch } from './replicas.ts';
import { streamIdOf } from './stream.ts';

/**
 * The stream's owner: the one process of a service that creates, claims and repairs the stream.
 *
 * In: the stream as the broker has it, and the claim of the data folder. Out: a stream with safe settings that carries
 * this lake's claim; problems and notices.
 * Invariant: at most one claim holds, and the broker takes messages only under its subject. Only a start takes a claim
 * over, and not while its owner answers.
 * Crash: the claim is in the folder before the stream carries it; the next start continues with the stream's claim.
 */
export interface StreamOwner extends Stoppable {
  /** Id of the claimed stream. */
  readonly streamId: string;
  problems(): readonly Problem[];
  notices(): readonly Problem[];
}

/** Delay between checks while something is wrong, while all is well, and while the broker announces changes, ms. */
const pollIntervalMs = { wrong: 250, well: 2000, heard: 5000 } as const;

interface Inspection {
  readonly manager: JetStreamManager;
  readonly options: OwnerOptions;
  readonly repair: StreamRepair;
  readonly ownerLivenessResponder: OwnerLivenessResponder;
  readonly watchReplicas: (info: StreamInfo) => void;
}

/** Lists unsafe settings. Others wait for a restart: two supervisors with different limits would undo each other. */
function findVital(info: StreamInfo, own: Claim, { streamName, maxBytes }: OwnerOptions): readonly Deviation[] {
  const demands = { subject: claimedSubject(streamName, own.token), maxBytes };
  return findDeviations(info.config, demands).filter((deviation) => deviation.vital);
}

/** Repairs settings and claim; returns what is still wrong. */
async function repairSettings(
  { manager, options, repair }: Inspection,
  info: StreamInfo,
  own: Claim,
  seenMs: number,
): Promise<readonly Problem[]> {
  const { streamName } = options;
  const deviations = findVital(info, own, options);
  const clause = deviations.length === 0 ? 'its claim was removed' : describeDeviations(deviations);
  const what = `the stream ${streamName} was changed while the service ran (${clause}), and was repaired`;
  const failed = await repair.repair(info, own, seenMs, what).then(() => undefined, describeError);
  const now = await findStream(manager, streamName);
  const left = now === undefined ? deviations : findVital(now, own, options);
  if (left.length === 0) return [];
  const problem = unsafeProblem(streamName, left);
  return [failed === undefined ? problem : { ...problem, action: `${problem.action} The broker says: ${failed}` }];
}

/** Checks the owner and the settings of the stream, and repairs what it may. */
async function inspectStream(inspection: Inspection): Promise<readonly Problem[]> {
  const { manager, options, repair, ownerLivenessResponder } = inspection;
  const { streamName, claimFile, lake } = options;
  const seenMs = performance.now();
  const info = await findStream(manager, streamName);
  const found = findClaim(info?.config.metadata);
  const own = await findKeptClaim(claimFile, found);
  if (own === undefined || own.lake !== lake.id) return [claimMissingProblem(claimFile)];
  if (info === undefined) {
    const what = `the stream ${streamName} was deleted while the service ran, and was created again`;
    await repair.repair(info, own, seenMs, what);
    return (await findStream(manager, streamName)) === undefined ? [missingProblem(streamName)] : [];
  }
  const verdict = compareClaims(found, own);
  if (found !== undefined && (verdict === 'taken' || verdict === 'foreign')) {
    ownerLivenessResponder.end();
    return [streamTakenProblem(streamName, found)];
  }
  ownerLivenessResponder.begin();
  if (verdict === 'unclaimed' && !(await isAdoptable(info, options))) {
    const { message, hint } = unclaimedError(info, lake);
    return [{ code: 'stream_unclaimed', message: message, action: hint ?? '' }];
  }
  if (verdict === 'ours' && findVital(info, own, options).length === 0) {
    repair.keep(info);
    inspection.watchReplicas(info);
    return [];
  }
  return await repairSettings(inspection, info, own, seenMs);
}

function wrapClaimError(error: unknown, { streamName, claimFile }: OwnerOptions): AppError {
  if (isSystemError(error, 'ENOSPC', 'EDQUOT', 'EACCES', 'EPERM', 'EROFS'))
    return new AppError('disk', `cannot write the claim on the stream to ${claimFile}`, {
      cause: error,
      hint: 'Check that the user of the service may write to the data folder, and that its disk has free space.',
    });
  return wrapBrokerError(error, `claim the stream ${streamName}`);
}

/** Claims the stream and keeps it. Errors: `stream_taken`, `broker_unsafe` (unsafe settings), `broker_away`. */
export async function ownStream(connection: StreamConnection, options: OwnerOptions): Promise<StreamOwner> {
  assertBroker(connection);
  const manager = await openManager(connection);
  const watch = await openStreamWatch(connection, options);
  const claim = async () =>
    await raiseReplicas(manager, await claimStream(connection, manager, options), wantedReplicas(options));
  const claimed = await claim().catch(async (error: unknown) => {
    await watch.stop();
    throw wrapClaimError(error, options);
  });
  const repair = createStreamRepair(manager, options, claimed);
  const ownerLivenessResponder = createOwnerLivenessResponder(connection, options);
  ownerLivenessResponder.begin();
  let problems: readonly Problem[] = [];
  const replicas = createReplicaWatch(options.streamName, options.replicas);
  const inspection = {
    manager,
    options,
    repair,
    ownerLivenessResponder,
    watchReplicas: (info: StreamInfo) => replicas.see(info),
  };
  const inspect = async (): Promise<void> => {
    problems = await whileConnected(connection, 'inspect the stream', () => inspectStream(inspection));
  };
  watch.start(inspect, (isFailing) => {
    if (problems.length > 0 || isFailing) return pollIntervalMs.wrong;
    return pollIntervalMs[watch.isSubscribed() ? 'heard' : 'well'];
  });

  return {
    streamId: streamIdOf(options.streamName, claimed.created),
    problems() {
      const refused = watch.refused();
      return refused === undefined ? problems : [refused];
    },
    notices: () => [...repair.notices(), ...replicas.warnings()],
    async stop() {
      const stopped = watch.stop();
      ownerLivenessResponder.end();
      await stopped;
      // A check in progress may have begun it again.
      ownerLivenessResponder.end();
    },
  };
}
