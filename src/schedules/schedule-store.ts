import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { AppError, isAppError } from '../runtime/errors.ts';
import { renderChecked } from '../runtime/files/checked-json.ts';
import { createExclusive, removeFile, syncFolder, writeFileDurably } from '../runtime/files/durable-file.ts';
import { findNames } from '../runtime/files/folder-names.ts';
import { inFolderTurn } from '../runtime/files/folder-turns.ts';
import { isKnownRecord, markRecord, unmarkRecord } from '../runtime/files/known-records.ts';
import { isScheduleId, progressPath, readSchedule, schedulePath } from './schedule-files.ts';
import type { Schedule } from './schedules.ts';

/** The folder of an account's schedules, below that of all. */
export function accountFolder(schedules: string, idAccount: number): string {
  return path.join(schedules, String(idAccount));
}

/** Runs one change of an account's schedules at a time, whichever process makes it. Error: `locked`. */
async function change<T>(folder: string, run: () => Promise<T>): Promise<T> {
  return await inFolderTurn(folder, 'a change of schedules', run);
}

/** A schedule to be added. */
export type NewSchedule = Omit<Schedule, 'idSchedule' | 'paused' | 'resumes'>;

/** Says whether a schedule is what is to be added, so that a create that is repeated adds nothing. */
function isSame(schedule: Schedule, added: NewSchedule): boolean {
  const essence = ({ idUser, rule, catchUp, arguments: given, sinceVersion }: NewSchedule): string =>
    JSON.stringify([idUser, rule, catchUp, given, sinceVersion]);
  return essence(schedule) === essence(added);
}

/**
 * Adds a schedule, durably, and returns it; returns the one of the same user that orders the same, where there is one.
 * Errors: `conflict` when the account has `most` already, damaged ones included; `locked`.
 */
export async function addSchedule(schedules: string, added: NewSchedule, most: number): Promise<Schedule> {
  const folder = accountFolder(schedules, added.idAccount);
  return await change(folder, async () => {
    const { known, damaged } = await listSchedules(schedules, added.idAccount);
    const same = known.find((schedule) => isSame(schedule, added));
    if (same !== undefined) return same;
    if (known.length + damaged.length >= most)
      throw new AppError('conflict', `account ${added.idAccount} has ${most} schedules already`, {
        hint: 'Delete one first.',
      });
    const idSchedule = `sc_${randomBytes(8).toString('hex')}`;
    const schedule: Schedule = { idSchedule, ...added, paused: false, resumes: 0 };
    await createExclusive(schedulePath(folder, idSchedule), renderChecked({ ...schedule }));
    await markRecord(schedules, schedulePath(folder, idSchedule));
    return schedule;
  });
}

/** The ids of an account's schedules, in no order, and of those whose progress alone was left by a delete. */
export async function listScheduleIds(
  schedules: string,
  idAccount: number,
): Promise<{ readonly ids: readonly string[]; readonly left: readonly string[] }> {
  const names = await findNames(accountFolder(schedules, idAccount));
  const idsOf = (ending: string): string[] =>
    names.flatMap((name) => {
      const id = name.slice(0, -ending.length);
      return name.endsWith(ending) && isScheduleId(id) ? [id] : [];
    });
  const ids = idsOf('.json');
  return { ids, left: idsOf('.progress.json').filter((id) => !ids.includes(id)) };
}

/** The accounts that have schedules, or had some. */
export async function listScheduleAccounts(schedules: string): Promise<readonly number[]> {
  return (await findNames(schedules)).filter((name) => /^[1-9]\d{0,15}$/.test(name)).map(Number);
}

/** A schedule of an account; undefined when it has none of that id. Error: `record_damaged`. */
export async function findSchedule(
  schedules: string,
  idAccount: number,
  idSchedule: string,
): Promise<Schedule | undefined> {
  if (!isScheduleId(idSchedule)) return undefined;
  return await readSchedule(accountFolder(schedules, idAccount), idSchedule);
}

/** What reading gives, or `damaged`; other errors are thrown. */
export async function orDamaged<T>(reading: Promise<T>): Promise<T | 'damaged'> {
  try {
    return await reading;
  } catch (error) {
    if (isAppError(error, 'record_damaged')) return 'damaged';
    throw error;
  }
}

/** The schedules of an account, oldest first, and the ids of those that cannot be read. */
export async function listSchedules(
  schedules: string,
  idAccount: number,
): Promise<{ readonly known: readonly Schedule[]; readonly damaged: readonly string[] }> {
  const { ids } = await listScheduleIds(schedules, idAccount);
  const found = await Promise.all(ids.map((id) => orDamaged(findSchedule(schedules, idAccount, id))));
  return {
    known: found
      .filter((schedule) => schedule !== undefined && schedule !== 'damaged')
      .toSorted((a, b) => a.createdMs - b.createdMs || (a.idSchedule < b.idSchedule ? -1 : 1)),
    damaged: ids.filter((_, place) => found[place] === 'damaged'),
  };
}

/**
 * Changes a schedule, durably; undefined when the account has none of that id. Errors: `record_damaged`, `locked`.
 */
export async function changeSchedule(
  schedules: string,
  idAccount: number,
  idSchedule: string,
  update: (schedule: Schedule) => Schedule,
): Promise<Schedule | undefined> {
  const folder = accountFolder(schedules, idAccount);
  if ((await findSchedule(schedules, idAccount, idSchedule)) === undefined) return undefined;
  return await change(folder, async () => {
    const before = await readSchedule(folder, idSchedule);
    if (before === undefined) return undefined;
    const after = update(before);
    if (after !== before) await writeFileDurably(schedulePath(folder, idSchedule), renderChecked({ ...after }));
    return after;
  });
}

/** Removes what a delete, or the export role beside it, has left of a schedule that is gone. */
export async function removeLeftProgress(schedules: string, idAccount: number, idSchedule: string): Promise<void> {
  await removeFile(progressPath(accountFolder(schedules, idAccount), idSchedule));
}

/**
 * Removes a schedule, durably, damaged, missing or not; says whether the account had it. Its exports stay. Error:
 * `locked`.
 */
export async function removeSchedule(schedules: string, idAccount: number, idSchedule: string): Promise<boolean> {
  if (!isScheduleId(idSchedule)) return false;
  const folder = accountFolder(schedules, idAccount);
  const isThere = () => isKnownRecord(schedules, schedulePath(folder, idSchedule));
  if (!(await isThere())) return false;
  return await change(folder, async () => {
    if (!(await isThere())) return false;
    await unmarkRecord(schedules, schedulePath(folder, idSchedule), async () => {
      await removeFile(schedulePath(folder, idSchedule));
      await removeLeftProgress(schedules, idAccount, idSchedule);
      await syncFolder(folder);
    });
    return true;
  });
}
