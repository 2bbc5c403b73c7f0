import { describeError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Table } from '../lake/table.ts';
import { faultExplanations, type StreamFault } from './follow.ts';

/** What a loop waits for to pass: it fails again and again, and goes on by itself when the cause is gone. */
export interface Trouble {
  /** Remembers the newest error; returns for how long it has gone on, milliseconds. */
  note(error: unknown): number;
  /** The loop works again. */
  clear(): void;
  /** The newest error, when it has gone on for longer than a restart of the broker takes. */
  find(): { readonly since: string; readonly error: string } | undefined;
}

/** A fault of the stream, and when it was found (ISO 8601). */
export interface SeenFault {
  readonly fault: StreamFault;
  readonly at: string;
}

/** One sentence of what is the matter, and one of what to do: the shape in which a stage reports to the operator. */
interface Remark {
  readonly what: string;
  readonly todo: string;
}

/** A trouble that has gone on for less says nothing of the service's health, milliseconds. */
const lastingMs = 5000;
/** Faults told one by one; the metrics count all. */
const newestFaults = 10;

/** Creates the memory of a loop's trouble; `lasting` can be shortened by tests. */
export function createTrouble(clock: Clock, lasting = lastingMs): Trouble {
  let trouble: { readonly begunMs: number; readonly since: string; error: string } | undefined;
  return {
    note(error) {
      trouble ??= { begunMs: performance.now(), since: new Date(clock.nowMs()).toISOString(), error: '' };
      trouble.error = describeError(error);
      return performance.now() - trouble.begunMs;
    },
    clear() {
      trouble = undefined;
    },
    find: () => (trouble === undefined || performance.now() - trouble.begunMs < lasting ? undefined : { since: trouble.since, error: trouble.error }),
  };
}

function describeTrouble(trouble: Trouble, what: string, todo: string): Remark[] {
  const found = trouble.find();
  return found === undefined ? [] : [{ what: `${what} since ${found.since}: ${found.error}`, todo }];
}

/**
 * The facts that the compactor reports for the service's status. `problems` are what keeps it from its work, so that the
 * service is not ready; `notices` are what an operator should look at while everything works.
 */
export function compactFacts(table: Table, faults: readonly SeenFault[], troubles: { readonly flush: Trouble; readonly upkeep: Trouble }): Readonly<Record<string, unknown>> {
  const { totals, epoch } = table.lake();
  const { version, files } = table.state();
  const problems = [
    ...describeTrouble(troubles.flush, 'events do not get from the stream into the lake', 'Nothing is lost while the stream has room; it goes on by itself once the cause is gone.'),
    ...describeTrouble(troubles.upkeep, 'young files of the lake are not sealed or cleaned up', 'Exports and SQL go on; it goes on by itself once the cause is gone.'),
  ];
  const notices = [
    ...faults.slice(-newestFaults).map(({ fault, at }) => ({
      what: `at ${at}: ${faultExplanations[fault]}`,
      todo: "Look for the cause in nats-server's log and on its disk, and let clients send again what they sent before that time: what carries the same Idempotency-Key is stored once.",
    })),
    ...(totals.failed === 0
      ? []
      : [{ what: `events that could not be written to the lake are kept: ${totals.failed}`, todo: "Run 'tributary failed list' for the reasons, and 'tributary failed replay' once they are put right." }]),
  ];
  return { version, ...totals, position: epoch?.position ?? 0, files: files.size, streamFaults: faults.slice(-newestFaults), problems, notices };
}
