import type { AccessReader } from '../../access/access.ts';
import { endedAttempts, fileStem, type ReportEnd, type ReportJob } from '../../reports/reports.ts';
import type { AttemptEnd, ReportStore } from '../../reports/store.ts';
import type { Clock } from '../../runtime/clock.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import { pause } from '../../runtime/async/retry.ts';
import { parseExportSpec, selectApps } from './export-spec.ts';
import { standingOf } from './standing.ts';
import { runInWorker, type AttemptOutcome } from './worker-process.ts';
import type { WorkerLimits, WorkerPlan } from './worker-messages.ts';

/** Brings one export request to its one end, by as many attempts as it takes and is allowed. */
export interface Attempts {
  /**
   * Tries until the request has ended; returns early when it is aborted, or cannot be told whether its user was
   * removed: neither counts an attempt. Never throws.
   */
  run(id: number, signal: AbortSignal): Promise<void>;
  /** Ends a request, once: of two ends the first stays. */
  finish(id: number, end: ReportEnd, folder?: string): Promise<void>;
  /** How far the running attempts have come, percent; 0 when none has told. */
  percent(id: number): number;
  /**
   * Breaks off the attempts that work for a removed user, or read the rows of a removed app; they begin anew without.
   */
  dropTakenBack(): void;
}

/** An attempt whose worker runs. */
interface RunningAttempt {
  readonly idUser: string;
  readonly idAccount: number;
  readonly idApps: readonly number[];
  readonly abort: AbortController;
}

export interface AttemptsDependencies {
  readonly store: ReportStore;
  readonly access: AccessReader;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Told each request that ends, and how long it took from its creation, seconds. */
  readonly onEnd: (job: ReportJob, seconds: number) => void;
  /** Told what is damaged in the lake when a request fails for it. */
  readonly onDamage: (error: string) => void;
}

export interface AttemptsOptions {
  readonly timeoutMs: number;
  /** Folder of the lake's `events` table. */
  readonly tableDir: string;
  readonly limits: WorkerLimits;
}

/** A request whose worker crashes or fails this often will never succeed. */
const maxAttempts = 8;
/**
 * Being killed is no fault of the request's, unless its hunger for memory makes the kernel do it: that has an end too.
 */
const maxInterruptions = 32;
const firstRetryMs = 200;
const longestRetryMs = 5000;

/** Creates what runs attempts; nothing runs until `run` is called. */
export function createAttempts(
  { store, access, clock, logger, onEnd, onDamage }: AttemptsDependencies,
  options: AttemptsOptions,
): Attempts {
  const percents = new Map<number, number>();
  const running = new Map<number, RunningAttempt>();

  async function finish(id: number, end: ReportEnd, folder?: string): Promise<void> {
    const job = await store.end(id, end, folder);
    percents.delete(id);
    // Of two ends at once the first one stays, and is the one to tell of.
    if (job.state !== end.state) return;
    const seconds = (clock.nowMs() - job.createdMs) / 1000;
    logger.info(
      {
        idReport: id,
        idUser: job.idUser,
        event: job.event,
        state: job.state,
        attempts: job.attempts,
        seconds,
        files: job.files?.length ?? 0,
        error: job.error,
      },
      'export request ended',
    );
    onEnd(job, seconds);
  }

  /** Settles what an attempt's outcome means for the request; says whether to try again. */
  async function settle(
    job: ReportJob,
    folder: string,
    outcome: AttemptOutcome,
    signal: AbortSignal,
  ): Promise<boolean> {
    const release = (as: AttemptEnd): Promise<void> => store.releaseAttempt(job.id, folder, as);
    switch (outcome.kind) {
      case 'done':
        await finish(job.id, { state: 'success', files: outcome.files }, folder);
        return false;
      case 'aborted':
        await release('nothing');
        // By a change of access alone: it begins anew.
        return !signal.aborted;
      case 'killed':
        await release('interruption');
        logger.warn(
          { idReport: job.id, attempt: job.attempts, error: outcome.error },
          'export attempt was interrupted',
        );
        return true;
      case 'timed_out':
        await release('failure');
        await finish(job.id, { state: 'failed', error: `the export took longer than ${options.timeoutMs} ms` });
        return false;
      case 'failed':
      case 'crashed': {
        const reason = outcome.kind === 'failed' ? outcome.reason : 'error';
        // A full disk is not the request's fault: it goes on trying, for as long as an attempt may take.
        await release(reason === 'disk' ? 'nothing' : 'failure');
        if (reason === 'user') {
          await finish(job.id, { state: 'user_failed', error: outcome.error });
          return false;
        }
        if (reason === 'damage') {
          // Damage does not pass: the next attempt would read the same bytes.
          logger.error({ idReport: job.id, error: outcome.error }, 'the lake is damaged');
          onDamage(outcome.error);
          await finish(job.id, { state: 'failed', error: outcome.error });
          return false;
        }
        const outOfTime = reason === 'disk' && clock.nowMs() - job.createdMs > options.timeoutMs;
        logger.warn({ idReport: job.id, attempt: job.attempts, error: outcome.error }, 'export attempt failed');
        if (!outOfTime && job.attempts < maxAttempts) return true;
        await finish(job.id, { state: 'failed', error: outcome.error });
        return false;
      }
      default:
        return outcome satisfies never;
    }
  }

  async function attempt(id: number, signal: AbortSignal): Promise<boolean> {
    const { job, folder } = await store.beginAttempt(id);
    const request = parseExportSpec(job.request);
    if (request === undefined) {
      await store.releaseAttempt(id, folder, 'failure');
      await finish(id, {
        state: 'failed',
        error: 'its job.json holds no export that this version understands: order it again',
      });
      return false;
    }
    const apps = selectApps(request, access.current().appsOfAccount(job.idAccount));
    const abort = new AbortController();
    running.set(id, { idUser: job.idUser, idAccount: job.idAccount, idApps: apps.map((app) => app.idApp), abort });
    const plan: WorkerPlan = {
      request,
      apps,
      tableDir: options.tableDir,
      folder,
      stem: fileStem(job),
      limits: options.limits,
    };
    const onPercent = (percent: number): void => void percents.set(id, Math.max(percent, percents.get(id) ?? 0));
    try {
      return await settle(
        job,
        folder,
        await runInWorker(plan, {
          timeoutMs: options.timeoutMs,
          onPercent,
          signal: AbortSignal.any([signal, abort.signal]),
        }),
        signal,
      );
    } finally {
      running.delete(id);
    }
  }

  function dropTakenBack(): void {
    const view = access.current();
    for (const { idUser, idAccount, idApps, abort } of running.values()) {
      const lacksApp = !access.mayLackApps() && idApps.some((idApp) => view.findApp(idApp)?.idAccount !== idAccount);
      if (lacksApp || standingOf(access, idUser) === 'removed') abort.abort();
    }
  }

  async function run(id: number, signal: AbortSignal): Promise<void> {
    for (let retryMs = firstRetryMs; !signal.aborted; retryMs = Math.min(retryMs * 2, longestRetryMs)) {
      try {
        const job = await store.find(id);
        const interruptions = job?.interruptions ?? 0;
        const standing = job === undefined ? 'live' : standingOf(access, job.idUser);
        if (standing === 'unknown') return;
        if (standing === 'removed') return await finish(id, { state: 'canceled' });
        if (interruptions >= maxInterruptions)
          return await finish(id, { state: 'failed', error: `the export was interrupted ${interruptions} times` });
        // The process may have been killed between the last attempt's failure and the request's end.
        if (job !== undefined && endedAttempts(job) >= maxAttempts)
          return await finish(id, { state: 'failed', error: `the export failed ${maxAttempts} times` });
        if (!(await attempt(id, signal))) return;
      } catch (error) {
        // `conflict`: the request was cancelled in the meantime. Anything else is the disk: job.json cannot be written.
        if (isAppError(error, 'conflict')) return;
        logger.error({ idReport: id, error: describeError(error) }, 'export request cannot be run now');
      }
      await pause(retryMs, signal);
    }
  }

  return { run, finish, percent: (id) => percents.get(id) ?? 0, dropTakenBack };
}
