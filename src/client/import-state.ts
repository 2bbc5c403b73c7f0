import { randomUUID } from 'node:crypto';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import { parseChecked, renameMembers, renderChecked } from '../runtime/files/checked-json.ts';
import { findTextFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { hashFile } from '../runtime/files/file-checks.ts';
import { startPlace, type SourceFormat, type Place } from './event-source.ts';
import type { ImportArea, Insist } from './import-area.ts';

/** Identity of an import; a difference makes it another import. */
export interface ImportIdentity {
  readonly idApp: number;
  readonly event: string;
  readonly format: string;
  readonly map: Readonly<Record<string, string>>;
  /** Of the file, hex. */
  readonly sha256: string;
}

/** The position before which each event is stored or in the file of refused events. */
export interface Settled {
  readonly batches: number;
  readonly place: Place;
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
  readonly acknowledgedThrough: Settled;
  /** First batch that cannot have been sent. */
  readonly sendLimit: number;
  /** No batch in doubt was sent before this time, Unix milliseconds of the client's clock. */
  readonly sinceMs: number;
  /** Client's clock minus the service's, ms. After a change of it the age of batches is unknown. */
  readonly aheadMs?: number;
  /** The whole file may have been sent since then, by an import whose state is lost. */
  readonly unconfirmedSinceMs?: number;
  /** Lines refused in batches that are not settled, by the number of the batch. */
  readonly apart: Readonly<Record<string, readonly number[]>>;
  /** Of the last acknowledged batches. */
  readonly lastKeys: readonly string[];
}

export const statePath = (file: string): string => `${file}.import.json`;
/** Returns the file of refused events: next to a separate state, since the file may be imported elsewhere too. */
export function refusedPath(file: string, stateFile: string): string {
  return `${stateFile === statePath(file) ? file : stateFile}.refused.ndjson`;
}

const isState = (value: Readonly<Record<string, unknown>>): boolean =>
  value['format'] === 2 && typeof value['acknowledgedThrough'] === 'object' && typeof value['identity'] === 'object';

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
    const { version: _, ...found } = parseChecked(text);
    const state = found['format'] === 1 ? { ...renameMembers(found, formerMembers), format: 2 } : found;
    if (isState(state)) return state as unknown as ImportState;
    throw new Error('it is none of this version of tributary');
  } catch (error) {
    throw new AppError('record_damaged', `${file} is no state of an import: ${describeError(error)}`, {
      hint: 'Move it away: the import then asks the service for each batch that it may have stored.',
    });
  }
}

/** Writes a state durably. */
export async function writeImportState(file: string, state: ImportState): Promise<void> {
  await writeFileDurably(file, renderChecked({ ...state }, 2));
}

interface ImportSubject {
  readonly identity: ImportIdentity;
  readonly service: readonly string[];
}

function conflict(what: string, hint: string): AppError {
  return new AppError('conflict', what, { hint });
}

/** Returns the conflict of a state with another app, method or service. */
function findOtherTarget(stateFile: string, state: ImportState, now: ImportSubject): AppError | undefined {
  const { identity, service } = state;
  const { idApp, event } = identity;
  if (idApp !== now.identity.idApp || event !== now.identity.event)
    return conflict(
      `${stateFile} is the state of an import of ${event} into app ${idApp}`,
      'Name another file for this import by --state.',
    );
  if (service.length > 0 && now.service.length > 0 && !service.some((key) => now.service.includes(key)))
    return conflict(
      `${stateFile} is the state of an import into another service`,
      'Name the address of that one, or another file for this import by --state.',
    );
  return undefined;
}

/** Returns the conflict of a state with another content or another reading of it. */
function findOtherInput(
  stateFile: string,
  input: string,
  { identity, startedAt, finishedAt, acknowledgedThrough }: ImportState,
  { identity: now }: ImportSubject,
): AppError | undefined {
  const when = finishedAt === undefined ? `began at ${startedAt}` : `ended at ${finishedAt}`;
  const anew = `with ${stateFile} removed, or another named by --state,`;
  if (identity.sha256 !== now.sha256)
    return conflict(
      `${input} has changed since its import ${when}, and ${acknowledgedThrough.stored} of its events are stored`,
      finishedAt !== undefined
        ? 'Import what is new, or was refused, as a file of its own. --reimport imports all of it: what is stored already is then there twice.'
        : `Put it back as it was, or import what is new as a file of its own: ${anew} all that comes behind the first change would be stored a second time.`,
    );
  if (identity.format !== now.format || JSON.stringify(identity.map) !== JSON.stringify(now.map))
    return conflict(
      `${input} was read in another way when its import ${when}, and ${acknowledgedThrough.stored} of its events are stored`,
      finishedAt !== undefined
        ? 'Repeat the command with --reimport to import all of it in the new way: what is stored already is then there twice.'
        : `Give the same --format and --map as then: ${anew} it begins anew, and what is stored already would be there twice.`,
    );
  return undefined;
}

/**
 * Reports whether an import has ended without storing an event, so that another one cannot repeat any. Unknown for a
 * repeated import and one in doubt.
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
  readonly parallel: number;
  readonly patienceMs: number;
  /** Instead of the one next to the file. */
  readonly stateFile?: string;
  /** Imports a finished import again. */
  readonly again: boolean;
  readonly nowMs: () => number;
  readonly signal: AbortSignal;
}

/** Largest drift of clocks that were not set, ms. */
const clockSlackMs = 3_600_000;
/**
 * Shorter than the service remembers keys: an import resumed within it cannot have been resumed elsewhere before, ms.
 */
const resumedSoonMs = 3_600_000;

async function readIdentity(file: string, options: ImportOptions): Promise<ImportIdentity> {
  const { idApp, event, format, map } = options;
  try {
    return { idApp, event, format, map, sha256: await hashFile(file) };
  } catch (error) {
    if (!isSystemError(error, 'ENOENT', 'EISDIR', 'EACCES')) throw error;
    throw new AppError('not_found', `${file} cannot be read`, { cause: error, hint: 'Name a file of events.' });
  }
}

/**
 * Reports whether a state is to be continued. A new import begins if the first has stored nothing and differs, or is
 * repeated on purpose. Error: `conflict`.
 */
function goesOn(state: ImportState, now: ImportSubject, { file, stateFile, options }: ImportOpening): boolean {
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
      hint: 'Finish it without --reimport first.',
    });
  return true;
}

interface ImportOpening {
  readonly file: string;
  readonly stateFile: string;
  readonly area: ImportArea;
  readonly options: ImportOptions;
  readonly insist: Insist;
}

/**
 * Returns the stored state, or a new one; undefined if aborted. Errors: `conflict` for the state of another import;
 * `not_found` for the file; `record_damaged`; those of `insist`.
 */
export async function openImportState(opening: ImportOpening): Promise<ImportState | undefined> {
  const { file, stateFile, area, options, insist } = opening;
  const { again, nowMs } = options;
  const [found, identity] = [await findImportState(stateFile), await readIdentity(file, options)];
  const service = await insist(() => area.identify());
  if (service === undefined) return undefined;
  const { keys, atMs } = service;
  const aheadMs = atMs === undefined ? 0 : nowMs() - atMs;
  if (found !== undefined && goesOn(found, { identity, service: keys }, opening))
    return found.finishedAt === undefined ? withClock(found, aheadMs) : found;
  return { ...newState(identity, nowMs()), salt: again ? randomUUID() : '', service: keys, aheadMs };
}

/** Creates the state of an import of which nothing was sent. */
export function newState(identity: ImportIdentity, nowMs: number): ImportState {
  return {
    format: 2,
    identity,
    salt: '',
    service: [],
    startedAt: new Date(nowMs).toISOString(),
    acknowledgedThrough: { batches: 0, place: startPlace, stored: 0, refused: 0, refusedBytes: 0 },
    sendLimit: 0,
    sinceMs: nowMs,
    apart: {},
    lastKeys: [],
  };
}

/** Adjusts a state to the client's clock: if that was set, batches in doubt may have any age. */
function withClock(state: ImportState, aheadMs: number): ImportState {
  const wasSet = Math.abs(aheadMs - (state.aheadMs ?? aheadMs)) > clockSlackMs;
  const ofAnyAge = { sinceMs: 0, ...(state.unconfirmedSinceMs === undefined ? {} : { unconfirmedSinceMs: 0 }) };
  return { ...state, aheadMs, ...(wasSet ? ofAnyAge : {}) };
}

/** Reports whether a copy of the file and state may have been imported further elsewhere. */
export function mayBeBehind({ sendLimit, sinceMs, salt, unconfirmedSinceMs }: ImportState, nowMs: number): boolean {
  // A new import without a state asks too; a repeated one has new keys.
  const isNew = sendLimit === 0 && salt === '';
  return unconfirmedSinceMs === undefined && (isNew || (sendLimit > 0 && Math.abs(nowMs - sinceMs) > resumedSoonMs));
}
