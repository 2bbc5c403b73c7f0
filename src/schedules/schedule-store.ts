import { randomBytes } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { AppError, isAppError } from '../runtime/errors.ts';
import { openAccountRecords } from '../runtime/store/account-records.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { createRecords, type RecordKind, type Records } from '../runtime/store/records.ts';
import {
  isCount,
  isFlag,
  isInteger,
  isText,
  listOf,
  matching,
  oneOf,
  optional,
  shapeOf,
} from '../runtime/store/shape.ts';
import {
  frequencies,
  noProgress,
  type ScheduleProgress,
  type Schedule,
  type Recurrence,
  type ScheduleRun,
  type SlotSpan,
} from './schedules.ts';

const damaged = {
  code: 'record_damaged',
  hint: 'Restore it from a backup, or delete and recreate the schedule.',
} as const;

const isArgument = (value: unknown): boolean =>
  Array.isArray(value) && value.length === 2 && isText(value[0]) && listOf(isText)(value[1]);

const isSchedule = shapeOf<Schedule>({
  idSchedule: isText,
  idAccount: isCount,
  idUser: isText,
  createdMs: isCount,
  rule: shapeOf<Recurrence>({
    every: oneOf(frequencies),
    at: matching(/^(\d\d)?:\d\d$/),
    weekday: optional(isCount),
    timezone: isText,
  }),
  catchUp: isCount,
  arguments: listOf(isArgument),
  sinceVersion: optional(isText),
  firstSlot: isInteger,
  paused: isFlag,
  resumes: isCount,
});

/** Largest number per account. */
export const maxSchedules = 20;

/** Opens the schedules of all accounts. */
export const openSchedules = (schedules: string) =>
  openAccountRecords(schedules, {
    noun: 'schedule',
    prefix: 'sc',
    idOf: ({ idSchedule }) => idSchedule,
    isValid: isSchedule,
    most: maxSchedules,
    damaged,
  });

const isScheduleRun = shapeOf<ScheduleRun>({
  idReport: isCount,
  slot: isText,
  isAsked: optional(isFlag),
  createdMs: isCount,
  state: optional(isText),
  finishedMs: optional(isCount),
  rows: optional(isCount),
  bytes: optional(isCount),
  error: optional(isText),
});

/** A run that a user has asked for, until its request is created. */
interface AskedRun {
  /** 16 hex digits; the request has it too. */
  readonly run: string;
}

const askedKind: RecordKind<AskedRun> = {
  isValid: shapeOf<AskedRun>({ run: matching(/^[0-9a-f]{16}$/) }),
  idForm: /\/sc_[0-9a-f]{16}$/,
  ending: '.run.json',
  damaged,
};

const progressKind: RecordKind<ScheduleProgress> = {
  isValid: shapeOf<ScheduleProgress>({
    made: listOf((span: unknown): span is SlotSpan => listOf(isInteger)(span) && span.length === 2),
    endedReport: isCount,
    lastReport: isCount,
    place: optional(isText),
    reserved: optional(
      shapeOf<NonNullable<ScheduleProgress['reserved']>>({ slot: isInteger, idReport: isCount, run: optional(isText) }),
    ),
    stopped: optional(
      shapeOf<NonNullable<ScheduleProgress['stopped']>>({ reason: isText, resumes: isCount, atMs: optional(isCount) }),
    ),
    runs: optional(listOf(isScheduleRun)),
  }),
  idForm: /\/sc_[0-9a-f]{16}$/,
  ending: '.progress.json',
  damaged,
};

const openAsked = (schedules: string): Records<AskedRun> => createRecords(openStore(schedules), askedKind);
const openProgress = (schedules: string): Records<ScheduleProgress> =>
  createRecords(openStore(schedules), progressKind);

export type ScheduleId = Pick<Schedule, 'idAccount' | 'idSchedule'>;

const toId = ({ idAccount, idSchedule }: ScheduleId): string => `${idAccount}/${idSchedule}`;

function parseId(id: string): ScheduleId {
  const [idAccount, idSchedule = ''] = id.split('/');
  return { idAccount: Number(idAccount), idSchedule };
}

type NewSchedule = Omit<Schedule, 'idSchedule' | 'paused' | 'resumes'>;

/** Reports whether a schedule equals a new one, so that a repeated create adds nothing. */
function isSame(schedule: Schedule, added: NewSchedule): boolean {
  const essence = ({ idUser, rule, catchUp, arguments: given, sinceVersion }: NewSchedule): string =>
    JSON.stringify([idUser, rule, catchUp, given, sinceVersion]);
  return essence(schedule) === essence(added);
}

/**
 * Adds a schedule, durably; returns the existing one if the same user has an equal one. Errors: `conflict` if the
 * account has the maximum, damaged ones included; `locked`.
 */
export async function addSchedule(schedules: string, added: NewSchedule): Promise<Schedule> {
  return await openSchedules(schedules).add(
    added.idAccount,
    (idSchedule) => ({ idSchedule, ...added, paused: false, resumes: 0 }),
    (schedule) => isSame(schedule, added),
  );
}

interface ScheduleIds {
  readonly ids: readonly ScheduleId[];
  /** Those whose progress or asked run alone a delete has left. */
  readonly left: readonly ScheduleId[];
  /** Ids of schedules with an asked run. */
  readonly asked: ReadonlySet<string>;
}

/** Lists the ids of all schedules, in no order. */
export async function listScheduleIds(schedules: string): Promise<ScheduleIds> {
  const ids = await openSchedules(schedules).ids();
  const known = new Set(ids);
  const asked = await openAsked(schedules).ids();
  const left = [...asked, ...(await openProgress(schedules).ids())].filter((id) => !known.has(id));
  return {
    ids: ids.map(parseId),
    left: left.map(parseId),
    asked: new Set(asked.map((id) => parseId(id).idSchedule)),
  };
}

/** Asks for a run, durably. Another one that is asked for and not created yet is the same. */
export async function askForRun(schedules: string, id: ScheduleId): Promise<void> {
  await openAsked(schedules).create(toId(id), { run: randomBytes(8).toString('hex') });
}

/** Finds the run that is asked for; undefined if there is none, or its record is damaged, which is removed. */
export async function findAskedRun(schedules: string, id: ScheduleId): Promise<string | undefined> {
  const found = await orDamaged(openAsked(schedules).get(toId(id)));
  if (found === 'damaged') await removeAskedRun(schedules, id);
  return found === 'damaged' ? undefined : found?.run;
}

export async function removeAskedRun(schedules: string, id: ScheduleId): Promise<void> {
  await openAsked(schedules).remove(toId(id));
}

/** Returns the result of a read, or `damaged`; throws other errors. */
export async function orDamaged<T>(reading: Promise<T>): Promise<T | 'damaged'> {
  try {
    return await reading;
  } catch (error) {
    if (isAppError(error, 'record_damaged')) return 'damaged';
    throw error;
  }
}

/** Reads the progress of a schedule: its completed slots and last export requests. */
export async function readScheduleProgress(schedules: string, id: ScheduleId): Promise<ScheduleProgress> {
  return (await openProgress(schedules).get(toId(id))) ?? noProgress;
}

/**
 * Changes the progress of a schedule that is still `before`, durably. Only the export role does: in a folder, it is one
 * process. Error: `commit_conflict` if another host has changed it.
 */
export async function changeScheduleProgress(
  schedules: string,
  id: ScheduleId,
  before: ScheduleProgress,
  after: ScheduleProgress,
): Promise<void> {
  const records = openProgress(schedules);
  if (!openStore(schedules).isShared) return await records.put(toId(id), after);
  const found = await records.change(toId(id), (stored) =>
    isDeepStrictEqual(stored ?? noProgress, before) ? after : stored,
  );
  if (found === after) return;
  throw new AppError('commit_conflict', `another process has changed the progress of schedule ${id.idSchedule}`, {
    hint: 'No action needed: it is read again.',
  });
}

export async function removeScheduleProgress(schedules: string, id: ScheduleId): Promise<void> {
  await openProgress(schedules).remove(toId(id));
  await removeAskedRun(schedules, id);
}

/** Removes a schedule, durably, damaged or not; returns whether there was one. Its exports stay. Error: `locked`. */
export async function removeSchedule(schedules: string, idAccount: number, idSchedule: string): Promise<boolean> {
  const wasThere = await openSchedules(schedules).remove(idAccount, idSchedule);
  if (wasThere) await removeScheduleProgress(schedules, { idAccount, idSchedule });
  return wasThere;
}
