import { randomUUID } from 'node:crypto';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { findTextFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { hashFile } from '../runtime/files/file-checks.ts';
import { startPlace, type SourceFormat } from './event-source.ts';
import type { ImportArea, Insist } from './import-area.ts';
import type { Place } from './records.ts';

/** What an import is of: one that differs in any of this is another import. */
export interface ImportIdentity {
  readonly idApp: number;
  /** The method for one event. */
  readonly event: string;
  readonly format: string;
  /** The column map of CSV, as it was given. */
  readonly map: Readonly<Record<string, string>>;
  /** Of the file's bytes, hex. */
  readonly sha256: string;
}

/** Up to where everything is settled: each event before it is stored, or in the file of refused events. */
export interface Settled {
  /** Batches before it. */
  readonly batches: number;
  readonly place: Place;
  readonly stored: number;
  readonly refused: number;
  /** Length of the file of refused events. */
  readonly refusedBytes: number;
}

/**
 * How far the import of a file is, at rest beside it. It is written before what it permits is sent: batches from
 * `settled` up to `sendable` may have been sent, none behind it has.
 */
export interface ImportState {
  readonly format: 1;
  readonly identity: ImportIdentity;
  /** Sets the keys of a repeated import apart from those of the first; empty in that. */
  readonly salt: string;
  /** The service's keys of receipts, which tell it from another. */
  readonly service: readonly string[];
  readonly startedAt: string;
  /** Everything is settled. */
  readonly finishedAt?: string;
  readonly settled: Settled;
  /** The number of the first batch that must not have been sent. */
  readonly sendable: number;
  /** Before none of those in doubt was sent for the first time, Unix milliseconds of the caller's clock. */
  readonly sinceMs: number;
  /** How far the caller's clock was ahead of the service's, milliseconds: where that has changed, nobody knows how long ago that was. */
  readonly aheadMs?: number;
  /** All of it may have been sent since then, by an import whose state is gone. */
  readonly doubtSinceMs?: number;
  /** Lines that were found to be refused, in batches that are not settled, by the number of the batch. */
  readonly apart: Readonly<Record<string, readonly number[]>>;
  /** Keys of the last batches that were acknowledged. */
  readonly lastKeys: readonly string[];
}

/** Where the state of a file's import rests, unless another place is named. */
export const statePath = (file: string): string => `${file}.import.json`;
/**
 * Where the events are written that were refused: beside the state where that has a place of its own, since the file may
 * be imported elsewhere too.
 */
export function refusedPath(file: string, stateFile: string): string {
  return `${stateFile === statePath(file) ? file : stateFile}.refused.ndjson`;
}

const isState = (value: Readonly<Record<string, unknown>>): boolean =>
  value['format'] === 1 && typeof value['settled'] === 'object' && typeof value['identity'] === 'object';

/** Reads a state; undefined when there is none. Error: `record_damaged`. */
export async function findImportState(file: string): Promise<ImportState | undefined> {
  const text = await findTextFile(file);
  if (text === undefined) return undefined;
  try {
    const { version: _, ...state } = parseChecked(text);
    if (isState(state)) return state as unknown as ImportState;
    throw new Error('it is none of this version of tributary');
  } catch (error) {
    throw new AppError('record_damaged', `${file} is no state of an import: ${describeError(error)}`, {
      hint: 'Move it away: the import then asks the service for each batch that it may have stored.',
    });
  }
}

/** Writes a state, which survives a power cut. */
export async function writeImportState(file: string, state: ImportState): Promise<void> {
  await writeFileDurably(file, renderChecked({ ...state }, 2));
}

/** What an import is of now: its identity, and the service that answers. */
export interface ImportSubject {
  readonly identity: ImportIdentity;
  readonly service: readonly string[];
}

function conflict(what: string, hint: string): AppError {
  return new AppError('conflict', what, { hint });
}

/** Says why a state is of an import to another place; undefined: it is not. */
export function findOtherTarget(stateFile: string, state: ImportState, now: ImportSubject): AppError | undefined {
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

/** Says why a state is of an import of something else; undefined: it is not. */
export function findOtherInput(
  stateFile: string,
  input: string,
  { identity, startedAt, finishedAt, settled }: ImportState,
  { identity: now }: ImportSubject,
): AppError | undefined {
  const when = finishedAt === undefined ? `began at ${startedAt}` : `ended at ${finishedAt}`;
  const anew = `with ${stateFile} removed, or another named by --state,`;
  if (identity.sha256 !== now.sha256)
    return conflict(
      `${input} has changed since its import ${when}, and ${settled.stored} of its events are stored`,
      finishedAt !== undefined
        ? 'Import what is new, or was refused, as a file of its own. --again imports all of it: what is stored already is then there twice.'
        : `Put it back as it was, or import what is new as a file of its own: ${anew} all that comes behind the first change would be stored a second time.`,
    );
  if (identity.format !== now.format || JSON.stringify(identity.map) !== JSON.stringify(now.map))
    return conflict(
      `${input} was read in another way when its import ${when}, and ${settled.stored} of its events are stored`,
      finishedAt !== undefined
        ? 'Repeat the command with --again to import all of it in the new way: what is stored already is then there twice.'
        : `Give the same --format and --map as then: ${anew} it begins anew, and what is stored already would be there twice.`,
    );
  return undefined;
}

/**
 * Says whether an import has ended and stored nothing at all: what is imported instead has nothing in common with what
 * is there. A repeated import, and one of what may have been there, do not know that.
 */
export function hasStoredNothing({ finishedAt, settled, salt, doubtSinceMs }: ImportState): boolean {
  return finishedAt !== undefined && settled.stored === 0 && salt === '' && doubtSinceMs === undefined;
}

/** What is imported how, as its caller says it. */
export interface ImportOptions {
  readonly idApp: number;
  /** The method for one event. */
  readonly event: string;
  readonly format: SourceFormat;
  readonly map: Readonly<Record<string, string>>;
  /** Requests on their way at a time. */
  readonly parallel: number;
  readonly patienceMs: number;
  /** Another place for the state than beside the file. */
  readonly stateFile?: string;
  /** Imports once more what was imported. */
  readonly again: boolean;
  readonly nowMs: () => number;
  readonly signal: AbortSignal;
}

/** How much two clocks may drift apart while nobody has set one of them. */
const clockSlackMs = 3_600_000;
/** An import that was gone on with so soon was not gone on with elsewhere longer ago than the service remembers keys. */
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
 * Says whether the import of a state goes on, or is what is asked for. A new one begins where the first has stored
 * nothing and is another, and where it is repeated on purpose. Error: `conflict`.
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
      hint: 'Finish it without --again first.',
    });
  return true;
}

/** What an import works with before anything is sent. */
export interface ImportOpening {
  readonly file: string;
  readonly stateFile: string;
  readonly area: ImportArea;
  readonly options: ImportOptions;
  readonly insist: Insist;
}

/**
 * The state to go on from: that at rest, or a new one. Undefined when the signal ended it. Errors: `conflict` for a state
 * of another import; `not_found` for the file; `record_damaged`; those of `insist`.
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
  return {
    format: 1,
    identity,
    salt: again ? randomUUID() : '',
    service: keys,
    startedAt: new Date(nowMs()).toISOString(),
    settled: { batches: 0, place: startPlace, stored: 0, refused: 0, refusedBytes: 0 },
    sendable: 0,
    sinceMs: nowMs(),
    aheadMs,
    apart: {},
    lastKeys: [],
  };
}

/** A state at rest under the caller's clock of now: where that was set since, what is in doubt may be of any age. */
function withClock(state: ImportState, aheadMs: number): ImportState {
  const wasSet = Math.abs(aheadMs - (state.aheadMs ?? aheadMs)) > clockSlackMs;
  const ofAnyAge = { sinceMs: 0, ...(state.doubtSinceMs === undefined ? {} : { doubtSinceMs: 0 }) };
  return { ...state, aheadMs, ...(wasSet ? ofAnyAge : {}) };
}

/** Says whether an import may have been gone on with elsewhere, by a copy of its file and state. */
export function mayBeBehind({ sendable, sinceMs, salt, doubtSinceMs }: ImportState, nowMs: number): boolean {
  // What began just now without a state is asked after as well; a repeated import has keys of its own from its begin on.
  const isNew = sendable === 0 && salt === '';
  return doubtSinceMs === undefined && (isNew || (sendable > 0 && Math.abs(nowMs - sinceMs) > resumedSoonMs));
}
