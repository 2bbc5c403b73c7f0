import { isCompleteUpTo } from '../../lake/watermark.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Schedule } from '../../schedules/schedules.ts';
import type { ExportSpec } from '../jobs/export-spec.ts';
import { tableDirOf } from '../jobs/table-of.ts';
import type { SlotClock } from './slot-clock.ts';

/** The longest that a slot waits for the lake to be complete, from its time or from the start of this process on. */
export const longestWaitMs = 3 * 3_600_000;

/**
 * Whether the export of a slot may be made: `complete`, its period has all that was acknowledged before its end; `waits`;
 * or `overdue`, it may lack some of it, and has waited long enough.
 */
export type Readiness = 'complete' | 'waits' | 'overdue';

export interface SlotWaitDependencies {
  readonly lakeDir: string;
  readonly slotClock: SlotClock;
  readonly clock: Clock;
}

/**
 * Creates what has slots wait until the watermark of their table has passed the end of their period. An import that has
 * stopped holds them for a while only; slots that a stop has left wait together, for what is still on its way. A chain of
 * changes waits for nothing: what one export has not yet, the next one has.
 */
export function createSlotWait({
  lakeDir,
  slotClock,
  clock,
}: SlotWaitDependencies): (schedule: Schedule, slot: number, request: ExportSpec) => Promise<Readiness> {
  let startedMs = clock.nowMs();
  // The watermark goes by the clock of the broker, which nobody has moved.
  const { offsetMs = 0 } = clock;
  const brokerClock: Clock = { nowMs: () => clock.nowMs() - offsetMs };
  return async ({ rule }, slot, request) => {
    const { beforeSeconds } = request.eventTime;
    if (request.sinceVersion !== undefined || beforeSeconds === undefined) return 'complete';
    const untilMs = beforeSeconds * 1000 - offsetMs;
    if (await isCompleteUpTo(tableDirOf(lakeDir, request), untilMs, brokerClock)) return 'complete';
    const nowMs = clock.nowMs();
    // A clock that was ahead at the start would make them wait for it to be reached again.
    startedMs = Math.min(startedMs, nowMs);
    const sinceMs = Math.max(startedMs, await slotClock.timeOf(rule, slot));
    return nowMs - sinceMs < longestWaitMs ? 'waits' : 'overdue';
  };
}
