import type { AccessReader, User } from '../../access/access.ts';
import { defined } from '../../runtime/files/checksummed-json.ts';
import { isInProgress, sumFiles, type ReportJob } from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import {
  changeScheduleProgress,
  findAskedRun,
  openSchedules,
  readScheduleProgress,
  removeAskedRun,
} from '../../schedules/schedule-store.ts';
import {
  addRun,
  addSlot,
  findDueSlot,
  findNextSlot,
  hasExport,
  slotName,
  stopReason,
  type ScheduleProgress,
  type ScheduleRun,
  type Schedule,
} from '../../schedules/schedules.ts';
import { isApiError } from '../api/envelope.ts';
import { readLabels, type Exports } from '../api/exports.ts';
import type { ParseRequest } from '../api/parse-request.ts';
import { selectApps, type ExportSpec } from '../jobs/export-spec.ts';
import { argumentsOfSlot } from './schedule-arguments.ts';
import { createCompletenessGate, type CompletenessGateDependencies } from './slot-clock.ts';

export interface ReconcileDependencies extends CompletenessGateDependencies {
  readonly parseRequest: ParseRequest;
  readonly access: AccessReader;
  readonly schedules: string;
  readonly store: ReportStore;
  readonly exports: Pick<Exports, 'createForSlot'>;
  readonly onStop: (schedule: Schedule, reason: string) => void;
  /** Called with a slot whose export is created although its period may be incomplete. */
  readonly onOverdue: (schedule: Schedule, slot: string) => void;
  readonly crashPoint: CrashPoint;
}

/** The steps of a slot after which a crash must leave one export: the request is durable, then its progress. */
export const slotSteps = ['slot-ordered', 'slot-noted'] as const;
type SlotStep = (typeof slotSteps)[number];

interface ReconcileResult {
  readonly progress: ScheduleProgress;
  /** Time of the next slot, Unix ms; infinity while paused or stopped; absent: something else is awaited. */
  readonly nextMs?: number;
}

/**
 * Records that a request was created. Ids grow: a new slot under a lower id means that the earlier requests are lost
 * and their ids allocated again, so what is known of them is dropped.
 */
function recordMade(scheduleProgress: ScheduleProgress, job: ReportJob): ScheduleProgress {
  const { made, lastReport, endedReport } = scheduleProgress;
  const { id, slot } = job;
  if (slot === undefined || (isMade(scheduleProgress, job) && id <= lastReport)) return scheduleProgress;
  return {
    ...recordRun(scheduleProgress, job),
    made: slot.run === undefined ? addSlot(made, slot.slot) : made,
    lastReport: id,
    endedReport: Math.min(endedReport, id - 1),
  };
}

/** Reports whether the slot of a request is completed. A run that a user asked for completes none. */
function isMade({ made }: ScheduleProgress, { slot }: Pick<ReportJob, 'slot'>): boolean {
  return slot === undefined || slot.run !== undefined || hasExport(made, slot.slot);
}

/** Records the state of a run for people. */
function recordRun(scheduleProgress: ScheduleProgress, job: ReportJob): ScheduleProgress {
  const { id, slot, createdMs, state, finishedMs, files, error } = job;
  const { rows, bytes } = state === 'success' ? sumFiles(files ?? []) : {};
  const run: ScheduleRun = {
    idReport: id,
    slot: slot?.name ?? '',
    createdMs,
    ...(slot?.run === undefined ? {} : { isAsked: true }),
    ...(isInProgress(job) ? {} : defined({ state, finishedMs, rows, bytes })),
    ...(state === 'user_failed' ? defined({ error }) : {}),
  };
  return { ...scheduleProgress, runs: addRun(scheduleProgress.runs ?? [], run) };
}

/**
 * Records how a request ended. A change feed continues from the cursor of its last success. It stops if the user's
 * request fails: each later one would ask for the same rows and more.
 */
function recordEnd(schedule: Schedule, scheduleProgress: ScheduleProgress, job: ReportJob): ScheduleProgress {
  if (isInProgress(job) || job.id <= scheduleProgress.endedReport) return scheduleProgress;
  const ended: ScheduleProgress = { ...recordRun(scheduleProgress, job), endedReport: job.id };
  if (schedule.sinceVersion === undefined) return ended;
  if (job.state === 'success' && job.basis !== undefined) return { ...ended, place: job.basis.nextSinceVersion };
  if (job.state !== 'user_failed') return ended;
  const reason = `export ${job.id} failed: ${job.error ?? ''}`;
  return { ...ended, stopped: { reason, resumes: schedule.resumes, ...defined({ atMs: job.finishedMs }) } };
}

/**
 * Returns the progress of a schedule after its requests, oldest first; the same object if nothing changed. A schedule
 * has one request in progress at a time, so they end in the order of their ids.
 */
export function applyRequestResults(
  schedule: Schedule,
  scheduleProgress: ScheduleProgress,
  jobs: readonly ReportJob[],
): ScheduleProgress {
  return jobs.reduce((known, job) => recordEnd(schedule, recordMade(known, job), job), scheduleProgress);
}

/** Reports whether a progress has the end of a request, which may then be deleted. */
export function isSettled(scheduleProgress: ScheduleProgress, job: ReportJob): boolean {
  return job.slot === undefined || (isMade(scheduleProgress, job) && job.id <= scheduleProgress.endedReport);
}

/** Returns why a request selects no apps of the account; undefined if it selects some, or names none. */
export function validateApps(access: AccessReader, idAccount: number, request: ExportSpec): string | undefined {
  const namesApps = request.idApp !== undefined || request.SDKKey !== undefined;
  if (!namesApps || selectApps(request, access.current().appsOfAccount(idAccount)).length > 0) return undefined;
  return 'the account has none of its apps';
}

/** The export of a slot; the reason why the schedule stops; or `later` if that is not known yet. */
type SlotExportOutcome =
  | { readonly user: User; readonly request: ExportSpec; readonly isOverdue: boolean }
  | { readonly reason: string }
  | 'later';

/** Creates the orders of slots, by the present rights of their users. `cursor`: of a change feed. */
export function createSlotExports(
  dependencies: Pick<ReconcileDependencies, 'parseRequest' | 'access' | keyof CompletenessGateDependencies>,
): (schedule: Schedule, slot: number, cursor: string | undefined, nowMs: number) => Promise<SlotExportOutcome> {
  const { parseRequest, access } = dependencies;
  const findReadiness = createCompletenessGate(dependencies);
  return async (schedule, slot, cursor, nowMs) => {
    const { idAccount, idUser } = schedule;
    const user = access.current().findUser(idUser);
    if (user?.idAccount !== idAccount)
      return access.mayMissUsers() ? 'later' : { reason: `user ${idUser} was removed` };
    if (!user.canExport) return { reason: `user ${idUser} lacks export permissions` };
    const request = await parseRequest(idAccount, argumentsOfSlot(schedule, slot, cursor), nowMs);
    if (isApiError(request)) return { reason: request.detail ?? 'its export is refused' };
    const reason = validateApps(access, idAccount, request);
    if (reason !== undefined) return access.mayMissApps() ? 'later' : { reason };
    const readiness = await findReadiness(schedule, slot, request);
    return readiness === 'waits' ? 'later' : { user, request, isOverdue: readiness === 'overdue' };
  };
}

/** A slot that is due, and the run if a user asked for it. */
interface DueRun {
  readonly slot: number;
  readonly run: string | undefined;
}

function isReserved({ reserved }: ScheduleProgress, { slot, run }: DueRun): boolean {
  return reserved?.slot === slot && reserved.run === run;
}

/** Creates the changes of progress, the reservations of ids, and the search for runs that users asked for. */
function createProgressRecords({ schedules, store, onStop, crashPoint }: ReconcileDependencies) {
  /**
   * Reserves the id of a slot's request where hosts share the requests: another one that also believes that it runs the
   * schedules creates the same request, or none.
   */
  async function reserve(
    schedule: Schedule,
    { slot, run }: DueRun,
    before: ScheduleProgress,
  ): Promise<ScheduleProgress> {
    if (isReserved(before, { slot, run })) return before;
    const idReport = await store.reserveId();
    if (idReport === undefined) return before;
    const after = { ...before, reserved: { slot, idReport, ...defined({ run }) } };
    await changeScheduleProgress(schedules, schedule, before, after);
    return after;
  }

  /**
   * Finds the run that a user asked for, paused schedule or not. Removes one that has its request, or that a stopped
   * schedule cannot create.
   */
  async function findOpenRun(schedule: Schedule, isStopped: boolean): Promise<string | undefined> {
    const run = await findAskedRun(schedules, schedule);
    if (run === undefined) return undefined;
    if (!isStopped && (await store.select(({ slot }) => slot?.run === run)).length === 0) return run;
    await removeAskedRun(schedules, schedule);
    return undefined;
  }

  async function keep(schedule: Schedule, before: ScheduleProgress, after: ScheduleProgress): Promise<void> {
    await changeScheduleProgress(schedules, schedule, before, after);
    await crashPoint('slot-noted' satisfies SlotStep);
  }

  /** Records changes of a schedule's requests. A crash before that loses nothing: each request names its slot. */
  async function settle(schedule: Schedule, before: ScheduleProgress): Promise<ScheduleProgress> {
    const jobs = await store.select(({ slot }) => slot?.idSchedule === schedule.idSchedule);
    const oldestFirst = jobs.toSorted((a, b) => a.id - b.id);
    const after = applyRequestResults(schedule, before, oldestFirst);
    if (after !== before) await keep(schedule, before, after);
    const reason = stopReason(schedule, after);
    if (reason !== undefined && stopReason(schedule, before) === undefined) onStop(schedule, reason);
    return after;
  }

  return { keep, settle, reserve, findOpenRun };
}

/** Creates what advances schedules by at most one export each. */
export function createScheduleReconciler(dependencies: ReconcileDependencies) {
  const { schedules, store, exports, slotClock, clock, onStop, onOverdue, crashPoint } = dependencies;
  const order = createSlotExports(dependencies);
  const { keep, settle, reserve, findOpenRun } = createProgressRecords(dependencies);

  /** Creates the export of the oldest due slot, or the run that a user asked for. */
  async function make(
    schedule: Schedule,
    scheduleProgress: ScheduleProgress,
    run: string | undefined,
  ): Promise<ReconcileResult> {
    const { rule, firstSlot, catchUp } = schedule;
    const slots = { firstSlot, catchUp, made: scheduleProgress.made };
    const newest = await slotClock.newest(rule, clock.nowMs());
    const slot = run === undefined ? findDueSlot(slots, newest) : newest;
    if (slot === undefined)
      return { progress: scheduleProgress, nextMs: await slotClock.timeOf(rule, findNextSlot(slots, newest)) };
    return await makeRun(schedule, scheduleProgress, { slot, run });
  }

  async function makeRun(
    schedule: Schedule,
    scheduleProgress: ScheduleProgress,
    due: DueRun,
  ): Promise<ReconcileResult> {
    const { rule, idSchedule } = schedule;
    const { slot, run } = due;
    const nowMs = clock.nowMs();
    const ordered = await order(schedule, slot, scheduleProgress.place, nowMs);
    if (ordered === 'later') return { progress: scheduleProgress };
    if ('reason' in ordered) {
      const { reason } = ordered;
      const stopped = { ...scheduleProgress, stopped: { reason, resumes: schedule.resumes, atMs: nowMs } };
      await keep(schedule, scheduleProgress, stopped);
      onStop(schedule, reason);
      return { progress: stopped };
    }
    const { user, request, isOverdue } = ordered;
    const slotLabel = slotName(rule, slot);
    const isIncomplete = isOverdue ? { mayBeIncomplete: true as const } : {};
    const ofSlot = { idSchedule, slot, name: slotLabel, ...isIncomplete, ...defined({ run }) };
    let current = scheduleProgress;
    const labels = { ...readLabels(new Map(schedule.arguments)), slot: ofSlot };
    const job = await exports.createForSlot(user, request, labels, async () => {
      current = await reserve(schedule, due, current);
      return isReserved(current, due) ? current.reserved?.idReport : undefined;
    });
    await crashPoint('slot-ordered' satisfies SlotStep);
    if (job === undefined) return { progress: current };
    if (isOverdue) onOverdue(schedule, slotLabel);
    const settled = await settle(schedule, current);
    if (run !== undefined) await removeAskedRun(schedules, schedule);
    return { progress: settled };
  }

  return {
    /**
     * Advances a schedule; undefined if it was removed. Errors: `record_damaged`, those of the store, `commit_conflict`
     * if another host advances it too.
     */
    async take(idAccount: number, idSchedule: string): Promise<ReconcileResult | undefined> {
      const schedule = await openSchedules(schedules).find(idAccount, idSchedule);
      if (schedule === undefined) return undefined;
      await store.refresh(({ slot }) => slot?.idSchedule === idSchedule);
      // Checked before its requests are read: one that ends in between must be settled before the next is created.
      const isWaiting = store.inProgress().some(({ slot }) => slot?.idSchedule === idSchedule);
      const scheduleProgress = await settle(schedule, await readScheduleProgress(schedules, schedule));
      if (isWaiting) return { progress: scheduleProgress };
      const isStopped = stopReason(schedule, scheduleProgress) !== undefined;
      const run = await findOpenRun(schedule, isStopped);
      const rests = isStopped || (schedule.paused && run === undefined);
      return rests ? { progress: scheduleProgress, nextMs: Infinity } : make(schedule, scheduleProgress, run);
    },
  };
}
