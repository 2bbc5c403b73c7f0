/**
 * Report files at rest: export requests, their results, and the links that lead to them.
 *
 * In: the request of an export, then its attempts and its one end, from the export stage; the parts themselves come
 * from the export worker, which writes them into the attempt's own folder.
 * Out: the state of a request; the bytes of its files to whoever holds a signed link that has not ended.
 * Layout: `reports/<id>/job.json` is the whole truth about a request; `reports/<id>/parts/` holds its files.
 * Invariant: a request answered to the client is durable; its id is never given out again, deletion included; it ends
 * exactly once; the files of a successful request are complete and durable before job.json says so.
 * Crash: job.json is the old or the new one, whole. Folders of unfinished attempts, and folders without a job.json,
 * are removed at the next start.
 */

import { isCount, isInteger, isText, matching, oneOf, optional, shapeOf } from '../runtime/store/shape.ts';

/** What the name of an attempt's folder begins with. */
export const attemptPrefix = 'attempt-';

/** Folder of a request's files, below its own. */
export const partsFolder = 'parts';

/** How a request stands. `queued` and `running` are in progress; the others are final. */
export const reportStates = ['queued', 'running', 'success', 'failed', 'user_failed', 'canceled'] as const;
export type ReportState = (typeof reportStates)[number];

/** One downloadable file of a successful request. */
export interface ReportFile {
  /** Plain file name: letters, digits, `.`, `_` and `-` only. */
  readonly name: string;
  /** Data rows, without the header. */
  readonly rows: number;
  /** Size of the file as it is downloaded. */
  readonly bytes: number;
  /** SHA-256 of the file, lower-case hex. */
  readonly sha256: string;
}

/** Reports whether a value that was read is a report file. */
export const isReportFile = shapeOf<ReportFile>({
  name: matching(/^[\w.-]+$/),
  rows: isCount,
  bytes: isCount,
  sha256: matching(/^[0-9a-f]{64}$/),
});

/** The version of the data that a result was read from. */
export interface ReportBasis {
  readonly version: number;
  /** What an export of the rows that came since is ordered with. */
  readonly nextSinceVersion: string;
  /** Unix seconds: at least until then the same request as of that version gives the same bytes. */
  readonly keptUntilSeconds: number;
  /** SHA-256 (hex) of the log's entry of that version, each of which names that of the one before. */
  readonly head?: string;
  /**
   * Every event that was acknowledged before the broker's clock first showed this is in the version, Unix milliseconds; absent
   * where that is not known.
   */
  readonly watermarkMs?: number;
}

/** Reports whether a value that was read is a basis. */
export const isReportBasis = shapeOf<ReportBasis>({
  version: isCount,
  nextSinceVersion: isText,
  keptUntilSeconds: isCount,
  head: optional(matching(/^[0-9a-f]{64}$/)),
  watermarkMs: optional(isCount),
});

/** Which slot of a schedule a request is the export of; a slot has one request. */
export interface ReportSlot {
  readonly idSchedule: string;
  /** The slot's number in its schedule. */
  readonly slot: number;
  /** What the slot is called in answers: its date, or its hour. */
  readonly name: string;
  /** Events acknowledged before the end of its period may be missing: the lake did not say within hours that they are in. */
  readonly mayLack?: true;
}

/** What answers and messages say of the slot of a request. */
export function describeSlot({ slot }: Pick<ReportJob, 'slot'>): Readonly<Record<string, unknown>> {
  if (slot === undefined) return {};
  const { idSchedule, name, mayLack } = slot;
  return { idSchedule, slot: name, ...(mayLack === undefined ? {} : { slotMayLackEvents: true }) };
}

/** Reports whether a value that was read is a slot. */
export const isReportSlot = shapeOf<ReportSlot>({
  idSchedule: isText,
  slot: isInteger,
  name: isText,
  mayLack: oneOf([undefined, true]),
});

/**
 * An export request, as job.json has it beside its checksum. Times are Unix milliseconds unless the name says seconds.
 */
export interface ReportJob {
  readonly id: number;
  readonly idUser: string;
  readonly idAccount: number;
  readonly createdMs: number;
  readonly state: ReportState;
  /** Attempts begun, without the interrupted ones, so that a request that keeps failing is not retried without end. */
  readonly attempts: number;
  /** Attempts that were interrupted: the worker, or the process that ran it, was killed. Absent: none. */
  readonly interruptions?: number;
  /** Name of the export event; part of the file names. */
  readonly event: string;
  /** 32 hex digits that make the file names unguessable, the same for every attempt. */
  readonly nonce: string;
  /** The parsed request. Only the export stage looks into it. */
  readonly request: unknown;
  /** Absent: its user has ordered it. */
  readonly slot?: ReportSlot;
  /** Why it failed, for the operator (`failed`) or for the user (`user_failed`). */
  readonly error?: string;
  readonly finishedMs?: number;
  /** Unix seconds: from then on the links are refused and the request is gone. Set when it ends. */
  readonly expiresSeconds?: number;
  readonly files?: readonly ReportFile[];
  /** Of a successful request; absent where it ended before that was written down. */
  readonly basis?: ReportBasis;
}

/** What a new request is made of. */
export type NewReport = Pick<ReportJob, 'idUser' | 'idAccount' | 'event' | 'request' | 'slot'>;

/** How a request can end. */
export type ReportEnd =
  | { readonly state: 'success'; readonly files: readonly ReportFile[]; readonly basis?: ReportBasis }
  | { readonly state: 'failed' | 'user_failed'; readonly error: string }
  | { readonly state: 'canceled' };

/** Attempts of a request without the interrupted ones, and without the one that is under way, if one is. */
export function endedAttempts(job: ReportJob): number {
  return job.state === 'running' ? job.attempts - 1 : job.attempts;
}

/** Whether a request still waits or runs. */
export function isInProgress(job: ReportJob): boolean {
  return job.state === 'queued' || job.state === 'running';
}

/**
 * Whether a finished request, its links and its files have ended. Exact to the second, whatever the sweeper has done.
 */
export function isExpired(job: ReportJob, nowMs: number): boolean {
  return job.expiresSeconds !== undefined && nowMs >= job.expiresSeconds * 1000;
}

/** Name of the archive that holds all files of a request; it is made while it is downloaded and never at rest. */
export function archiveName(job: ReportJob): string {
  return `${fileStem(job)}.zip`;
}

/** What every file name of a request begins with: `<id>.<event>.<32 hex>`. */
export function fileStem(job: Pick<ReportJob, 'id' | 'event' | 'nonce'>): string {
  return `${job.id}.${job.event}.${job.nonce}`;
}
