import { type AppError, describeError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { summarizeTables } from '../lake/history.ts';
import { describeForeign } from '../lake/log/table-state.ts';
import type { Snapshot } from '../lake/log/snapshot.ts';
import type { Table } from '../lake/log/table.ts';
import { type StreamFault, faultExplanations } from './position/stream-position.ts';
import type { Logger } from '../runtime/logger.ts';
import type { CompactMetrics } from './compact-metrics.ts';
import { describeClock, isClockBehind } from '../lake/log/lake-state.ts';

export interface SeenFault {
  readonly fault: StreamFault;
  readonly at: string;
  /** Time of the backup that the lake was restored from; only of `restored`. */
  readonly backupOf?: string;
}

/** A failure that lasts: when it began (ISO 8601), and its newest error. */
interface Lasting {
  readonly since: string;
  readonly error: string;
}

/** Longer than a restart of the broker takes, ms: a shorter failure is no problem of the service. */
const lastingMs = 5000;
/** Limits the faults that are reported one by one; the metrics count all. */
const newestFaults = 10;

export type Trouble = ReturnType<typeof createTrouble>;

/** Creates the record of the error that a loop keeps retrying, and of when it began. Tests shorten `lasting`. */
export function createTrouble(clock: Clock, lasting = lastingMs) {
  let trouble: { readonly begunMs: number; readonly since: string; error: string } | undefined;

  function find(): Lasting | undefined {
    if (trouble === undefined || performance.now() - trouble.begunMs < lasting) return undefined;
    return { since: trouble.since, error: trouble.error };
  }

  return {
    /** Records the newest error; returns for how long the loop has failed, ms: 0 the first time. */
    note(error: unknown): number {
      const nowMs = performance.now();
      trouble ??= { begunMs: nowMs, since: new Date(clock.nowMs()).toISOString(), error: '' };
      trouble.error = describeError(error);
      return nowMs - trouble.begunMs;
    },
    clear(): void {
      trouble = undefined;
    },
    find,
    problems(describe: (lasting: Lasting) => Problem): Problem[] {
      const found = find();
      return found === undefined ? [] : [describe(found)];
    },
  };
}

const faultTodo =
  "Look for the cause in nats-server's log and on its disk, and let clients send again what they sent before that time: what carries the same Idempotency-Key is stored once.";
const restoredTodo =
  'Let clients send again what they sent since that backup was made: what carries the same Idempotency-Key is stored once.';

const describeFlushTrouble = ({ since, error }: Lasting): Problem => ({
  code: 'flush_failing',
  message: `events have not come from the stream into the lake since ${since}: ${error}`,
  action:
    'Remove the cause, such as a full disk or a missing permission: it then goes on by itself, and nothing is lost while the stream has room.',
  since,
});

const describeFault = ({ fault, at, backupOf }: SeenFault): Problem => ({
  code: 'stream_fault',
  subject: `${fault} ${at}`,
  message: `at ${at}: ${faultExplanations[fault]}${backupOf === undefined ? '' : ` (the backup was made at ${backupOf})`}`,
  action: fault === 'restored' ? restoredTodo : faultTodo,
});

const describeDamage = (damage: string): Problem => ({
  code: 'dedupe_keys_lost',
  subject: damage,
  message: `events under a key that this file has are stored again when they are sent again: ${damage}`,
  action: "Run 'tributary lake check', restore the file from a copy, and start again.",
});

const describeFailed = (failed: number): Problem => ({
  code: 'events_failed',
  message: `events that could not be written to the lake are kept: ${failed}`,
  action:
    "Run 'tributary failed list' for the reasons, and 'tributary failed replay' once they are put right. Those whose key was reused are told to the owners of their apps: keep them by 'tributary failed export FILE --reason key_reused', and remove them by 'tributary failed drop --reason key_reused'.",
});

/**
 * Limits how far the broker's clock may be ahead of this machine's, ms. Beyond it, the lake is without a watermark now
 * and then, and soon always: a watermark in the future is not published (lake/watermark.ts).
 */
const brokerToleranceMs = 2000;

const describeBrokerClock = (aheadMs: number): Problem => ({
  code: 'broker_clock_ahead',
  message: `the broker's clock is ${(aheadMs / 1000).toFixed(1)} seconds ahead of this machine's: the watermark lies in the future and is not told, and scheduled exports of periods wait for it, up to three hours`,
  action:
    'Have both machines follow a time server; the watermark is told again by itself. Nothing is lost meanwhile, and change feeds go on.',
});

interface PartStates {
  /** Time up to which the lake is complete, Unix ms; undefined if it is not published. */
  readonly watermarkMs: number | undefined;
  readonly brokerAheadMs: number;
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
  readonly followers: ReadonlyMap<string, Snapshot>;
}

interface FactRecordDependencies {
  readonly logger: Logger;
  readonly clock: Clock;
  readonly counted: CompactMetrics;
  readonly table: Table;
}

/** Creates the record of a compactor's status. A restart forgets it. */
export function createFactRecord({ logger, clock, counted, table }: FactRecordDependencies) {
  const faults: SeenFault[] = [];
  const damages: string[] = [];
  const flushTrouble = createTrouble(clock);
  let behindSince: string | undefined;

  /** Reports a newest `available_at` in the future; small steps of the clock are no problem. */
  function describeOwnClock(): Problem[] {
    const nowMs = clock.nowMs();
    const { availableAtMs } = table.lake();
    behindSince = isClockBehind(availableAtMs, nowMs) ? (behindSince ?? new Date(nowMs).toISOString()) : undefined;
    return behindSince === undefined ? [] : [describeClock(availableAtMs, nowMs, behindSince)];
  }

  return {
    flushTrouble,
    fault(fault: StreamFault, figures: Readonly<Record<string, unknown>>): void {
      logger.error({ fault, ...figures }, faultExplanations[fault]);
      counted.streamFault(fault);
      const { backupOf } = figures;
      const at = new Date(clock.nowMs()).toISOString();
      faults.push({ fault, at, ...(typeof backupOf === 'string' ? { backupOf } : {}) });
    },
    /** Records files whose keys could not be read. */
    damages(found: readonly AppError[]): void {
      for (const error of found.map(describeError)) {
        logger.error({ error }, 'keys of a damaged file are not known: a repeat of one would be stored again');
        if (!damages.includes(error)) damages.push(error);
      }
    },
    /** Returns the status. With `problems` the service is not ready; `warnings` are for an operator while all works. */
    facts(states: PartStates): Readonly<Record<string, unknown>> {
      const { watermarkMs, brokerAheadMs, followers } = states;
      const { totals, epoch } = table.lake();
      const { version, files } = table.state();
      const foreign = table.foreign();
      const streamFaults = faults.slice(-newestFaults);
      const problems = [
        ...describeOwnClock(),
        // The flushes fail while another engine's commit stands: it is reported once.
        ...(foreign === undefined ? flushTrouble.problems(describeFlushTrouble) : [describeForeign(foreign)]),
        ...states.problems,
      ];
      const warnings = [
        ...states.warnings,
        ...(brokerAheadMs <= brokerToleranceMs ? [] : [describeBrokerClock(brokerAheadMs)]),
        ...streamFaults.map(describeFault),
        ...damages.map(describeDamage),
        ...(totals.failed === 0 ? [] : [describeFailed(totals.failed)]),
      ];
      return {
        version,
        ...totals,
        position: epoch?.position ?? 0,
        ...(watermarkMs === undefined ? {} : { watermark: new Date(watermarkMs).toISOString() }),
        files: files.size,
        ...(followers.size === 0 ? {} : { tables: summarizeTables(followers) }),
        streamFaults,
        problems,
        warnings,
      };
    },
  };
}
