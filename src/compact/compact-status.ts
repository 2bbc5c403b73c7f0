import { type AppError, describeError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { summarizeTables } from '../lake/history.ts';
import type { ExpiredRows } from '../lake/expiry/expire-files.ts';
import { describeForeign } from '../lake/log/table-state.ts';
import type { Snapshot } from '../lake/log/snapshot.ts';
import type { Table } from '../lake/log/table.ts';
import { type StreamFault, faultExplanations } from './position/stream-position.ts';
import type { Logger } from '../runtime/logger.ts';
import type { CompactMetrics } from './compact-metrics.ts';
import { describeClock, isClockBehind } from '../lake/log/lake-state.ts';

export interface StreamFaultRecord {
  readonly fault: StreamFault;
  readonly at: string;
  /** Time of the backup that the lake was restored from; only of `restored`. */
  readonly backupOf?: string;
}

/** A lasting failure: its start (ISO 8601), and its newest error. */
interface Lasting {
  readonly since: string;
  readonly error: string;
}

/** Shorter failures are not reported as problems, ms: a restart of the broker takes less. */
const lastingMs = 5000;
/** Maximum number of faults that are reported individually; the metrics count all. */
const newestFaults = 10;

export type RetryState = ReturnType<typeof createRetryState>;

/** Creates the retry state of a loop: its newest error, and when it began. Tests shorten `lasting`. */
export function createRetryState(clock: Clock, lasting = lastingMs) {
  let trouble: { readonly begunMs: number; readonly since: string; error: string } | undefined;

  function find(): Lasting | undefined {
    if (trouble === undefined || performance.now() - trouble.begunMs < lasting) return undefined;
    return { since: trouble.since, error: trouble.error };
  }

  return {
    /** Records the newest error; returns for how long the loop has been failing, ms: 0 the first time. */
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
  'Check the log of nats-server and its disk, and have clients resend the requests from before that time: those with an Idempotency-Key are stored once.';
const restoredTodo =
  'Have clients resend the requests since that backup: those with an Idempotency-Key are stored once.';

const describeFlushRetries = ({ since, error }: Lasting): Problem => ({
  code: 'flush_failing',
  message: `no events have been committed from the stream to the lake since ${since}: ${error}`,
  action:
    'Remove the cause that the message names, such as a full disk or a missing permission. Flushes then resume; no event is lost while the stream is below its limit.',
  since,
});

const describeFault = ({ fault, at, backupOf }: StreamFaultRecord): Problem => ({
  code: 'stream_fault',
  subject: `${fault} ${at}`,
  message: `at ${at}: ${faultExplanations[fault]}${backupOf === undefined ? '' : ` (the backup was made at ${backupOf})`}`,
  action: fault === 'restored' ? restoredTodo : faultTodo,
});

const describeDamage = (damage: string): Problem => ({
  code: 'dedupe_keys_lost',
  subject: damage,
  message: `the keys of a damaged file are unknown, so duplicates of its events may be stored: ${damage}`,
  action: "Run 'tributary lake check', restore the file from a backup, and restart the service.",
});

const describeFailed = (failed: number): Problem => ({
  code: 'events_failed',
  message: `events that could not be written to the lake are kept as failed events: ${failed}`,
  action:
    "Run 'tributary failed list' for the reasons, and 'tributary failed replay' once their cause is fixed. Events with a reused key are reported to the owners of their apps: save them with 'tributary failed export FILE --reason key_reused', and remove them with 'tributary failed drop --reason key_reused'.",
});

/**
 * Tolerated lead of the broker's clock over this machine's, ms. With a larger one, the lake is without a watermark at
 * times, and soon always: a watermark in the future is not published (lake/watermark.ts).
 */
const brokerToleranceMs = 2000;

const describeBrokerClock = (aheadMs: number): Problem => ({
  code: 'broker_clock_ahead',
  message: `the broker's clock is ${(aheadMs / 1000).toFixed(1)} seconds ahead of this machine's: the watermark would be in the future and is not published; scheduled exports of periods wait for it, up to three hours`,
  action:
    'Set both clocks by a time server (NTP). The watermark is then published again; no event is lost, and change feeds continue.',
});

interface PartStates {
  /** Time up to which the lake is complete, Unix ms; undefined if it is not published. */
  readonly watermarkMs: number | undefined;
  readonly brokerAheadMs: number;
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
  readonly secondaryTables: ReadonlyMap<string, Snapshot>;
  /** Absent without age limits. */
  readonly ageLimits?: ({ readonly day: string } & ExpiredRows) | undefined;
}

interface FactRecordDependencies {
  readonly logger: Logger;
  readonly clock: Clock;
  readonly counted: CompactMetrics;
  readonly table: Table;
}

/** Creates the record of a compactor's status. A restart forgets it. */
export function createObservationRecorder({ logger, clock, counted, table }: FactRecordDependencies) {
  const faults: StreamFaultRecord[] = [];
  const damages: string[] = [];
  const flushRetryState = createRetryState(clock);
  let behindSince: string | undefined;

  /** Reports a newest `available_at` in the future; small steps of the clock are no problem. */
  function describeOwnClock(): Problem[] {
    const nowMs = clock.nowMs();
    const { availableAtMs } = table.lake();
    behindSince = isClockBehind(availableAtMs, nowMs) ? (behindSince ?? new Date(nowMs).toISOString()) : undefined;
    return behindSince === undefined ? [] : [describeClock(availableAtMs, nowMs, behindSince)];
  }

  return {
    flushRetryState,
    fault(fault: StreamFault, figures: Readonly<Record<string, unknown>>): void {
      logger.error({ fault, ...figures }, faultExplanations[fault]);
      counted.streamFault(fault);
      const { backupOf } = figures;
      const at = new Date(clock.nowMs()).toISOString();
      faults.push({ fault, at, ...(typeof backupOf === 'string' ? { backupOf } : {}) });
    },
    damages(found: readonly AppError[]): void {
      for (const error of found.map(describeError)) {
        logger.error({ error }, 'cannot read keys of a damaged file, duplicates of them may be stored');
        if (!damages.includes(error)) damages.push(error);
      }
    },
    /** Returns the status. `problems` make the service not ready; `warnings` only deserve attention. */
    facts(states: PartStates) {
      const { watermarkMs, brokerAheadMs, secondaryTables, ageLimits } = states;
      const { totals, epoch } = table.lake();
      const { version, files } = table.state();
      const foreign = table.foreign();
      const streamFaults = faults.slice(-newestFaults);
      const problems = [
        ...describeOwnClock(),
        // Flushes fail while a foreign commit exists, which is reported once.
        ...(foreign === undefined ? flushRetryState.problems(describeFlushRetries) : [describeForeign(foreign)]),
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
        ...(secondaryTables.size === 0 ? {} : { tables: summarizeTables(secondaryTables) }),
        ...(ageLimits === undefined ? {} : { ageLimits }),
        streamFaults,
        problems,
        warnings,
      };
    },
  };
}
