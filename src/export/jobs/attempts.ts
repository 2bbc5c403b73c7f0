import type { AccessReader } from '../../access/access.ts';
import type { AttemptEnd } from '../../reports/job-attempts.ts';
import {
  endedAttempts,
  fileStem,
  isInProgress,
  sumFiles,
  type ReportEnd,
  type ReportJob,
} from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import { withAnySignal } from '../../runtime/async/in-parallel.ts';
import { pause } from '../../runtime/async/retry.ts';
import type { Clock } from '../../runtime/clock.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import { defined } from '../../runtime/files/checksummed-json.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { Tracing } from '../../runtime/tracing/tracing.ts';
import { startAttemptSpans, type AttemptSpans } from './attempt-spans.ts';
import { parseExportSpec } from './export-spec.ts';
import { planRead, type ListError, type ReadOptions } from './read-plan.ts';
import type { ReadPlan } from './worker-messages.ts';
import type { AttemptOutcome, RunAttempt } from './worker-process.ts';

/** The consequence of an outcome for its request. */
export interface AttemptDecision {
  /** How the attempt counts; absent: its folder becomes the request's files. */
  readonly release?: AttemptEnd;
  /** Absent: it is retried. */
  readonly end?: ReportEnd;
  readonly warning?: { readonly message: string; readonly error: string };
  readonly damage?: string;
}

export interface FinishedAttempt {
  /** Attempts of the request, this one included, interrupted ones excluded. */
  readonly attempts: number;
  readonly ageMs: number;
  readonly timeoutMs: number;
}

const maxAttempts = 8;

function judgeFailure(
  reason: 'user' | 'disk' | 'damage' | 'error',
  error: string,
  { attempts, ageMs, timeoutMs }: FinishedAttempt,
): AttemptDecision {
  const failed: ReportEnd = { state: 'failed', error };
  const warning = { message: 'export attempt failed', error };
  switch (reason) {
    case 'user':
      return { release: 'failure', end: { state: 'user_failed', error } };
    case 'damage':
      // The next attempt would read the same bytes.
      return { release: 'failure', end: failed, damage: error };
    case 'disk': {
      // The request is retried for as long as an attempt may take.
      const isOver = ageMs > timeoutMs || attempts >= maxAttempts;
      return { release: 'nothing', warning, ...(isOver ? { end: failed } : {}) };
    }
    case 'error':
      return { release: 'failure', warning, ...(attempts >= maxAttempts ? { end: failed } : {}) };
    default:
      return reason satisfies never;
  }
}

/** Decides by the outcome of an attempt whether the request has ended, and what the attempt counts as. */
export function settleAttempt(outcome: AttemptOutcome, attempt: FinishedAttempt): AttemptDecision {
  switch (outcome.kind) {
    case 'done':
      return {
        end: { state: 'success', files: outcome.files, basis: outcome.basis, ...defined({ columns: outcome.columns }) },
      };
    case 'aborted':
      // Stopped, or restarted after a change of access.
      return { release: 'nothing' };
    case 'killed':
      return {
        release: 'interruption',
        warning: { message: 'export attempt was interrupted', error: outcome.error },
      };
    case 'timed_out':
      return {
        release: 'failure',
        end: { state: 'failed', error: `the export took longer than ${attempt.timeoutMs} ms` },
      };
    case 'crashed':
      return judgeFailure('error', outcome.error, attempt);
    case 'failed':
      return judgeFailure(outcome.reason, outcome.error, attempt);
    default:
      return outcome satisfies never;
  }
}

export interface AttemptsDependencies {
  readonly store: ReportStore;
  readonly access: AccessReader;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly runAttempt: RunAttempt;
  /** Called with each request that ends, and the time since its creation, s. */
  readonly onEnd: (job: ReportJob, seconds: number) => void;
  /** Called with damage of the lake that failed a request. */
  readonly onDamage: (error: string) => void;
  /** Absent without a collector of traces. */
  readonly tracing?: Tracing | undefined;
}

export interface AttemptsOptions extends ReadOptions {
  readonly timeoutMs: number;
}

/** Ends a request whose worker the kernel kills each time; kills from outside do not count as failures. */
const maxInterruptions = 32;
const firstRetryMs = 200;
const maxRetryMs = 5000;

/** Returns whether the user of a request exists; `unknown` if the access data is damaged. */
export function userStatusOf(access: AccessReader, idUser: string): 'live' | 'removed' | 'unknown' {
  if (access.current().findUser(idUser) !== undefined) return 'live';
  return access.mayMissUsers() ? 'unknown' : 'removed';
}

/** Returns the end of a request that has used up its attempts in a process that was killed before it ended. */
function findLateEnd(job: ReportJob): ReportEnd | undefined {
  const interruptions = job.interruptions ?? 0;
  if (interruptions >= maxInterruptions)
    return { state: 'failed', error: `the export was interrupted ${interruptions} times` };
  if (endedAttempts(job) >= maxAttempts) return { state: 'failed', error: `the export failed ${maxAttempts} times` };
  return undefined;
}

/** Reports whether the user of a running request, or one of the apps that it reads, was removed. */
function isTakenBack(access: AccessReader, { idUser, idAccount }: ReportJob, { apps }: ReadPlan): boolean {
  const view = access.current();
  const lacksApp = !access.mayMissApps() && apps.some(({ idApp }) => view.findApp(idApp)?.idAccount !== idAccount);
  return lacksApp || userStatusOf(access, idUser) === 'removed';
}

async function planRequest(
  { request: storedRequest, idAccount }: ReportJob,
  dependencies: AttemptsDependencies,
  options: AttemptsOptions,
): Promise<ReadPlan | ListError> {
  const request = parseExportSpec(storedRequest);
  if (request === undefined)
    return { error: 'its job.json has no export that this version can read: create it again', isDamage: false };
  return await planRead(request, idAccount, dependencies, options);
}

function reportEnd(job: ReportJob, { clock, logger, onEnd }: AttemptsDependencies): void {
  const { id, idUser, event, state, attempts, error, files = [] } = job;
  const seconds = (clock.nowMs() - job.createdMs) / 1000;
  const about = { idReport: id, idUser, event, state, attempts, seconds, files: files.length, error };
  logger.info(about, 'export request ended');
  onEnd(job, seconds);
}

function judgeAttempt(
  { id, attempts, createdMs }: ReportJob,
  outcome: AttemptOutcome,
  { clock, logger, onDamage }: AttemptsDependencies,
  timeoutMs: number,
): AttemptDecision {
  const attemptDecision = settleAttempt(outcome, { attempts, ageMs: clock.nowMs() - createdMs, timeoutMs });
  const { warning, damage } = attemptDecision;
  if (warning !== undefined) logger.warn({ idReport: id, attempt: attempts, error: warning.error }, warning.message);
  if (damage !== undefined) {
    logger.error({ idReport: id, error: damage }, 'lake damaged');
    onDamage(damage);
  }
  return attemptDecision;
}

/** Reports whether a request is not in the attempt that runs here, if one does. */
function isOther(job: ReportJob | undefined, own: ReportJob | undefined): boolean {
  return own !== undefined && (job?.state !== 'running' || job.attemptNonce !== own.attemptNonce);
}

/** Ends the spans of an attempt; it has no outcome if the request was canceled or the disk failed. */
function endSpans(spans: AttemptSpans, outcome: AttemptOutcome | undefined): void {
  if (outcome?.kind !== 'done') return spans.end({}, outcome?.kind ?? 'not stored');
  const { files, bytes, rows } = sumFiles(outcome.files);
  spans.end({
    'tributary.export.rows': rows,
    'tributary.export.bytes': bytes,
    'tributary.export.files': files,
    'tributary.lake.version': outcome.basis.version,
  });
}

/** Repeats a step, which gets whether the last one failed, until it returns false or the signal aborts. */
async function repeat(
  step: (hasFailed: boolean) => Promise<boolean>,
  signal: AbortSignal,
  onError: (error: unknown) => void,
): Promise<void> {
  let hasFailed = false;
  for (let retryMs = firstRetryMs; !signal.aborted; retryMs = Math.min(retryMs * 2, maxRetryMs)) {
    try {
      if (!(await step(hasFailed))) return;
      hasFailed = false;
    } catch (error) {
      // `conflict`: the request was canceled meanwhile. Other errors are those of the disk.
      if (isAppError(error, 'conflict')) return;
      hasFailed = true;
      onError(error);
    }
    await pause(retryMs, signal);
  }
}

/** Creates the progress of the requests that run here, as their workers report it. */
function createProgress({ noteProgress }: Pick<ReportStore, 'noteProgress'>) {
  const percents = new Map<number, number>();
  const percent = (id: number): number => percents.get(id) ?? 0;
  return {
    percent,
    raise(id: number, to: number): void {
      percents.set(id, Math.max(to, percent(id)));
      noteProgress(id, percent(id));
    },
    forget: (id: number): void => void percents.delete(id),
  };
}

/** Creates what runs the attempts of export requests until each request has ended. */
export function createAttempts(dependencies: AttemptsDependencies, options: AttemptsOptions) {
  const { store, access, logger, runAttempt, onDamage, tracing } = dependencies;
  const { timeoutMs } = options;
  const progress = createProgress(store);
  const running = new Map<
    number,
    { readonly job: ReportJob; readonly plan: ReadPlan; readonly abort: AbortController }
  >();

  /** Ends a request; of two ends the first stays. */
  async function finish(id: number, end: ReportEnd, folder?: string, as?: AttemptEnd): Promise<void> {
    const { job, isOwn } = await store.end(id, end, folder, as);
    progress.forget(id);
    if (isOwn) reportEnd(job, dependencies);
  }

  async function attempt(id: number, signal: AbortSignal): Promise<boolean> {
    const { job, folder } = await store.beginAttempt(id);
    const read = await planRequest(job, dependencies, options);
    if ('error' in read) {
      if (read.isDamage) onDamage(read.error);
      await finish(id, { state: 'failed', error: read.error }, folder, 'failure');
      return false;
    }
    const plan = { ...read, folder, stem: fileStem(job) };
    const abort = new AbortController();
    running.set(id, { job, plan, abort });
    const onPercent = (percent: number): void => progress.raise(id, percent);
    const spans = startAttemptSpans(tracing, job);
    let outcome: AttemptOutcome | undefined;
    try {
      outcome = await withAnySignal([signal, abort.signal], (until) =>
        runAttempt(plan, { timeoutMs, onPercent, onPhase: spans?.begin, signal: until }),
      );
      spans?.begin('store');
      const { release, end } = judgeAttempt(job, outcome, dependencies, timeoutMs);
      if (end !== undefined) await finish(id, end, folder, release);
      else if (release !== undefined) await store.releaseAttempt(id, folder, release);
      return end === undefined;
    } finally {
      running.delete(id);
      if (spans !== undefined) endSpans(spans, outcome);
    }
  }

  /** Advances a request by one step; returns whether another one follows. `hasFailed`: the last one failed. */
  async function step(id: number, signal: AbortSignal, hasFailed: boolean): Promise<boolean> {
    const job = await store.find(id);
    if (job === undefined) return attempt(id, signal);
    if (!isInProgress(job)) {
      // The step that failed wrote its end.
      if (hasFailed) reportEnd(job, dependencies);
      return false;
    }
    const userStatus = userStatusOf(access, job.idUser);
    if (userStatus === 'unknown') return false;
    const end: ReportEnd | undefined = userStatus === 'removed' ? { state: 'canceled' } : findLateEnd(job);
    if (end === undefined) return attempt(id, signal);
    await finish(id, end);
    return false;
  }

  return {
    /**
     * Retries until the request has ended, the signal aborts, or it is unknown whether its user was removed; the latter
     * two count no attempt. Never throws.
     */
    run: (id: number, signal: AbortSignal): Promise<void> =>
      repeat(
        (hasFailed) => step(id, signal, hasFailed),
        signal,
        (error) => logger.error({ idReport: id, error: describeError(error) }, 'cannot run export request, will retry'),
      ),
    finish,
    percent: progress.percent,
    /** Reports whether the attempt of a request that runs here is not the current one any more. */
    isOvertaken: (id: number, job: ReportJob | undefined): boolean => isOther(job, running.get(id)?.job),
    /** Aborts attempts for a removed user or on the rows of a removed app; they restart without. */
    dropTakenBack(): void {
      for (const { job, plan, abort } of running.values()) if (isTakenBack(access, job, plan)) abort.abort();
    },
  };
}
