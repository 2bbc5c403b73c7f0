import type { ClusterInfo, StreamInfo } from '@nats-io/jetstream';
import type { BrokerClock } from './stream.ts';

const nanosOfMs = 1_000_000;

/**
 * How long ago the server that leads a stream has heard the others without which it is not its leader any more,
 * milliseconds: 0 of a stream on one server; undefined where it has not.
 */
function findQuorumAgeMs({ replicas: others = [] }: Partial<ClusterInfo> = {}): number | undefined {
  const needed = Math.floor((others.length + 1) / 2);
  if (needed === 0) return 0;
  // One that was never heard has an age of 0, and is not current.
  const ages = others.filter(({ current, offline }) => current && !offline).map(({ active }) => active / nanosOfMs);
  return ages.toSorted((a, b) => a - b)[needed - 1];
}

/**
 * Reads from what a broker says of a stream what its clock showed then; undefined where it does not say. It looks at its
 * clock after it has looked at the stream, and the two are no further apart than the question is from its answer, which
 * took `tookMs`. A server that is cut off from the others leads on for some seconds, as far as it knows, while another
 * one takes messages: it knows the end of the stream as it was when it has heard a majority of them last.
 */
export function findBrokerClock(
  { ts, cluster }: Partial<Pick<StreamInfo, 'cluster'>> & { readonly ts?: string },
  tookMs: number,
): BrokerClock | undefined {
  const toMs = Date.parse(ts ?? '');
  const quorumAgeMs = findQuorumAgeMs(cluster);
  if (Number.isNaN(toMs) || quorumAgeMs === undefined) return undefined;
  return { fromMs: Math.floor(toMs - tookMs - quorumAgeMs), toMs };
}
