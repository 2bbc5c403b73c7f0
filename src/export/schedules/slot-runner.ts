/**
 * Creates the exports of schedules: one per slot.
 *
 * In: the schedules (src/schedules), which users and commands change, and the clock. Out: export requests; each names
 * its slot.
 * Invariant: a slot has one request. Nothing is created before the requests of earlier processes have been read, and no
 * request is deleted before the progress of its schedule has its end. A slot whose request exceeds a limit waits.
 * Crash: between a request and its progress, the next start finds the request by its slot.
 */
import type { ReportJob } from '../../reports/reports.ts';
import { defined } from '../../runtime/files/checksummed-json.ts';
import { startPollLoop } from '../../runtime/async/poll-loop.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import {
  openSchedules,
  listScheduleIds,
  orDamaged,
  removeScheduleProgress,
  type ScheduleId,
} from '../../schedules/schedule-store.ts';
import { findStop, type ScheduleProgress, type ScheduleStop } from '../../schedules/schedules.ts';
import { createScheduleReconciler, isSettled, type ReconcileDependencies } from './reconcile.ts';

export interface SlotRunnerDependencies extends Omit<ReconcileDependencies, 'onStop' | 'onOverdue'> {
  readonly logger: Logger;
  /** Settles when the requests of earlier processes have been read once. */
  readonly loaded: Promise<void>;
  readonly everyMs?: number;
}

const defaultEveryMs = 5000;

/** The state of a schedule between its checks. */
interface Known {
  /** Undefined if its records cannot be read. */
  readonly progress: ScheduleProgress | undefined;
  /** Times of the last check and of the next, Unix ms; 0: at each check; infinity: once its user changes it. */
  readonly lookedMs: number;
  readonly nextMs: number;
  /** The members that its user changes, before the check. */
  readonly state: string;
  /** Present while the schedule is stopped, unless a version before 0.4 has stopped it. */
  readonly stop?: ScheduleStop;
  /** The error of the last check; `damage` if its records are damaged. */
  readonly failure?: string;
  readonly damage?: string;
}

async function findState(schedules: string, { idAccount, idSchedule }: ScheduleId): Promise<string> {
  const schedule = await orDamaged(openSchedules(schedules).find(idAccount, idSchedule));
  return schedule === 'damaged' ? schedule : `${schedule?.paused} ${schedule?.resumes}`;
}

/** Creates the check of a schedule: it advances, or has the error; undefined if it was removed. */
function createTurn(
  dependencies: SlotRunnerDependencies,
): (id: ScheduleId, before: Known | undefined) => Promise<Known | undefined> {
  const { schedules, clock, logger } = dependencies;
  const reconciler = createScheduleReconciler({
    ...dependencies,
    onStop: ({ idSchedule, idAccount }, reason) =>
      logger.warn({ idSchedule, idAccount, reason }, 'schedule stopped until its user resumes it'),
    onOverdue: ({ idSchedule, idAccount }, slot) =>
      logger.warn({ idSchedule, idAccount, slot }, 'export of a slot created before its events are complete'),
  });
  return async (id, before) => {
    const { idAccount, idSchedule } = id;
    const lookedMs = clock.nowMs();
    const state = await findState(schedules, id);
    try {
      const end = await reconciler.take(idAccount, idSchedule);
      if (end === undefined) return undefined;
      const { progress, nextMs = 0 } = end;
      const schedule =
        progress.stopped === undefined ? undefined : await openSchedules(schedules).find(idAccount, idSchedule);
      const stop = schedule === undefined ? undefined : findStop(schedule, progress);
      return { progress, lookedMs, nextMs, state, ...defined({ stop }) };
    } catch (error) {
      const failure = describeError(error);
      if (before?.failure !== failure) logger.error({ idSchedule, error: failure }, 'cannot run schedule, will retry');
      const damage = isAppError(error, 'record_damaged') ? { damage: failure } : {};
      return { progress: before?.progress, lookedMs, nextMs: 0, state, failure, ...damage };
    }
  };
}

export function startSlotRunner(dependencies: SlotRunnerDependencies) {
  const { schedules, store, clock, logger, loaded, everyMs = defaultEveryMs } = dependencies;
  let known = new Map<string, Known>();
  let isLoaded = false;
  let hasLooked = false;
  const takeTurn = createTurn(dependencies);

  /** Reports whether a check is due; a clock that was set back may have slots that no check has seen. */
  const isDue = ({ nextMs, lookedMs }: Known, nowMs: number): boolean => nextMs <= nowMs || nowMs < lookedMs;

  async function lookAtOne(id: ScheduleId, isAsked: boolean): Promise<Known | undefined> {
    const before = known.get(id.idSchedule);
    const isSame =
      before !== undefined &&
      !isAsked &&
      !isDue(before, clock.nowMs()) &&
      (before.nextMs < Infinity || (await findState(schedules, id)) === before.state);
    return isSame ? before : await takeTurn(id, before);
  }

  /** The newest request of a schedule: of several, the one with the oldest comes first. */
  const lastReport = ({ idSchedule }: ScheduleId): number => known.get(idSchedule)?.progress?.lastReport ?? 0;

  async function lookAtAll(signal: AbortSignal): Promise<void> {
    // An unread request may be that of a slot.
    if (!store.isLoaded()) await store.load(signal);
    if (!store.isLoaded()) throw new Error('cannot read all export requests of earlier processes');
    hasLooked = false;
    const { ids, left, asked } = await listScheduleIds(schedules);
    for (const id of left) await removeScheduleProgress(schedules, id);
    const found = new Map<string, Known>();
    for (const id of ids.toSorted((a, b) => lastReport(a) - lastReport(b))) {
      if (signal.aborted) return;
      const after = await lookAtOne(id, asked.has(id.idSchedule));
      if (after !== undefined) found.set(id.idSchedule, after);
    }
    known = found;
    hasLooked = true;
  }

  const loop = startPollLoop((signal) => (isLoaded ? lookAtAll(signal) : undefined), {
    everyMs,
    onError: (error) => logger.error({ error: describeError(error) }, 'cannot run schedules, will retry'),
  });
  void loaded.then(() => {
    isLoaded = true;
    loop.wake();
  });

  return {
    /** Checks the schedules after a request has ended, or a run was asked for. */
    onEnd: (): void => loop.wake(),
    /** Reports whether an expired request must stay, since its schedule has not recorded its end. */
    isHeld(job: ReportJob): boolean {
      if (job.slot === undefined) return false;
      const schedule = known.get(job.slot.idSchedule);
      if (schedule === undefined) return !hasLooked;
      // A damaged schedule records nothing; it must not keep expired requests.
      if (schedule.damage !== undefined) return false;
      return schedule.progress === undefined || !isSettled(schedule.progress, job);
    },
    /** Lists the schedules that are stopped. */
    stops: (): readonly ScheduleStop[] => [...known.values()].flatMap(({ stop }) => stop ?? []),
    notices: (): readonly Problem[] =>
      [...known].flatMap(([idSchedule, { damage }]) => {
        const message = `schedule ${idSchedule} creates no exports: ${damage}`;
        const action = 'Restore its records from a backup, or ask its user to delete it and create it again.';
        return damage === undefined
          ? []
          : { code: 'schedule_unreadable' as const, subject: idSchedule, message, action };
      }),
    stop: (): Promise<void> => loop.stop(),
  };
}
