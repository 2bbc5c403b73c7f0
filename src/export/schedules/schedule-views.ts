import type { Clock } from '../../runtime/clock.ts';
import { findDueSlot, findNextSlot } from '../../schedules/made-slots.ts';
import { readProgress } from '../../schedules/schedule-store.ts';
import { stopReason, type Schedule } from '../../schedules/schedules.ts';
import { slotName, weekdays } from '../../schedules/slot-rule.ts';
import type { SlotClock } from './slot-clock.ts';

/** A schedule as answers have it. */
export type ScheduleView = Readonly<Record<string, unknown>>;

export interface ScheduleViewDependencies {
  /** The folder of all schedules. */
  readonly schedules: string;
  readonly slotClock: SlotClock;
  readonly clock: Clock;
}

/** Creates what turns a schedule, with what has come of it so far, into an answer. Error: `record_damaged`. */
export function createScheduleViews({
  schedules,
  slotClock,
  clock,
}: ScheduleViewDependencies): (schedule: Schedule) => Promise<ScheduleView> {
  return async (schedule) => {
    const { idSchedule, idUser, rule, catchUp, sinceVersion, createdMs, paused } = schedule;
    const progress = await readProgress(schedules, schedule);
    const { made, lastReport, place } = progress;
    const reason = stopReason(schedule, progress);
    const slots = { firstSlot: schedule.firstSlot, catchUp, made };
    const newest = await slotClock.newest(rule, clock.nowMs());
    const next = findDueSlot(slots, newest) ?? findNextSlot(slots, newest);
    const last = made.at(-1)?.[1];
    const runs = !paused && reason === undefined;
    return {
      idSchedule,
      idUser,
      every: rule.every,
      at: rule.at,
      ...(rule.weekday === undefined ? {} : { weekday: weekdays[rule.weekday - 1] }),
      timezone: rule.timezone,
      ...(sinceVersion === undefined ? { catchUp: String(catchUp) } : { sinceVersion }),
      arguments: Object.fromEntries(schedule.arguments),
      status: runs ? 'Active' : reason === undefined ? 'Paused' : 'Stopped',
      ...(reason === undefined ? {} : { reason }),
      timestampCreated: String(Math.floor(createdMs / 1000)),
      ...(runs ? { timestampNextSlot: String(Math.floor((await slotClock.timeOf(rule, next)) / 1000)) } : {}),
      ...(last === undefined ? {} : { lastSlot: slotName(rule, last), idRawExport: String(lastReport) }),
      ...(sinceVersion === undefined ? {} : { nextSinceVersion: place ?? sinceVersion }),
    };
  };
}
