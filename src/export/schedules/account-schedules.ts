import type { AccessReader, User } from '../../access/access.ts';
import { isAppError } from '../../runtime/errors.ts';
import {
  addSchedule,
  changeSchedule,
  findSchedule,
  listSchedules,
  orDamaged,
  removeSchedule,
} from '../../schedules/schedule-store.ts';
import type { Schedule } from '../../schedules/schedules.ts';
import type { Arguments } from '../api/arguments.ts';
import { badRequest, isRefusal, type Refusal } from '../api/envelope.ts';
import type { ParseRequest } from '../api/request-rules.ts';
import { argumentsOfSlot, parseScheduleOrder } from './schedule-arguments.ts';
import { refuseApps } from './order.ts';
import { createScheduleViews, type ScheduleView, type ScheduleViewDependencies } from './schedule-views.ts';

/** Most schedules of an account. */
export const mostSchedules = 20;

/** What the users of an account do with its schedules; to other accounts they do not exist. */
export interface AccountSchedules {
  /** Adds a schedule of a user's; answers the one that is there where it orders the same. */
  create(user: User, given: Arguments): Promise<ScheduleView | Refusal>;
  /** Those that can be read, and the ids of the others. */
  list(
    idAccount: number,
  ): Promise<{ readonly schedules: readonly ScheduleView[]; readonly damaged: readonly string[] }>;
  find(idAccount: number, idSchedule: string): Promise<ScheduleView | undefined>;
  /** Slots from now on are not made, nor made up later. */
  pause(idAccount: number, idSchedule: string): Promise<ScheduleView | undefined>;
  /** Ends a pause, with the next slot; or a stop, with those that were missed. */
  resume(idAccount: number, idSchedule: string): Promise<ScheduleView | undefined>;
  remove(idAccount: number, idSchedule: string): Promise<boolean>;
}

export interface AccountScheduleDependencies extends ScheduleViewDependencies {
  readonly parseRequest: ParseRequest;
  readonly access: AccessReader;
}

/** Creates what users do with schedules. Errors of all: `record_damaged`, `locked`, those of the disk. */
export function createAccountSchedules(dependencies: AccountScheduleDependencies): AccountSchedules {
  const { schedules, parseRequest, slotClock, access, clock } = dependencies;

  const describe = createScheduleViews(dependencies);

  async function change(
    idAccount: number,
    idSchedule: string,
    update: (schedule: Schedule) => Schedule,
  ): Promise<ScheduleView | undefined> {
    const changed = await changeSchedule(schedules, idAccount, idSchedule, update);
    return changed === undefined ? undefined : describe(changed);
  }

  async function create(user: User, given: Arguments): Promise<ScheduleView | Refusal> {
    const { idAccount, idUser, canExport } = user;
    if (!canExport) return badRequest('The account lacks export permissions');
    const order = parseScheduleOrder(given);
    if (isRefusal(order)) return order;
    const nowMs = clock.nowMs();
    // What its zone is, and whether an export can be made of the rest, is said by the rules of exports: of a day long ago.
    const request = await parseRequest(idAccount, argumentsOfSlot(order, 1), nowMs);
    if (isRefusal(request)) return request;
    const noApps = refuseApps(access, idAccount, request);
    if (noApps !== undefined) return badRequest(`The schedule would make no exports: ${noApps}`);
    const firstSlot = (await slotClock.newest(order.rule, nowMs)) + 1;
    const added = { ...order, idAccount, idUser, createdMs: nowMs, firstSlot };
    try {
      return await describe(await addSchedule(schedules, added, mostSchedules));
    } catch (error) {
      if (isAppError(error, 'conflict')) return badRequest(`There are ${mostSchedules} schedules already`);
      throw error;
    }
  }

  return {
    create,
    async list(idAccount) {
      const { known, damaged } = await listSchedules(schedules, idAccount);
      const views = await Promise.all(known.map((schedule) => orDamaged(describe(schedule))));
      return {
        schedules: views.filter((view) => view !== 'damaged'),
        damaged: [
          ...damaged,
          ...known.flatMap(({ idSchedule }, place) => (views[place] === 'damaged' ? idSchedule : [])),
        ],
      };
    },
    async find(idAccount, idSchedule) {
      const schedule = await findSchedule(schedules, idAccount, idSchedule);
      return schedule === undefined ? undefined : describe(schedule);
    },
    pause: (idAccount, idSchedule) =>
      change(idAccount, idSchedule, (schedule) => (schedule.paused ? schedule : { ...schedule, paused: true })),
    async resume(idAccount, idSchedule) {
      const found = await findSchedule(schedules, idAccount, idSchedule);
      if (found === undefined) return undefined;
      const firstSlot = (await slotClock.newest(found.rule, clock.nowMs())) + 1;
      return change(idAccount, idSchedule, (schedule) => ({
        ...schedule,
        ...(schedule.paused ? { paused: false, firstSlot } : {}),
        resumes: schedule.resumes + 1,
      }));
    },
    remove: (idAccount, idSchedule) => removeSchedule(schedules, idAccount, idSchedule),
  };
}
