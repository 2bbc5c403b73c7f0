import type { StreamInfo } from '@nats-io/jetstream';
import type { Problem } from '../runtime/problems/problem.ts';
import { claimedSubject, findClaim, findKeptClaim, compareClaims, streamTakenProblem } from './claim.ts';
import { streamIdOf } from './stream.ts';
import { describeDeviations, findDeviations, type Deviation } from './stream-admin.ts';
import type { StreamConnection } from './connection.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { describeDenied } from './broker-errors.ts';
import { startPollLoop, type PollLoop } from '../runtime/async/poll-loop.ts';

/** Whether a 200 may depend on the stream: `open` under a subject, with its copies; `shut` for a reason; or unknown. */
export type PublishGate =
  | { readonly kind: 'open'; readonly subject: string; readonly streamId: string; readonly copies: number }
  | { readonly kind: 'shut'; readonly problem: Problem }
  | { readonly kind: 'unknown' };

export const missingProblem = (streamName: string): Problem => ({
  code: 'stream_missing',
  message: `the stream ${streamName} is missing; imports are rejected`,
  action:
    'No action needed if this resolves: the service creates it again. Otherwise allow the NATS account of the service to create streams.',
});

export const unsafeProblem = (streamName: string, deviations: readonly Deviation[]): Problem => ({
  code: 'stream_unsafe',
  message: `the stream ${streamName} could lose acknowledged events; imports are rejected: ${describeDeviations(deviations)}`,
  action:
    'No action needed if this resolves: the service repairs it. Otherwise restore its settings, or allow the NATS account of the service to update streams.',
});

/** An unclaimed stream, or one with an earlier claim, such as after a restore of its metadata. */
const notClaimedProblem = (streamName: string): Problem => ({
  code: 'stream_unsafe',
  message: `the stream ${streamName} does not have the current claim of this service; imports are rejected`,
  action:
    'No action needed if this resolves: the service claims it again. Otherwise allow the NATS account of the service to update streams.',
});

export const claimMissingProblem = (claimFile: string): Problem => ({
  code: 'stream_claim_missing',
  message: `${claimFile} is missing or damaged; imports are rejected`,
  action: 'Restart the service, which writes the file again.',
});

/** Checks a stream, if there is one, by its settings and by the claim that the data folder keeps. */
export async function evaluateStream(
  info: StreamInfo | undefined,
  streamName: string,
  claimFile: string,
): Promise<PublishGate> {
  if (info === undefined) return { kind: 'shut', problem: missingProblem(streamName) };
  const found = findClaim(info.config.metadata);
  const own = await findKeptClaim(claimFile, found);
  if (own === undefined) return { kind: 'shut', problem: claimMissingProblem(claimFile) };
  const verdict = compareClaims(found, own);
  if (found !== undefined && (verdict === 'taken' || verdict === 'foreign'))
    return { kind: 'shut', problem: streamTakenProblem(streamName, found) };
  const subject = claimedSubject(streamName, own.token);
  const vital = findDeviations(info.config, { subject, maxBytes: 0 }).filter((deviation) => deviation.vital);
  if (vital.length > 0) return { kind: 'shut', problem: unsafeProblem(streamName, vital) };
  // The supervisor is about to claim it again.
  if (verdict !== 'ours') return { kind: 'shut', problem: notClaimedProblem(streamName) };
  const { num_replicas: copies } = info.config;
  return { kind: 'open', subject, streamId: streamIdOf(streamName, info.created), copies };
}

const answerMs = 5000;

/**
 * Watches a stream by the broker's advisories. Calls `onChange` when it was created, changed, deleted or restored, has
 * a new leader, or the connection is lost. Resolves when the subscription is active. In one queue, nats-server sends an
 * advisory between the acks of messages stored before and after the change: an ack before the advisory is of a message
 * stored before it.
 */
export async function openStreamWatch(
  connection: StreamConnection,
  { streamName, logger }: { readonly streamName: string; readonly logger: Logger },
  onChange: () => void = () => undefined,
) {
  let isSubscribed = true;
  let failing = false;
  let refused: Problem | undefined;
  let loop: PollLoop | undefined;

  function change(): void {
    onChange();
    loop?.wake();
  }

  const subscription = connection.nats.subscribe(`$JS.EVENT.ADVISORY.STREAM.*.${streamName}`, {
    callback(error, message) {
      if (error !== null) isSubscribed = false;
      // A backup of the stream changes nothing in it.
      else if (message.subject.startsWith('$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_')) return;
      change();
    },
  });
  const forgetDisconnects = connection.onDisconnect(change);
  function forget(): void {
    forgetDisconnects();
    subscription.unsubscribe();
  }
  await connection.ping(answerMs).catch((error: unknown) => {
    forget();
    throw error;
  });

  function onError(error: unknown): void {
    // Not the first: JetStream comes up a moment after its server.
    if (failing) refused = describeDenied(error, `inspect the stream ${streamName}`) ?? refused;
    // Logged once: the next check follows at once, and the pings report a broker that is away.
    if (!failing) logger.warn({ error: describeError(error) }, 'cannot inspect the stream, will retry');
    failing = true;
  }

  return {
    /** False if the account may not subscribe to advisories: then only a check of the stream shows its changes. */
    isSubscribed: (): boolean => isSubscribed && !subscription.isClosed(),
    refused: (): Problem | undefined => refused,
    /** Starts to check the stream, at intervals and after each change. `everyMs` receives whether the last check failed. */
    start(check: () => Promise<void>, everyMs: (isFailing: boolean) => number): void {
      const run = async (): Promise<void> => {
        await check();
        failing = false;
        refused = undefined;
      };
      loop = startPollLoop(run, { everyMs: () => everyMs(failing), onError });
    },
    async stop(): Promise<void> {
      const stopped = loop?.stop();
      forget();
      await stopped;
    },
  };
}
