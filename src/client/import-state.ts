import { randomUUID } from 'node:crypto';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import { membersOf, parseChecksummed, renameMembers, renderChecksummed } from '../runtime/files/checksummed-json.ts';
import { findTextFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { hashFile } from '../runtime/files/file-checks.ts';
import { inputStart, type SourceFormat, type InputPosition } from './event-source.ts';
import type { ImportArea, RetryUntilAnswered } from './import-area.ts';

/** Identity of an import; a difference makes it another import. */
export interface ImportIdentity {
  readonly idApp: number;
  readonly event: string;
  readonly format: string;
  readonly map: Readonly<Record<string, string>>;
  /** Absent in states up to version 0.3: seconds. */
  readonly timeFormat?: string;
  /** Of the file, hex. */
  readonly sha256: string;
}

/** The position before which each event is stored or in the file of rejected events. */
export interface AcknowledgedPosition {
  readonly batches: number;
  readonly place: InputPosition;
  readonly stored: number;
  readonly refused: number;
  readonly refusedBytes: number;
}

/**
 * The state of a file's import, stored next to it. It is written before what it permits is sent: only batches from
 * `acknowledgedThrough` up to `sendLimit` may have been sent.
 */
export interface ImportState {
  readonly format: 2;
  readonly identity: ImportIdentity;
  /** Distinguishes the keys of a repeated import; empty for the first. */
  readonly salt: string;
  /** The service's keys of receipts, which identify it. */
  readonly service: readonly string[];
  readonly startedAt: string;
  readonly finishedAt?: string;
  readonly acknowledgedThrough: AcknowledgedPosition;
  /** First batch that cannot have been sent. */
  readonly sendLimit: number;
  /** No unconfirmed batch was sent before this time, Unix ms of the client's clock. */
  readonly sinceMs: number;
  /** Client's clock minus the service's, ms. After a change of it the age of batches is unknown. */
  readonly aheadMs?: number;
  /** The whole file may have been sent since then, by an import whose state is lost. */
  readonly unconfirmedSinceMs?: number;
  /** Lines rejected in unacknowledged batches, by the number of the batch. */
  readonly apart: Readonly<Record<string, readonly number[]>>;
  /** Of the last acknowledged batches. */
  readonly lastKeys: readonly string[];
}

export const statePath = (file: string): string => `${file}.import.json`;
/** Returns the file of rejected events: next to a separate state, since the file may be imported elsewhere too. */
export function refusedPath(file: string, stateFile: string): string {
  return `${stateFile === statePath(file) ? file : stateFile}.refused.ndjson`;
}

function isState(value: unknown): value is ImportState {
  const { format, acknowledgedThrough, identity } = membersOf(value);
  return format === 2 && typeof acknowledgedThrough === 'object' && typeof identity === 'object';
}

/** Members of format 1, which version 0.3 wrote; it is read until version 0.5. */
const formerMembers = {
  settled: 'acknowledgedThrough',
  sendable: 'sendLimit',
  doubtSinceMs: 'unconfirmedSinceMs',
};

/** Reads a state; undefined if there is none. Error: `record_damaged`. */
async function findImportState(file: string): Promise<ImportState | undefined> {
  const text = await findTextFile(file);
  if (text === undefined) return undefined;
  try {
    const { version: _, ...found } = parseChecksummed(text);
    const state = found['format'] === 1 ? { ...renameMembers(found, formerMembers), format: 2 } : found;
    if (isState(state)) return state;
    throw new Error('it has an unknown format');
  } catch (error) {
    throw new AppError('record_damaged', `${file} is not an import state: ${describeError(error)}`, {
      hint: 'Move the file away. The import then looks up batches that may be stored already.',
    });
  }
}

/** Writes a state durably. */
export async function writeImportState(file: string, state: ImportState): Promise<void> {
  await writeFileDurably(file, renderChecksummed({ ...state }, 2));
}

interface ImportSubject {
  readonly identity: ImportIdentity;
  readonly service: readonly string[];
}

function conflict(what: string, hint: string): AppError {
  return new AppError('conflict', what, { hint });
}

/** Returns the conflict with a state of another app, method or service. */
function findOtherTarget(stateFile: string, state: ImportState, now: ImportSubject): AppError | undefined {
  const { identity, service } = state;
  const { idApp, event } = identity;
  if (idApp !== now.identity.idApp || event !== now.identity.event)
    return conflict(
      `${stateFile} is the state of an import of ${event} into app ${idApp}`,
      'Pass another state file with --state.',
    );
  if (service.length > 0 && now.service.length > 0 && !service.some((key) => now.service.includes(key)))
    return conflict(
      `${stateFile} is the state of an import into another service`,
      'Pass the URL of that service, or another state file with --state.',
    );
  return undefined;
}

/** Form of times in a new import. */
export const defaultTimeFormat = 'auto';
export const timeFormatOf = ({ timeFormat = 's' }: ImportIdentity): string => timeFormat;

const isSameMap = (one: ImportIdentity['map'], other: ImportIdentity['map']): boolean =>
  JSON.stringify(one) === JSON.stringify(other);

/** Returns the conflict with a state of other content, format or mapping. */
function findOtherInput(
  stateFile: string,
  input: string,
  { identity, startedAt, finishedAt, acknowledgedThrough }: ImportState,
  { identity: now }: ImportSubject,
): AppError | undefined {
  const when = finishedAt === undefined ? `began at ${startedAt}` : `ended at ${finishedAt}`;
  const restart = `A new import (remove ${stateFile}, or pass --state)`;
  if (identity.sha256 !== now.sha256)
    return conflict(
      `${input} has changed since its import ${when}, and ${acknowledgedThrough.stored} of its events are stored`,
      finishedAt !== undefined
        ? 'Import new and rejected events as a separate file. --reimport imports the whole file and duplicates the stored events.'
        : `Restore the original file, or import new events as a separate file. ${restart} would duplicate stored events behind the first change.`,
    );
  const isSameReading =
    identity.format === now.format && timeFormatOf(identity) === timeFormatOf(now) && isSameMap(identity.map, now.map);
  if (!isSameReading)
    return conflict(
      `${input} had another --format, --map or --time-format when its import ${when}, and ${acknowledgedThrough.stored} of its events are stored`,
      finishedAt !== undefined
        ? 'Pass --reimport to import the whole file with the new options; this duplicates the stored events.'
        : `Pass the same options as before. ${restart} would duplicate the stored events.`,
    );
  return undefined;
}

/**
 * Reports whether an import has ended without storing an event, so that a new one cannot duplicate any. False if that
 * is unknown: for a repeated import, and with unconfirmed batches.
 */
function hasStoredNothing({ finishedAt, acknowledgedThrough, salt, unconfirmedSinceMs }: ImportState): boolean {
  return (
    finishedAt !== undefined && acknowledgedThrough.stored === 0 && salt === '' && unconfirmedSinceMs === undefined
  );
}

export interface ImportOptions {
  readonly idApp: number;
  readonly event: string;
  readonly format: SourceFormat;
  readonly map: Readonly<Record<string, string>>;
  /** Form of `eventTimestamp` (runtime/time-format.ts); by default that of the resumed import, or `auto`. */
  readonly timeFormat?: string;
  readonly parallel: number;
  readonly giveUpAfterMs: number;
  /** Instead of the one next to the file. */
  readonly stateFile?: string;
  /** Whether to import a finished file again. */
  readonly again: boolean;
  /** Whether to import a file whose first events are all invalid. */
  readonly force?: boolean;
  readonly nowMs: () => number;
  readonly signal: AbortSignal;
}

/** Maximum drift of a clock that was not set, ms. */
const clockSlackMs = 3_600_000;
/**
 * Shorter than the key window of the service, ms: an import resumed within it cannot have been resumed elsewhere.
 */
const resumedSoonMs = 3_600_000;

async function readIdentity(
  file: string,
  options: ImportOptions,
  found: ImportState | undefined,
): Promise<ImportIdentity> {
  const { idApp, event, format, map, again } = options;
  const isNew = found === undefined || again || hasStoredNothing(found);
  const timeFormat = options.timeFormat ?? (isNew ? defaultTimeFormat : timeFormatOf(found.identity));
  try {
    return { idApp, event, format, map, timeFormat, sha256: await hashFile(file) };
  } catch (error) {
    if (!isSystemError(error, 'ENOENT', 'EISDIR', 'EACCES')) throw error;
    throw new AppError('not_found', `cannot read ${file}`, { cause: error, hint: 'Pass a readable file of events.' });
  }
}

/**
 * Reports whether a state is resumed. A new import starts if the first has stored nothing and differs, or is repeated
 * on purpose. Error: `conflict`.
 */
function isResumed(state: ImportState, now: ImportSubject, { file, stateFile, options }: ImportOpening): boolean {
  const isFinished = state.finishedAt !== undefined;
  const otherTarget = findOtherTarget(stateFile, state, now);
  const otherInput = findOtherInput(stateFile, file, state, now);
  const isOther = otherTarget !== undefined || otherInput !== undefined;
  if (hasStoredNothing(state)) return !options.again && !isOther;
  if (otherTarget !== undefined) throw otherTarget;
  if (isFinished && options.again) return false;
  if (otherInput !== undefined) throw otherInput;
  if (options.again && state.salt === '')
    throw new AppError('conflict', `the import of ${file} that began at ${state.startedAt} is not finished`, {
      hint: 'Run the command without --reimport first.',
    });
  return true;
}

interface ImportOpening {
  readonly file: string;
  readonly stateFile: string;
  readonly area: ImportArea;
  readonly options: ImportOptions;
  readonly retryUntilAnswered: RetryUntilAnswered;
}

/**
 * Returns the stored state, or a new one; undefined if aborted. Errors: `conflict` for the state of another import;
 * `not_found` for the file; `record_damaged`; those of `retryUntilAnswered`.
 */
export async function openImportState(opening: ImportOpening): Promise<ImportState | undefined> {
  const { file, stateFile, area, options, retryUntilAnswered } = opening;
  const { again, nowMs } = options;
  const found = await findImportState(stateFile);
  const identity = await readIdentity(file, options, found);
  const service = await retryUntilAnswered(() => area.identify());
  if (service === undefined) return undefined;
  const { keys, atMs } = service;
  const aheadMs = atMs === undefined ? 0 : nowMs() - atMs;
  if (found !== undefined && isResumed(found, { identity, service: keys }, opening))
    return found.finishedAt === undefined ? withClock(found, aheadMs) : found;
  return { ...newState(identity, nowMs()), salt: again ? randomUUID() : '', service: keys, aheadMs };
}

/** Creates the state of a new import. */
export function newState(identity: ImportIdentity, nowMs: number): ImportState {
  return {
    format: 2,
    identity,
    salt: '',
    service: [],
    startedAt: new Date(nowMs).toISOString(),
    acknowledgedThrough: { batches: 0, place: inputStart, stored: 0, refused: 0, refusedBytes: 0 },
    sendLimit: 0,
    sinceMs: nowMs,
    apart: {},
    lastKeys: [],
  };
}

/** Adjusts a state to the client's clock: if that was set, unconfirmed batches may have any age. */
function withClock(state: ImportState, aheadMs: number): ImportState {
  const wasSet = Math.abs(aheadMs - (state.aheadMs ?? aheadMs)) > clockSlackMs;
  const ofAnyAge = { sinceMs: 0, ...(state.unconfirmedSinceMs === undefined ? {} : { unconfirmedSinceMs: 0 }) };
  return { ...state, aheadMs, ...(wasSet ? ofAnyAge : {}) };
}

/** Reports whether a copy of the file and state may have been resumed elsewhere. */
export function mayBeBehind({ sendLimit, sinceMs, salt, unconfirmedSinceMs }: ImportState, nowMs: number): boolean {
  // A new import may have lost its state; a repeated one has new keys.
  const isNew = sendLimit === 0 && salt === '';
  return unconfirmedSinceMs === undefined && (isNew || (sendLimit > 0 && Math.abs(nowMs - sinceMs) > resumedSoonMs));
}
