import { describeError, type AppError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/logger.ts';
import { createClockWatch } from './clock-watch.ts';
import type { CompactMetrics } from './compact-metrics.ts';
import type { SeenFacts, SeenFault } from './compact-status.ts';
import { faultExplanations, type FollowDependencies } from './position/stream-position.ts';

/** Remembers what the compactor has seen beside the troubles of its loops, for its status, and logs it. */
export interface FactRecord {
  /** Takes in a fault of the stream, with its figures. */
  readonly fault: FollowDependencies['alarm'];
  /** Takes in files whose keys are not known. */
  damages(found: readonly AppError[]): void;
  facts(): SeenFacts;
}

export interface FactRecordDependencies {
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
    facts: () => ({ faults, damages, clockProblems: clockWatch.problems() }),
  };
}
