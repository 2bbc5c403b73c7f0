import type { StreamInfo } from '@nats-io/jetstream';
import type { Problem } from '../runtime/conditions/problem.ts';
import { claimedSubject, findClaim, findKeptClaim, judgeClaim, takenProblem } from './lease.ts';
import { streamIdOf } from './stream.ts';
import { describeDeviations, findDeviations, type Deviation } from './stream-settings.ts';

/** Whether a 200 may rest on the stream: `open` under a subject, `shut` for a reason, or not known now. */
export type StreamVerdict =
  | { readonly kind: 'open'; readonly subject: string; readonly streamId: string }
  | { readonly kind: 'shut'; readonly problem: Problem }
  | { readonly kind: 'unknown' };

/** The problem while the stream is not there. */
export function missingProblem(streamName: string): Problem {
  return {
    code: 'stream_missing',
    what: `the stream ${streamName} is gone from the broker: no event is taken`,
    todo: 'Nothing, if it passes: the service makes it anew. Otherwise see that its account may create streams.',
  };
}

/** The problem while the stream has settings under which acknowledged events can be lost. */
export function unsafeProblem(streamName: string, deviations: readonly Deviation[]): Problem {
  return {
    code: 'stream_unsafe',
    what: `the stream ${streamName} would lose acknowledged events, no event is taken: ${describeDeviations(deviations)}`,
    todo: 'Nothing, if it passes: the service puts it right. Otherwise set it back, or give the account of the service leave to update streams.',
  };
}

/** The problem while the data folder does not say which claim is its own. */
export function claimMissingProblem(claimFile: string): Problem {
  return {
    code: 'claim_missing',
    what: `${claimFile} is gone or damaged: no event is taken`,
    todo: 'Start the service again.',
  };
}

/** Judges a stream, or that there is none, by its settings and by the claim that the data folder keeps. */
export async function judgeStream(
  info: StreamInfo | undefined,
  streamName: string,
  claimFile: string,
): Promise<StreamVerdict> {
  if (info === undefined) return { kind: 'shut', problem: missingProblem(streamName) };
  const own = await findKeptClaim(claimFile);
  if (own === undefined) return { kind: 'shut', problem: claimMissingProblem(claimFile) };
  const found = findClaim(info.config.metadata);
  const verdict = judgeClaim(found, own);
  if (found !== undefined && (verdict === 'taken' || verdict === 'foreign'))
    return { kind: 'shut', problem: takenProblem(streamName, found) };
  const subject = claimedSubject(streamName, own.token);
  const vital = findDeviations(info.config, { subject, maxBytes: 0 }).filter((deviation) => deviation.vital);
  // Not yet claimed again: the owner is about to do so.
  if (vital.length > 0 || verdict !== 'ours') return { kind: 'shut', problem: unsafeProblem(streamName, vital) };
  return { kind: 'open', subject, streamId: streamIdOf(streamName, info.created) };
}
