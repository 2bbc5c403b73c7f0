import type { Problem } from '../runtime/conditions/problem.ts';
import { brokerSilent } from '../stream/broker-monitor.ts';

/**
 * Every cause for which a request is answered with 500 while the service runs, in the order in which they explain the
 * others.
 */
const causes = {
  disk: {
    code: 'stream_disk_low',
    what: "the stream's disk has come down to its reserve, events are refused",
    todo: 'Free some space: events are taken again by themselves within a second.',
  },
  full: {
    code: 'stream_full',
    what: 'the stream is full, events are refused',
    todo: 'See that the compactor runs and can write the lake, or raise TRIBUTARY_STREAM_MAX_BYTES.',
  },
  away: brokerSilent,
  unconfirmed: {
    code: 'broker_unconfirmed',
    what: 'the broker does not confirm events in time, clients are told to send again',
    todo: 'See whether the disk of its store is slow, failing or full: a frozen nats-server of the service is restarted by itself once it can write.',
  },
  crowded: {
    code: 'broker_overloaded',
    what: 'more events come than the broker takes, some are refused',
    todo: 'Nothing, if it passes: clients send again. Otherwise give its store a faster disk, or send larger batches.',
  },
} as const satisfies Record<string, Problem>;

export type Cause = keyof typeof causes;
const order = Object.keys(causes) as Cause[];

/** A cause is reported for so long after a refusal, milliseconds: longer than a poll of the status takes. */
const reportedForMs = 5000;
/** What a confirmed group proves to be over; `crowded` goes together with events that are stored. */
const overWhenStored: readonly Cause[] = ['full', 'away', 'unconfirmed'];

/** Remembers why requests are refused, for as long as that says something of the next one. */
export interface Trouble {
  /** A request was refused for this cause, or would be. */
  note(cause: Cause): void;
  /** A group was stored. */
  stored(): void;
  /** The broker answers again. */
  answered(): void;
  /** The causes that hold now, as problems. */
  problems(): readonly Problem[];
}

/** Creates the memory of one process. `isDiskLow` is asked each time: it holds without a request, too. */
export function createTrouble(isDiskLow: () => boolean): Trouble {
  const notedMs = new Map<Cause, number>();
  const holds = (cause: Cause): boolean =>
    cause === 'disk'
      ? isDiskLow()
      : performance.now() - (notedMs.get(cause) ?? Number.NEGATIVE_INFINITY) < reportedForMs;
  return {
    note: (cause) => void notedMs.set(cause, performance.now()),
    stored() {
      for (const cause of overWhenStored) notedMs.delete(cause);
    },
    answered: () => void notedMs.delete('away'),
    problems() {
      const first = order.find(holds);
      return first === undefined ? [] : [causes[first]];
    },
  };
}
