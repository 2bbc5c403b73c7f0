import path from 'node:path';
import { AppError } from '../runtime/errors.ts';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { findTextFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { noProgress, type Progress, type Schedule } from './schedules.ts';
import { frequencies } from './slot-rule.ts';

const idForm = /^sc_[0-9a-f]{16}$/;

/** Whether a text has the form of a schedule's id. */
export function isScheduleId(text: string): boolean {
  return idForm.test(text);
}

/** The record of a schedule, in the folder of its account. */
export function schedulePath(folder: string, idSchedule: string): string {
  return path.join(folder, `${idSchedule}.json`);
}

/** The record of how far it has come. */
export function progressPath(folder: string, idSchedule: string): string {
  return path.join(folder, `${idSchedule}.progress.json`);
}

const isText = (value: unknown): boolean => typeof value === 'string';
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;

function isRule(value: unknown): boolean {
  const { every, at, weekday, timezone } = (value ?? {}) as Readonly<Record<string, unknown>>;
  return (
    frequencies.some((frequency) => frequency === every) &&
    /^(\d\d)?:\d\d$/.test(String(at)) &&
    (weekday === undefined || isCount(weekday)) &&
    isText(timezone)
  );
}

function isArguments(value: unknown): boolean {
  return (
    Array.isArray(value) &&
    value.every(
      (entry: unknown) =>
        Array.isArray(entry) && isText(entry[0]) && Array.isArray(entry[1]) && entry[1].every((text) => isText(text)),
    )
  );
}

function isSchedule(record: Readonly<Record<string, unknown>>, idSchedule: string): boolean {
  return (
    record['idSchedule'] === idSchedule &&
    isCount(record['idAccount']) &&
    isText(record['idUser']) &&
    isCount(record['createdMs']) &&
    isRule(record['rule']) &&
    isCount(record['catchUp']) &&
    isArguments(record['arguments']) &&
    (record['sinceVersion'] === undefined || isText(record['sinceVersion'])) &&
    Number.isSafeInteger(record['firstSlot']) &&
    typeof record['paused'] === 'boolean' &&
    isCount(record['resumes'])
  );
}

function isStop(value: unknown): boolean {
  const { reason, resumes } = (value ?? {}) as Readonly<Record<string, unknown>>;
  return isText(reason) && isCount(resumes);
}

function isProgress(record: Readonly<Record<string, unknown>>): boolean {
  const { made, endedReport, lastReport, place, stopped } = record;
  return (
    Array.isArray(made) &&
    made.every(
      (span: unknown) => Array.isArray(span) && span.length === 2 && span.every((slot) => Number.isSafeInteger(slot)),
    ) &&
    isCount(endedReport) &&
    isCount(lastReport) &&
    (place === undefined || isText(place)) &&
    (stopped === undefined || isStop(stopped))
  );
}

async function readRecord(
  file: string,
  isGood: (record: Readonly<Record<string, unknown>>) => boolean,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  const text = await findTextFile(file);
  if (text === undefined) return undefined;
  const hint = 'Restore it from a backup, or delete the schedule and create it anew.';
  try {
    const { version: _, ...record } = parseChecked(text);
    if (!isGood(record)) throw new Error('it is not what this version writes');
    return record;
  } catch (error) {
    throw new AppError('record_damaged', `${file} is damaged`, { cause: error, hint });
  }
}

/** Reads a schedule; undefined when there is none of that id. Error: `record_damaged`. */
export async function readSchedule(folder: string, idSchedule: string): Promise<Schedule | undefined> {
  const record = await readRecord(schedulePath(folder, idSchedule), (found) => isSchedule(found, idSchedule));
  return record as unknown as Schedule | undefined;
}

/** Reads how far a schedule has come. Error: `record_damaged`. */
export async function readProgress(folder: string, idSchedule: string): Promise<Progress> {
  const record = await readRecord(progressPath(folder, idSchedule), isProgress);
  return record === undefined ? noProgress : (record as unknown as Progress);
}

/** Writes how far a schedule has come; durable when it returns. Only the export role does. */
export async function writeProgress(folder: string, idSchedule: string, progress: Progress): Promise<void> {
  await writeFileDurably(progressPath(folder, idSchedule), renderChecked({ ...progress }));
}
