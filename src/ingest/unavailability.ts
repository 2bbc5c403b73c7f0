import { isKeyOf } from '../runtime/files/checksummed-json.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { brokerSilentProblem } from '../stream/broker-monitor.ts';

/** Causes for which a request fails with 500; an earlier one explains the later ones. */
const causes = {
  disk: {
    code: 'stream_disk_low',
    message: "free space on the stream's disk is below the reserve; imports are rejected",
    action: 'Free some space. Imports resume within a second.',
  },
  full: {
    code: 'stream_full',
    message: 'the stream is full; imports are rejected',
    action: 'Check that the compactor runs and can write the lake, or raise TRIBUTARY_STREAM_MAX_BYTES and restart.',
  },
  away: brokerSilentProblem,
  unconfirmed: {
    code: 'broker_ack_timeout',
    message: 'the broker does not acknowledge events in time; imports are rejected and clients retry',
    action:
      'Check whether the disk of its store is slow, failing or full. The embedded nats-server restarts automatically when it can write.',
  },
  crowded: {
    code: 'broker_overloaded',
    message: 'broker overloaded; some imports are rejected',
    action:
      'No action needed if this resolves; clients retry. Otherwise use a faster disk for its store, or have clients send larger batches.',
  },
} as const satisfies Record<string, Problem>;

export type UnavailabilityCause = keyof typeof causes;
const order = Object.keys(causes).filter((cause) => isKeyOf(causes, cause));

/** Time for which a cause is reported after a refusal, ms: longer than the interval of the status. */
const reportedForMs = 5000;
/** Causes that end with a confirmed group; `crowded` occurs while events are stored. */
const overWhenStored: readonly UnavailabilityCause[] = ['full', 'away', 'unconfirmed'];

export type Unavailability = ReturnType<typeof createUnavailability>;

/** Creates the record of why a process rejects requests. `isDiskLow` is asked each time: it holds without requests. */
export function createUnavailability(isDiskLow: () => boolean) {
  const recordedMs = new Map<UnavailabilityCause, number>();
  const isActive = (unavailabilityCause: UnavailabilityCause): boolean =>
    unavailabilityCause === 'disk'
      ? isDiskLow()
      : performance.now() - (recordedMs.get(unavailabilityCause) ?? Number.NEGATIVE_INFINITY) < reportedForMs;
  return {
    /** Records that a request was refused for this cause, or would be. */
    record: (unavailabilityCause: UnavailabilityCause): void =>
      void recordedMs.set(unavailabilityCause, performance.now()),
    stored(): void {
      for (const unavailabilityCause of overWhenStored) recordedMs.delete(unavailabilityCause);
    },
    answered: (): void => void recordedMs.delete('away'),
    problems(): readonly Problem[] {
      const first = order.find(isActive);
      return first === undefined ? [] : [causes[first]];
    },
  };
}
