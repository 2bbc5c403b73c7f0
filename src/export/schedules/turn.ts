import type { ReportStore } from '../../reports/store.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { findDueSlot, findNextSlot } from '../../schedules/made-slots.ts';
import { findSchedule, readProgress, writeProgress } from '../../schedules/schedule-store.ts';
import { stopReason, type Progress, type Schedule } from '../../schedules/schedules.ts';
import { slotName } from '../../schedules/slot-rule.ts';
import type { Exports } from '../api/exports.ts';
import { createOrders, type OrderDependencies } from './order.ts';
import { settleProgress } from './settle.ts';

export interface TurnDependencies extends OrderDependencies {
  /** The folder of all schedules. */
  readonly schedules: string;
  readonly store: ReportStore;
  readonly exports: Pick<Exports, 'createForSlot'>;
  /** Called with a schedule that stops, and why. */
  readonly onStop: (schedule: Schedule, reason: string) => void;
  /** Called with a slot whose export is made although its period may not be complete. */
  readonly onOverdue: (schedule: Schedule, slot: string) => void;
  readonly crashPoint: CrashPoint;
}

/** The steps of a slot after which a crash must leave it with one export: its request is durable, its progress is. */
export const slotSteps = ['slot-ordered', 'slot-noted'] as const;
type SlotStep = (typeof slotSteps)[number];

/** What came of a turn. */
export interface TurnEnd {
  readonly progress: Progress;
  /** When the next slot is, Unix milliseconds; infinity while its user lets it rest; absent: something else is waited for. */
  readonly nextMs?: number;
}

/** Takes the schedules one step on: one export at a time for each. */
export interface Turns {
  /** Takes a schedule on; undefined when there is none any more. Errors: `record_damaged`, those of the disk. */
  take(idAccount: number, idSchedule: string): Promise<TurnEnd | undefined>;
}

/** Creates the turns; nothing is made before one is taken. */
export function createTurns(dependencies: TurnDependencies): Turns {
  const { schedules, store, exports, slotClock, clock, onStop, onOverdue, crashPoint } = dependencies;
  const order = createOrders(dependencies);

  /** Writes down what is new of a schedule; a request that this has not reached is found again by its slot. */
  async function settle(schedule: Schedule, before: Progress): Promise<Progress> {
    const jobs = await store.select(({ slot }) => slot?.idSchedule === schedule.idSchedule);
    const oldestFirst = jobs.toSorted((a, b) => a.id - b.id);
    const after = settleProgress(schedule, before, oldestFirst);
    if (after !== before) await keep(schedule, after);
    const reason = stopReason(schedule, after);
    if (reason !== undefined && stopReason(schedule, before) === undefined) onStop(schedule, reason);
    return after;
  }

  async function keep(schedule: Schedule, progress: Progress): Promise<Progress> {
    await writeProgress(schedules, schedule, progress);
    await crashPoint('slot-noted' satisfies SlotStep);
    return progress;
  }

  async function stop(schedule: Schedule, progress: Progress, reason: string): Promise<TurnEnd> {
    const stopped = { reason, resumes: schedule.resumes };
    const end = { progress: await keep(schedule, { ...progress, stopped }) };
    onStop(schedule, reason);
    return end;
  }

  /** Makes the oldest slot that is due, where its export may begin. */
  async function make(schedule: Schedule, progress: Progress): Promise<TurnEnd> {
    const { rule, firstSlot, catchUp, idSchedule } = schedule;
    const { made } = progress;
    const nowMs = clock.nowMs();
    const newest = await slotClock.newest(rule, nowMs);
    const slot = findDueSlot({ firstSlot, catchUp, made }, newest);
    if (slot === undefined) {
      const next = findNextSlot({ firstSlot, catchUp, made }, newest);
      return { progress, nextMs: await slotClock.timeOf(rule, next) };
    }
    const ordered = await order(schedule, slot, progress.place, nowMs);
    if (ordered === 'later') return { progress };
    if ('reason' in ordered) return stop(schedule, progress, ordered.reason);
    const { user, request, isOverdue } = ordered;
    const name = slotName(rule, slot);
    const job = await exports.createForSlot(user, request, {
      idSchedule,
      slot,
      name,
      ...(isOverdue ? { mayLack: true } : {}),
    });
    await crashPoint('slot-ordered' satisfies SlotStep);
    if (job === undefined) return { progress };
    if (isOverdue) onOverdue(schedule, name);
    return { progress: await settle(schedule, progress) };
  }

  return {
    async take(idAccount, idSchedule) {
      const schedule = await findSchedule(schedules, idAccount, idSchedule);
      if (schedule === undefined) return undefined;
      // Before its requests are read: one that ends in between must not be passed over for what comes after it.
      const isWaiting = store.inProgress().some(({ slot }) => slot?.idSchedule === idSchedule);
      const progress = await settle(schedule, await readProgress(schedules, schedule));
      if (isWaiting) return { progress };
      const rests = schedule.paused || stopReason(schedule, progress) !== undefined;
      return rests ? { progress, nextMs: Infinity } : make(schedule, progress);
    },
  };
}
