import { type AppError, describeError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { summarizeTables } from '../lake/history.ts';
import { describeForeign } from '../lake/log/table-state.ts';
import type { Snapshot } from '../lake/log/snapshot.ts';
import type { Table } from '../lake/log/table.ts';
import { type FollowDependencies, type StreamFault, faultExplanations } from './position/stream-position.ts';
import type { Logger } from '../runtime/logger.ts';
import type { CompactMetrics } from './compact-metrics.ts';
import { describeClock, isClockBehind } from '../lake/log/lake-state.ts';

/** What a loop waits for to pass: it fails again and again, and goes on by itself when the cause is gone. */
export interface Trouble {
  /** Remembers the newest error; returns for how long it has gone on, milliseconds: 0 the first time. */
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
  /** When the backup was made that the lake was restored from, of a `restored` one. */
  readonly backupOf?: string;
}

/** What the compactor has seen beside the troubles of its loops. */
interface SeenFacts {
  readonly faults: readonly SeenFault[];
  /** Files whose keys are not known. */
  readonly damages: readonly string[];
  readonly clockProblems: readonly Problem[];
}

/** What the compactor knows of the watermark. */
interface KnownWatermark {
  /** Up to when the lake is complete, Unix milliseconds; undefined where that is not told. */
  readonly watermarkMs: number | undefined;
  /** How far the broker's clock is ahead of this machine's, milliseconds. */
  readonly brokerAheadMs: number;
}

/** A trouble that has gone on for less says nothing of the service's health, milliseconds. */
const lastingMs = 5000;
/** Faults reported one by one; the metrics count all. */
const newestFaults = 10;

/** Creates the memory of a loop's trouble; `lasting` can be shortened by tests. */
export function createTrouble(clock: Clock, lasting = lastingMs): Trouble {
  let trouble: { readonly begunMs: number; readonly since: string; error: string } | undefined;
  return {
    note(error) {
      const nowMs = performance.now();
      trouble ??= { begunMs: nowMs, since: new Date(clock.nowMs()).toISOString(), error: '' };
      trouble.error = describeError(error);
      return nowMs - trouble.begunMs;
    },
    clear() {
      trouble = undefined;
    },
    find: () =>
      trouble === undefined || performance.now() - trouble.begunMs < lasting
        ? undefined
        : { since: trouble.since, error: trouble.error },
  };
}

const faultTodo =
  "Look for the cause in nats-server's log and on its disk, and let clients send again what they sent before that time: what carries the same Idempotency-Key is stored once.";
const restoredTodo =
  'Let clients send again what they sent since that backup was made: what carries the same Idempotency-Key is stored once.';

function describeFlushTrouble(trouble: Trouble): Problem[] {
  const found = trouble.find();
  return found === undefined
    ? []
    : [
        {
          code: 'flush_failing',
          what: `events have not come from the stream into the lake since ${found.since}: ${found.error}`,
          todo: 'Remove the cause, such as a full disk or a missing permission: it then goes on by itself, and nothing is lost while the stream has room.',
          since: found.since,
        },
      ];
}

/**
 * The facts that the compactor reports for the service's status; `followers` are the tables beside that of the events.
 * `problems` are what keeps it from its work, so that
 * the service is not ready; `notices` are what an operator should look at while everything works.
 */
export function compactFacts(
  table: Table,
  { watermarkMs, brokerAheadMs }: KnownWatermark,
  { faults, damages, clockProblems }: SeenFacts,
  troubles: {
    readonly flush: Trouble;
    readonly maintenance: readonly Problem[];
    readonly notices: readonly Problem[];
  },
  followers: ReadonlyMap<string, Snapshot> = new Map(),
): Readonly<Record<string, unknown>> {
  const { totals, epoch } = table.lake();
  const { version, files } = table.state();
  const foreign = table.foreign();
  const problems = [
    ...clockProblems,
    ...(foreign === undefined ? [] : [describeForeign(foreign)]),
    // What another engine has done is reported once, and is what the loop waits for.
    ...(foreign === undefined ? describeFlushTrouble(troubles.flush) : []),
    ...troubles.maintenance,
  ];
  const notices: Problem[] = [
    ...troubles.notices,
    ...describeBrokerClock(brokerAheadMs),
    ...faults.slice(-newestFaults).map(({ fault, at, backupOf }) => ({
      code: 'stream_fault' as const,
      subject: `${fault} ${at}`,
      what: `at ${at}: ${faultExplanations[fault]}${backupOf === undefined ? '' : ` (the backup was made at ${backupOf})`}`,
      todo: fault === 'restored' ? restoredTodo : faultTodo,
    })),
    ...damages.map((damage) => ({
      code: 'keys_unknown' as const,
      subject: damage,
      what: `events under a key that this file has are stored again when they are sent again: ${damage}`,
      todo: "Run 'tributary lake check', restore the file from a copy, and start again.",
    })),
    ...(totals.failed === 0
      ? []
      : [
          {
            code: 'events_failed' as const,
            what: `events that could not be written to the lake are kept: ${totals.failed}`,
            todo: "Run 'tributary failed list' for the reasons, and 'tributary failed replay' once they are put right. Those whose key was reused are told to the owners of their apps: keep them by 'tributary failed export FILE --reason key_reused', and remove them by 'tributary failed drop --reason key_reused'.",
          },
        ]),
  ];
  return {
    version,
    ...totals,
    position: epoch?.position ?? 0,
    ...(watermarkMs === undefined ? {} : { watermark: new Date(watermarkMs).toISOString() }),
    files: files.size,
    ...(followers.size === 0 ? {} : { tables: summarizeTables(followers) }),
    streamFaults: faults.slice(-newestFaults),
    problems,
    notices,
  };
}

/** Remembers what the compactor has seen beside the troubles of its loops, for its status, and logs it. */
interface FactRecord {
  /** Takes in a fault of the stream, with its figures. */
  readonly fault: FollowDependencies['alarm'];
  /** Takes in files whose keys are not known. */
  damages(found: readonly AppError[]): void;
  facts(): SeenFacts;
}

interface FactRecordDependencies {
  readonly logger: Logger;
  readonly clock: Clock;
  readonly counted: CompactMetrics;
  /** The lake's newest `available_at`. */
  readonly availableAtMs: () => number;
}

/** Creates the record, empty: a restart forgets. */
export function createFactRecord({ logger, clock, counted, availableAtMs }: FactRecordDependencies): FactRecord {
  const faults: SeenFault[] = [];
  const damages: string[] = [];
  const clockWatch = createClockWatch(clock, availableAtMs);
  return {
    fault(fault, figures) {
      logger.error({ fault, ...figures }, faultExplanations[fault]);
      counted.streamFault(fault);
      const { backupOf } = figures;
      faults.push({
        fault,
        at: new Date(clock.nowMs()).toISOString(),
        ...(typeof backupOf === 'string' ? { backupOf } : {}),
      });
    },
    damages(found) {
      for (const error of found.map(describeError)) {
        logger.error({ error }, 'keys of a damaged file are not known: a repeat of one would be stored again');
        if (!damages.includes(error)) damages.push(error);
      }
    },
    facts: () => ({ faults, damages, clockProblems: clockWatch() }),
  };
}

/** Watches whether the lake's newest `available_at` lies in the future; small steps of the clock are no problem. */
function createClockWatch(clock: Clock, availableAtMs: () => number): () => Problem[] {
  let since: string | undefined;
  return () => {
    const nowMs = clock.nowMs();
    const isBehind = isClockBehind(availableAtMs(), nowMs);
    since = isBehind ? (since ?? new Date(nowMs).toISOString()) : undefined;
    return since === undefined ? [] : [describeClock(availableAtMs(), nowMs, since)];
  };
}

/**
 * A broker's clock that is further ahead than this, milliseconds, leaves the lake without a watermark now and then, and
 * soon always: one that lies in the future is not told (lake/watermark.ts).
 */
const brokerToleranceMs = 2000;

/** Describes a broker's clock that is so many milliseconds ahead of this machine's, if that matters. */
function describeBrokerClock(aheadMs: number): Problem[] {
  if (aheadMs <= brokerToleranceMs) return [];
  return [
    {
      code: 'broker_clock_ahead',
      what: `the broker's clock is ${(aheadMs / 1000).toFixed(1)} seconds ahead of this machine's: the watermark lies in the future and is not told, and scheduled exports of periods wait for it, up to three hours`,
      todo: 'Have both machines follow a time server; the watermark is told again by itself. Nothing is lost meanwhile, and change feeds go on.',
    },
  ];
}
