import { randomUUID } from 'node:crypto';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { hashFile } from '../runtime/files/file-checks.ts';
import { startPlace, type SourceFormat } from './event-source.ts';
import type { ImportArea } from './import-area.ts';
import {
  findImportState,
  findOtherInput,
  findOtherTarget,
  hasStoredNothing,
  type ImportIdentity,
  type ImportState,
  type ImportSubject,
} from './import-state.ts';
import type { Insist } from './insist.ts';

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
