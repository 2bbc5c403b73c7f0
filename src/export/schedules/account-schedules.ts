import { defined } from '../../runtime/files/checksummed-json.ts';
import type { AccessReader, User } from '../../access/access.ts';
import type { Clock } from '../../runtime/clock.ts';
import { isAppError } from '../../runtime/errors.ts';
import {
  addSchedule,
  maxSchedules,
  askForRun,
  openSchedules,
  orDamaged,
  readScheduleProgress,
  removeSchedule,
} from '../../schedules/schedule-store.ts';
import {
  findDueSlot,
  findNextSlot,
  nameOf,
  slotName,
  stopReason,
  weekdays,
  type Schedule,
  type ScheduleRun,
} from '../../schedules/schedules.ts';
import type { Arguments } from '../api/arguments.ts';
import { badRequest, isApiError, lacksPermission, notFound, type ExportApiError } from '../api/envelope.ts';
import { single, type AddMethod, type MethodResult } from '../api/methods-routes.ts';
import type { ParseRequest } from '../api/parse-request.ts';
import { summarizeExport } from '../api/summary.ts';
import { argumentsOfSlot, parseScheduleRequest } from './schedule-arguments.ts';
import type { SlotClock } from './slot-clock.ts';
import { validateApps } from './reconcile.ts';

const runStatuses: Readonly<Record<string, string>> = {
  success: 'Success!',
  user_failed: 'User error occurred',
  canceled: 'Canceled by user',
};

/** Renders a run. `state` of its request is undefined while that is in progress. */
function describeRun(run: ScheduleRun): ScheduleView {
  const { idReport, slot, isAsked, createdMs, state, finishedMs, rows, bytes, error } = run;
  const status = state === undefined ? 'In progress' : (runStatuses[state] ?? 'Error occurred');
  return {
    idRawExport: String(idReport),
    slot,
    isOnDemand: isAsked === true,
    status,
    timestampCreated: String(Math.floor(createdMs / 1000)),
    ...defined({ rows, bytes, errorMessage: error }),
    ...(finishedMs === undefined ? {} : { timestampFinished: String(Math.floor(finishedMs / 1000)) }),
  };
}

type ScheduleView = Readonly<Record<string, unknown>>;
export type AccountSchedules = ReturnType<typeof createAccountSchedules>;

interface AccountScheduleDependencies {
  readonly schedules: string;
  readonly slotClock: SlotClock;
  readonly clock: Clock;
  readonly parseRequest: ParseRequest;
  readonly access: AccessReader;
  /** Called when a run was asked for. */
  readonly onAsked?: () => void;
}

/** Renders a schedule with its progress. Error: `record_damaged`. */
async function describeSchedule(
  schedule: Schedule,
  { schedules, slotClock, clock, access }: AccountScheduleDependencies,
): Promise<ScheduleView> {
  const { idSchedule, idAccount, idUser, rule, catchUp, sinceVersion, createdMs, paused, firstSlot } = schedule;
  const scheduleProgress = await readScheduleProgress(schedules, schedule);
  const { made, lastReport, place } = scheduleProgress;
  const reason = stopReason(schedule, scheduleProgress);
  const slots = { firstSlot, catchUp, made };
  const newest = await slotClock.newest(rule, clock.nowMs());
  const next = findDueSlot(slots, newest) ?? findNextSlot(slots, newest);
  const last = made.at(-1)?.[1];
  const runs = !paused && reason === undefined;
  return {
    idSchedule,
    ...defined({ name: nameOf(schedule) }),
    summary: summarizeExport(schedule.arguments, access.current().appsOfAccount(idAccount)),
    idUser,
    every: rule.every,
    at: rule.at,
    timezone: rule.timezone,
    ...(sinceVersion === undefined ? { catchUp: String(catchUp) } : { sinceVersion }),
    arguments: Object.fromEntries(schedule.arguments),
    status: runs ? 'Active' : reason === undefined ? 'Paused' : 'Stopped',
    ...defined({ weekday: weekdays[(rule.weekday ?? 0) - 1], reason }),
    timestampCreated: String(Math.floor(createdMs / 1000)),
    ...(runs ? { timestampNextSlot: String(Math.floor((await slotClock.timeOf(rule, next)) / 1000)) } : {}),
    ...(last === undefined ? {} : { lastSlot: slotName(rule, last), idRawExport: String(lastReport) }),
    ...(sinceVersion === undefined ? {} : { nextSinceVersion: place ?? sinceVersion }),
  };
}

/** Creates the methods of users on the runs of schedules. */
function createRunMethods(
  { schedules, onAsked }: Pick<AccountScheduleDependencies, 'schedules' | 'onAsked'>,
  describe: (schedule: Schedule) => Promise<ScheduleView>,
) {
  return {
    /** Lists the newest runs of a schedule, newest first; undefined without the schedule. */
    async runs(idAccount: number, idSchedule: string): Promise<readonly ScheduleView[] | undefined> {
      const schedule = await openSchedules(schedules).find(idAccount, idSchedule);
      if (schedule === undefined) return undefined;
      const { runs = [] } = await readScheduleProgress(schedules, schedule);
      return runs.toReversed().map(describeRun);
    },
    /**
     * Asks for an export of the newest period, or of the rows since the last one, within seconds. The slots stay. A
     * stopped schedule is refused.
     */
    async run(idAccount: number, idSchedule: string): Promise<ScheduleView | ExportApiError | undefined> {
      const schedule = await openSchedules(schedules).find(idAccount, idSchedule);
      if (schedule === undefined) return undefined;
      const reason = stopReason(schedule, await readScheduleProgress(schedules, schedule));
      if (reason !== undefined) return badRequest(`The schedule is stopped: ${reason}. Resume it first.`);
      await askForRun(schedules, schedule);
      onAsked?.();
      return describe(schedule);
    },
  };
}

/**
 * Creates the methods of users on the schedules of their account; those of other accounts are not found. Errors:
 * `record_damaged`, `locked`, those of the disk.
 */
export function createAccountSchedules(dependencies: AccountScheduleDependencies) {
  const { schedules, parseRequest, slotClock, access, clock } = dependencies;
  const describe = (schedule: Schedule): Promise<ScheduleView> => describeSchedule(schedule, dependencies);

  async function change(
    idAccount: number,
    idSchedule: string,
    update: (schedule: Schedule) => Schedule,
  ): Promise<ScheduleView | undefined> {
    const changed = await openSchedules(schedules).change(idAccount, idSchedule, update);
    return changed && describe(changed);
  }

  return {
    /** Adds a schedule; returns the existing one if it is the same. */
    async create(user: User, callArguments: Arguments): Promise<ScheduleView | ExportApiError> {
      const { idAccount, idUser, canExport } = user;
      if (!canExport) return lacksPermission;
      const order = parseScheduleRequest(callArguments);
      if (isApiError(order)) return order;
      const nowMs = clock.nowMs();
      // Checks the other arguments with those of an old slot.
      const request = await parseRequest(idAccount, argumentsOfSlot(order, 1), nowMs);
      if (isApiError(request)) return request;
      const noApps = validateApps(access, idAccount, request);
      if (noApps !== undefined) return badRequest(`The schedule would create no exports: ${noApps}`);
      const firstSlot = (await slotClock.newest(order.rule, nowMs)) + 1;
      const added = { ...order, idAccount, idUser, createdMs: nowMs, firstSlot };
      try {
        return await describe(await addSchedule(schedules, added));
      } catch (error) {
        if (isAppError(error, 'conflict')) return badRequest(`The account already has ${maxSchedules} schedules`);
        throw error;
      }
    },
    async list(idAccount: number) {
      const { known, damaged } = await openSchedules(schedules).list(idAccount);
      const views = await Promise.all(known.map((schedule) => orDamaged(describe(schedule))));
      const unread = known.flatMap(({ idSchedule }, index) => (views[index] === 'damaged' ? idSchedule : []));
      return { schedules: views.filter((view) => view !== 'damaged'), damaged: [...damaged, ...unread] };
    },
    async find(idAccount: number, idSchedule: string): Promise<ScheduleView | undefined> {
      const schedule = await openSchedules(schedules).find(idAccount, idSchedule);
      return schedule && describe(schedule);
    },
    ...createRunMethods(dependencies, describe),
    /** Skips slots until the schedule is resumed. */
    pause: (idAccount: number, idSchedule: string): Promise<ScheduleView | undefined> =>
      change(idAccount, idSchedule, (schedule) => (schedule.paused ? schedule : { ...schedule, paused: true })),
    /** Resumes a paused schedule with the next slot, a stopped one with the missed slots. */
    async resume(idAccount: number, idSchedule: string): Promise<ScheduleView | undefined> {
      const found = await openSchedules(schedules).find(idAccount, idSchedule);
      if (found === undefined) return undefined;
      const firstSlot = (await slotClock.newest(found.rule, clock.nowMs())) + 1;
      return change(idAccount, idSchedule, (schedule) => ({
        ...schedule,
        ...(schedule.paused ? { paused: false, firstSlot } : {}),
        resumes: schedule.resumes + 1,
      }));
    },
    remove: (idAccount: number, idSchedule: string): Promise<boolean> =>
      removeSchedule(schedules, idAccount, idSchedule),
  };
}

export function addScheduleRoutes(addMethod: AddMethod, schedules: AccountSchedules): void {
  const missing = notFound('The schedule is not found');
  function toResult(view: ScheduleView | ExportApiError | undefined): MethodResult {
    if (view === undefined) return missing;
    return isApiError(view) ? view : { data: view };
  }

  addMethod(['POST'], '/api/schedule/v1/create.json', 'schedule_create', async (user, callArguments) =>
    toResult(await schedules.create(user, callArguments)),
  );
  addMethod(['GET'], '/api/schedule/v1/list.json', 'schedule_list', async ({ idAccount }) => {
    const { schedules: listed, damaged } = await schedules.list(idAccount);
    return { data: { schedules: listed, ...(damaged.length === 0 ? {} : { damaged }) } };
  });
  const add = (method: 'GET' | 'POST', name: string, act: 'find' | 'pause' | 'resume' | 'run'): void =>
    addMethod([method], `/api/schedule/v1/${name}.json`, `schedule_${name}`, async ({ idAccount }, callArguments) =>
      toResult(await schedules[act](idAccount, single(callArguments, 'idSchedule') ?? '')),
    );
  add('GET', 'get', 'find');
  add('POST', 'pause', 'pause');
  add('POST', 'resume', 'resume');
  add('POST', 'run', 'run');
  addMethod(['GET'], '/api/schedule/v1/runs.json', 'schedule_runs', async ({ idAccount }, callArguments) => {
    const runs = await schedules.runs(idAccount, single(callArguments, 'idSchedule') ?? '');
    return runs === undefined ? missing : { data: { runs } };
  });
  addMethod(['POST'], '/api/schedule/v1/delete.json', 'schedule_delete', async ({ idAccount }, callArguments) => {
    const idSchedule = single(callArguments, 'idSchedule') ?? '';
    return (await schedules.remove(idAccount, idSchedule)) ? { data: { idSchedule } } : missing;
  });
}
