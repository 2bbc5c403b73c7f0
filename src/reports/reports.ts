/**
 * Reports: export requests, their files, and the links to them.
 *
 * In: requests, attempts and ends from the export stage; parts from the export worker, in the attempt's folder. Out:
 * the state of a request; the bytes of its files to holders of signed links.
 * Layout: the objects `<id>/job.json`, the state of a request, and `<id>/parts/...`, its files; an attempt's local
 * folder `reports/<id>/attempt-...`, which alone is not in the store. In a store that several hosts share, the files of
 * each attempt have their own prefix, `<id>/parts/<nonce>/...`.
 * Invariant: a request that was acknowledged is durable; its id is never used again; it ends once; the files of a
 * successful request are durable before job.json names them.
 * Crash: job.json is the old or the new one. The next start removes folders of unfinished attempts, and those without a
 * job.json.
 */

import { addFormerNames } from '../runtime/former-names.ts';
import { isCount, isInteger, isText, matching, oneOf, optional, shapeOf } from '../runtime/store/shape.ts';

export const attemptPrefix = 'attempt-';

/** State of a request. `queued` and `running` are in progress; the others are final. */
export const reportStates = ['queued', 'running', 'success', 'failed', 'user_failed', 'canceled'] as const;
export type ReportState = (typeof reportStates)[number];

export interface ReportFile {
  /** Letters, digits, `.`, `_` and `-` only. */
  readonly name: string;
  /** Rows without the header. */
  readonly rows: number;
  readonly bytes: number;
  /** SHA-256, lower-case hex. */
  readonly sha256: string;
}

export const isReportFile = shapeOf<ReportFile>({
  name: matching(/^[\w.-]+$/),
  rows: isCount,
  bytes: isCount,
  sha256: matching(/^[0-9a-f]{64}$/),
});

/** The version of the data that an export read. */
export interface ReportVersion {
  readonly version: number;
  /** Cursor of an export of the rows since. */
  readonly nextSinceVersion: string;
  /** Unix s: until then the same request as of this version gives the same bytes. */
  readonly keptUntilSeconds: number;
  /** SHA-256 of the version's log entry, hex. */
  readonly head?: string;
  /** Events acknowledged before this time of the broker's clock are in the version, Unix ms; absent if unknown. */
  readonly watermarkMs?: number;
}

export const isReportBasis = shapeOf<ReportVersion>({
  version: isCount,
  nextSinceVersion: isText,
  keptUntilSeconds: isCount,
  head: optional(matching(/^[0-9a-f]{64}$/)),
  watermarkMs: optional(isCount),
});

/** The slot of a schedule that a request exports. A slot has one request. */
export interface ReportSlot {
  readonly idSchedule: string;
  readonly slot: number;
  /** Its name in responses: its date or hour. */
  readonly name: string;
  /** The run that a user asked for, 16 hex digits; absent: the run of its time. */
  readonly run?: string;
  /** Whether events acknowledged before the end of its period may be missing. */
  readonly mayBeIncomplete?: true;
}

/** Renders the slot of a request for responses and messages. */
export function describeSlot({ slot }: Pick<ReportJob, 'slot'>): Readonly<Record<string, unknown>> {
  if (slot === undefined) return {};
  const { idSchedule, name, mayBeIncomplete } = slot;
  const isIncomplete = mayBeIncomplete === undefined ? {} : { slotMayBeIncomplete: true };
  return addFormerNames('export', { idSchedule, slot: name, ...isIncomplete });
}

export function sumFiles(files: readonly ReportFile[]): Readonly<Record<'files' | 'rows' | 'bytes', number>> {
  const sum = (member: 'rows' | 'bytes'): number => files.reduce((total, file) => total + file[member], 0);
  return { files: files.length, rows: sum('rows'), bytes: sum('bytes') };
}

export const isReportSlot = shapeOf<ReportSlot>({
  idSchedule: isText,
  slot: isInteger,
  name: isText,
  run: optional(matching(/^[0-9a-f]{16}$/)),
  mayBeIncomplete: oneOf([undefined, true]),
});

/** An export request, as in job.json. Times are Unix ms unless named otherwise. */
export interface ReportJob {
  readonly id: number;
  readonly idUser: string;
  readonly idAccount: number;
  readonly createdMs: number;
  readonly state: ReportState;
  /** Attempts without the interrupted ones; bounds the retries of a failing request. */
  readonly attempts: number;
  /** Attempts whose worker or process was killed; absent: none. */
  readonly interruptions?: number;
  readonly event: string;
  /** Name that its user gave it; absent: none. */
  readonly name?: string;
  /** Destination that gets the files; absent: none. */
  readonly deliverTo?: string;
  /** 32 hex digits that make the file names unguessable, the same for every attempt. */
  readonly nonce: string;
  /** 16 hex digits of the current attempt, in the keys of its files; absent if `parts/` has them directly. */
  readonly attemptNonce?: string;
  /** The parsed request; only the export stage reads it. */
  readonly request: unknown;
  /** Absent if a user created it. */
  readonly slot?: ReportSlot;
  /** Context of the call that created it (W3C); absent unless that call is traced. */
  readonly traceparent?: string;
  /** Reason of the failure, for the operator (`failed`) or the user (`user_failed`). */
  readonly error?: string;
  readonly finishedMs?: number;
  /** Expiry of the links and of the request, Unix s; set when it ends. */
  readonly expiresSeconds?: number;
  readonly files?: readonly ReportFile[];
  /** Columns of the files; absent if they are the selectors of the request. */
  readonly columns?: readonly string[];
  /** Of a successful request; absent in requests of early versions. */
  readonly basis?: ReportVersion;
}

export type NewReport = Pick<
  ReportJob,
  'idUser' | 'idAccount' | 'event' | 'name' | 'deliverTo' | 'request' | 'slot' | 'traceparent'
>;

export type ReportEnd =
  | ({ readonly state: 'success'; readonly files: readonly ReportFile[] } & Pick<ReportJob, 'columns' | 'basis'>)
  | { readonly state: 'failed' | 'user_failed'; readonly error: string }
  | { readonly state: 'canceled' };

/** Counts the attempts of a request that have ended, without the interrupted ones. */
export function endedAttempts(job: ReportJob): number {
  return job.state === 'running' ? job.attempts - 1 : job.attempts;
}

export function isInProgress(job: ReportJob): boolean {
  return job.state === 'queued' || job.state === 'running';
}

/** Reports whether the links and files of a finished request have expired, to the second. */
export function isExpired(job: ReportJob, nowMs: number): boolean {
  return job.expiresSeconds !== undefined && nowMs >= job.expiresSeconds * 1000;
}

/** Returns the name of the archive of all files, which is created while it is downloaded. */
export function archiveName(job: ReportJob): string {
  return `${fileStem(job)}.zip`;
}

/** Returns the prefix of each file name of a request: `<id>.<event>.<32 hex>`. */
export function fileStem(job: Pick<ReportJob, 'id' | 'event' | 'nonce'>): string {
  return `${job.id}.${job.event}.${job.nonce}`;
}
