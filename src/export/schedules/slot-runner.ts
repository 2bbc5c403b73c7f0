/**
 * Makes the exports of schedules: one for each slot.
 *
 * In: the schedules at rest (src/schedules), which users and commands change at any time, and the clock. Out: export
 * requests like any other, each of which names its slot.
 * Invariant: a slot has one request. Nothing is made before all requests of earlier processes have been read, and no
 * request goes before the progress of its schedule has what it says: so a slot is known to have one, however often this
 * process was killed. A slot whose request finds no room waits; it is not skipped for it.
 * Crash: between a request and the progress that has it, the next start finds the request by its slot.
 */
import type { ReportJob } from '../../reports/reports.ts';
import { startPollLoop } from '../../runtime/async/poll-loop.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import type { Logger } from '../../runtime/logger.ts';
import {
  findSchedule,
  listScheduleIds,
  orDamaged,
  removeProgress,
  type ScheduleId,
} from '../../schedules/schedule-store.ts';
import type { Progress, Schedule } from '../../schedules/schedules.ts';
import { isSettled } from './settle.ts';
import { createTurns, type TurnDependencies } from './turn.ts';

/** The running schedules. */
export interface SlotRunner extends Stoppable {
  /** Says that a request has ended: the next of its schedule may begin, and there may be room for others. */
  onEnd(): void;
  /** Whether a request must stay, expired or not, because its schedule has not taken it in. */
  isHeld(job: ReportJob): boolean;
  /** Schedules whose records cannot be read. */
  notices(): readonly Problem[];
}

export interface SlotRunnerDependencies extends Omit<TurnDependencies, 'onStop' | 'onOverdue'> {
  readonly logger: Logger;
  /** Settles when the requests of earlier processes have been read once. */
  readonly loaded: Promise<void>;
  /** How soon a slot is made after its time, and a change by a command is seen, at most. */
  readonly everyMs?: number;
}

const defaultEveryMs = 5000;

/** What is known of a schedule between its turns. */
interface Known {
  /** Undefined: its records cannot be read. */
  readonly progress: Progress | undefined;
  /** When it was looked at, and when it is to be again, Unix milliseconds; 0: at each look; infinity: once it is changed. */
  readonly lookedMs: number;
  readonly nextMs: number;
  /** What of its record a change by its user changes, as it was before the look. */
  readonly state: string;
  /** Why the last look failed; `damage`: because its records are damaged. */
  readonly failure?: string;
  readonly damage?: string;
}

/** Says what somebody has to look at. */
function describeDamage(known: ReadonlyMap<string, Known>): Problem[] {
  return [...known].flatMap(([idSchedule, { damage }]) =>
    damage === undefined
      ? []
      : [
          {
            code: 'schedule_unreadable' as const,
            subject: idSchedule,
            what: `schedule ${idSchedule} makes no exports: ${damage}`,
            todo: 'Restore its records from a backup, or have its user delete it and create it anew.',
          },
        ],
  );
}

/** Takes a schedule on, or has the reason why that failed; undefined when there is none any more. */
type Look = (idAccount: number, idSchedule: string, before: Known | undefined) => Promise<Known | undefined>;

function createLook(dependencies: SlotRunnerDependencies): Look {
  const { schedules, clock, logger } = dependencies;
  const turns = createTurns({
    ...dependencies,
    onStop: ({ idSchedule, idAccount }, reason) =>
      logger.warn({ idSchedule, idAccount, reason }, 'schedule stopped, until its user resumes it'),
    onOverdue: ({ idSchedule, idAccount }, slot) =>
      logger.warn({ idSchedule, idAccount, slot }, 'export of a slot was made without waiting longer for its events'),
  });
  return async (idAccount, idSchedule, before) => {
    const lookedMs = clock.nowMs();
    const state = await findState(schedules, { idAccount, idSchedule });
    try {
      const end = await turns.take(idAccount, idSchedule);
      return end === undefined ? undefined : { progress: end.progress, lookedMs, nextMs: end.nextMs ?? 0, state };
    } catch (error) {
      const failure = describeError(error);
      if (before?.failure !== failure) logger.error({ idSchedule, error: failure }, 'schedule cannot be run now');
      const damage = isAppError(error, 'record_damaged') ? { damage: failure } : {};
      return { progress: before?.progress, lookedMs, nextMs: 0, state, failure, ...damage };
    }
  };
}

async function findState(schedules: string, { idAccount, idSchedule }: ScheduleId): Promise<string> {
  const schedule: Partial<Schedule> | 'damaged' =
    (await orDamaged(findSchedule(schedules, idAccount, idSchedule))) ?? {};
  return schedule === 'damaged' ? schedule : `${schedule.paused} ${schedule.resumes}`;
}

/** Starts to make exports, until it is stopped. */
export function startSlotRunner(dependencies: SlotRunnerDependencies): SlotRunner {
  const { schedules, store, clock, logger, loaded, everyMs = defaultEveryMs } = dependencies;
  const look = createLook(dependencies);
  let known = new Map<string, Known>();
  let isLoaded = false;
  let hasLooked = false;

  /** A clock that was set back has slots before it that none of the earlier looks has seen. */
  const isDue = ({ nextMs, lookedMs }: Known, nowMs: number): boolean => nextMs <= nowMs || nowMs < lookedMs;

  /** Where there is room for one only, the schedule has it whose newest export is the oldest. */
  const lastReport = (idSchedule: string): number => known.get(idSchedule)?.progress?.lastReport ?? 0;

  async function lookAtOne({ idAccount, idSchedule }: ScheduleId): Promise<Known | undefined> {
    const before = known.get(idSchedule);
    const isSame =
      before !== undefined &&
      !isDue(before, clock.nowMs()) &&
      // What rests goes on when its user changes it.
      (before.nextMs < Infinity || (await findState(schedules, { idAccount, idSchedule })) === before.state);
    return isSame ? before : await look(idAccount, idSchedule, before);
  }

  async function lookAtAll(signal: AbortSignal): Promise<void> {
    // One that could not be read then may be that of a slot.
    if (!store.isLoaded()) await store.load(signal);
    if (!store.isLoaded()) throw new Error('not all export requests of earlier processes can be read');
    hasLooked = false;
    const { ids, left } = await listScheduleIds(schedules);
    for (const id of left) await removeProgress(schedules, id);
    const found = new Map<string, Known>();
    for (const id of ids.toSorted((a, b) => lastReport(a.idSchedule) - lastReport(b.idSchedule))) {
      if (signal.aborted) return;
      const after = await lookAtOne(id);
      if (after !== undefined) found.set(id.idSchedule, after);
    }
    known = found;
    hasLooked = true;
  }

  const loop = startPollLoop((signal) => (isLoaded ? lookAtAll(signal) : undefined), {
    everyMs,
    onError: (error) => logger.error({ error: describeError(error) }, 'schedules cannot be run now, will retry'),
  });
  void loaded.then(() => {
    isLoaded = true;
    loop.wake();
  });

  return {
    onEnd: () => loop.wake(),
    isHeld(job) {
      if (job.slot === undefined) return false;
      const schedule = known.get(job.slot.idSchedule);
      if (schedule === undefined) return !hasLooked;
      // Of one whose records are damaged nothing is learned; what is expired must not stay for it.
      if (schedule.damage !== undefined) return false;
      return schedule.progress === undefined || !isSettled(schedule.progress, job);
    },
    notices: () => describeDamage(known),
    stop: () => loop.stop(),
  };
}
