import {
  hourSlotMs,
  newestHourSlot,
  slotDate,
  slotOfDate,
  toDate,
  toDay,
  type SlotRule,
} from '../../schedules/slot-rule.ts';
import type { ZoneDays } from '../api/calendar.ts';

/** Says when slots are. */
export interface SlotClock {
  /**
   * When a slot is, Unix milliseconds: when the clocks of its zone first show its time or a later one. So a slot in an
   * hour that clocks leave out is at the moment at which they are set forward, and one in an hour that comes twice is in
   * the first.
   */
  timeOf(rule: SlotRule, slot: number): Promise<number>;
  /** The newest slot whose time has come. */
  newest(rule: SlotRule, nowMs: number): Promise<number>;
}

/** Creates the clock over the calendar of the export area. */
export function createSlotClock(days: ZoneDays): SlotClock {
  async function timeOf(rule: SlotRule, slot: number): Promise<number> {
    if (rule.every === 'hour') return hourSlotMs(rule, slot);
    return (await days.momentOf(rule.timezone, slotDate(rule, slot), rule.at)) * 1000;
  }
  return {
    timeOf,
    async newest(rule, nowMs) {
      if (rule.every === 'hour') return newestHourSlot(rule, nowMs);
      const today = await days.currentDate(rule.timezone, nowMs);
      // Where clocks go back over midnight, the time of tomorrow's slot may have come already.
      let slot = slotOfDate(rule, toDate(toDay(today) + 1));
      while ((await timeOf(rule, slot)) > nowMs) slot -= 1;
      return slot;
    },
  };
}
