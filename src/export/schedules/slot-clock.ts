import { isCompleteUpTo } from '../../lake/watermark.ts';
import type { Clock } from '../../runtime/clock.ts';
import {
  hourSlotMs,
  newestHourSlot,
  slotDate,
  slotOfDate,
  toDate,
  toDay,
  type Schedule,
  type Recurrence,
} from '../../schedules/schedules.ts';
import type { Calendar } from '../api/calendar.ts';
import type { ExportSpec } from '../jobs/export-spec.ts';
import { tableDirOf } from '../jobs/read-plan.ts';

export type SlotClock = ReturnType<typeof createSlotClock>;

export function createSlotClock(days: Calendar) {
  /**
   * Returns the time of a slot, Unix ms: when the clocks of its zone first show its time or a later one. A slot in an
   * hour that clocks skip is at the moment of the change, one in an hour that comes twice in the first.
   */
  async function timeOf(rule: Recurrence, slot: number): Promise<number> {
    if (rule.every === 'hour') return hourSlotMs(rule, slot);
    return (await days.momentOf(rule.timezone, slotDate(rule, slot), rule.at)) * 1000;
  }
  return {
    timeOf,
    async newest(rule: Recurrence, nowMs: number): Promise<number> {
      if (rule.every === 'hour') return newestHourSlot(rule, nowMs);
      const today = await days.currentDate(rule.timezone, nowMs);
      // The time of tomorrow's slot may have come already: clocks may go back over midnight.
      let slot = slotOfDate(rule, toDate(toDay(today) + 1));
      while ((await timeOf(rule, slot)) > nowMs) slot -= 1;
      return slot;
    },
  };
}

/** How long a slot waits for the lake to be complete, from its time or the start of this process, ms. */
export const maxCompletenessWaitMs = 3 * 3_600_000;

export interface CompletenessGateDependencies {
  readonly lakeDir: string;
  readonly slotClock: SlotClock;
  readonly clock: Clock;
}

/**
 * Creates the wait of a slot until the watermark of its table has passed the end of its period. `overdue`: events
 * acknowledged before that end may be missing; the slot has waited long enough. A change feed does not wait: its next
 * export has the missing rows.
 */
export function createCompletenessGate({
  lakeDir,
  slotClock,
  clock,
}: CompletenessGateDependencies): (
  schedule: Schedule,
  slot: number,
  request: ExportSpec,
) => Promise<'complete' | 'waits' | 'overdue'> {
  let startedMs = clock.nowMs();
  // The watermark follows the broker's clock, without this clock's offset.
  const { offsetMs = 0 } = clock;
  const brokerClock: Clock = { nowMs: () => clock.nowMs() - offsetMs };
  return async ({ rule }, slot, request) => {
    const { beforeSeconds } = request.eventTime;
    if (request.sinceVersion !== undefined || beforeSeconds === undefined) return 'complete';
    const untilMs = beforeSeconds * 1000 - offsetMs;
    if (await isCompleteUpTo(tableDirOf(lakeDir, request), untilMs, brokerClock)) return 'complete';
    const nowMs = clock.nowMs();
    // A clock that was ahead at the start must not prolong the wait.
    startedMs = Math.min(startedMs, nowMs);
    const sinceMs = Math.max(startedMs, await slotClock.timeOf(rule, slot));
    return nowMs - sinceMs < maxCompletenessWaitMs ? 'waits' : 'overdue';
  };
}
