import type { AccessReader } from '../../access/access.ts';
import { endedAttempts, fileStem, type ReportEnd, type ReportJob } from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import { pause } from '../../runtime/async/retry.ts';
import type { Clock } from '../../runtime/clock.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import { judgeOutcome, maxAttempts } from './attempt-outcome.ts';
import { parseExportSpec } from './export-spec.ts';
import { planRead, type ListFault, type ReadOptions } from './read-plan.ts';
import type { ReadPlan } from './worker-messages.ts';
import type { AttemptOutcome, RunAttempt } from './worker-process.ts';

/** Runs the attempts of export requests until each request has ended. */
export interface Attempts {
  /**
   * Tries until the request has ended, the signal aborts, or it is unknown whether its user was removed; the latter
   * two count no attempt. Never throws.
   */
  run(id: number, signal: AbortSignal): Promise<void>;
  /** Ends a request; of two ends the first stays. */
  finish(id: number, end: ReportEnd, folder?: string): Promise<void>;
  /** Progress of the running attempts of a request, percent. */
  percent(id: number): number;
  /** Aborts attempts for a removed user or on the rows of a removed app; they restart without. */
  dropTakenBack(): void;
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
}

export interface AttemptsOptions extends ReadOptions {
  readonly timeoutMs: number;
}

/** Ends a request whose worker the kernel kills each time; kills from outside do not count as failures. */
const maxInterruptions = 32;
const firstRetryMs = 200;
const longestRetryMs = 5000;

/** Returns whether the user of a request exists; `unknown` if the access data is damaged. */
export function standingOf(access: AccessReader, idUser: string): 'live' | 'removed' | 'unknown' {
  if (access.current().findUser(idUser) !== undefined) return 'live';
  return access.mayLackUsers() ? 'unknown' : 'removed';
}

/** Returns the end of a request that has used up its attempts in a process that was killed before it ended. */
function findLateEnd(job: ReportJob): ReportEnd | undefined {
  const interruptions = job.interruptions ?? 0;
  if (interruptions >= maxInterruptions)
    return { state: 'failed', error: `the export was interrupted ${interruptions} times` };
  if (endedAttempts(job) >= maxAttempts) return { state: 'failed', error: `the export failed ${maxAttempts} times` };
  return undefined;
}

/** Creates what runs attempts. */
export function createAttempts(dependencies: AttemptsDependencies, options: AttemptsOptions): Attempts {
  const { store, access, clock, logger, runAttempt, onEnd, onDamage } = dependencies;
  const { timeoutMs } = options;
  const percents = new Map<number, number>();
  const running = new Map<
    number,
    { readonly job: ReportJob; readonly plan: ReadPlan; readonly abort: AbortController }
  >();

  async function finish(id: number, end: ReportEnd, folder?: string): Promise<void> {
    const job = await store.end(id, end, folder);
    percents.delete(id);
    if (job.state !== end.state) return;
    const { idUser, event, state, attempts, error, files = [] } = job;
    const seconds = (clock.nowMs() - job.createdMs) / 1000;
    const about = { idReport: id, idUser, event, state, attempts, seconds, files: files.length, error };
    logger.info(about, 'export request ended');
    onEnd(job, seconds);
  }

  /** Plans a request as it can be made now, or returns why it cannot. */
  async function planRequest({ request: kept, idAccount }: ReportJob): Promise<ReadPlan | ListFault> {
    const request = parseExportSpec(kept);
    if (request === undefined)
      return { error: 'its job.json holds no export that this version understands: order it again', isDamage: false };
    return await planRead(request, idAccount, { access, clock }, options);
  }

  /** Does what the outcome of an attempt requires; returns whether to try again. */
  async function settle(job: ReportJob, folder: string, outcome: AttemptOutcome): Promise<boolean> {
    const { id, attempts, createdMs } = job;
    const ageMs = clock.nowMs() - createdMs;
    const { release, end, warning, damage } = judgeOutcome(outcome, { attempts, ageMs, timeoutMs });
    if (release !== undefined) await store.releaseAttempt(id, folder, release);
    if (warning !== undefined) logger.warn({ idReport: id, attempt: attempts, error: warning.error }, warning.message);
    if (damage !== undefined) {
      logger.error({ idReport: id, error: damage }, 'the lake is damaged');
      onDamage(damage);
    }
    if (end !== undefined) await finish(id, end, release === undefined ? folder : undefined);
    return end === undefined;
  }

  async function attempt(id: number, signal: AbortSignal): Promise<boolean> {
    const { job, folder } = await store.beginAttempt(id);
    const read = await planRequest(job);
    if ('error' in read) {
      if (read.isDamage) onDamage(read.error);
      await store.releaseAttempt(id, folder, 'failure');
      await finish(id, { state: 'failed', error: read.error });
      return false;
    }
    const plan = { ...read, folder, stem: fileStem(job) };
    const abort = new AbortController();
    running.set(id, { job, plan, abort });
    const onPercent = (percent: number): void => void percents.set(id, Math.max(percent, percents.get(id) ?? 0));
    try {
      const until = AbortSignal.any([signal, abort.signal]);
      return await settle(job, folder, await runAttempt(plan, { timeoutMs, onPercent, signal: until }));
    } finally {
      running.delete(id);
    }
  }

  /** Advances a request by one step; returns whether another one follows. */
  async function step(id: number, signal: AbortSignal): Promise<boolean> {
    const job = await store.find(id);
    if (job === undefined) return attempt(id, signal);
    const standing = standingOf(access, job.idUser);
    if (standing === 'unknown') return false;
    const end: ReportEnd | undefined = standing === 'removed' ? { state: 'canceled' } : findLateEnd(job);
    if (end === undefined) return attempt(id, signal);
    await finish(id, end);
    return false;
  }

  return {
    async run(id, signal) {
      for (let retryMs = firstRetryMs; !signal.aborted; retryMs = Math.min(retryMs * 2, longestRetryMs)) {
        try {
          if (!(await step(id, signal))) return;
        } catch (error) {
          // `conflict`: the request was canceled meanwhile. Other errors are those of the disk.
          if (isAppError(error, 'conflict')) return;
          logger.error({ idReport: id, error: describeError(error) }, 'export request cannot be run now');
        }
        await pause(retryMs, signal);
      }
    },
    finish,
    percent: (id) => percents.get(id) ?? 0,
    dropTakenBack() {
      const view = access.current();
      for (const { job, plan, abort } of running.values()) {
        const { idUser, idAccount } = job;
        const lacksApp =
          !access.mayLackApps() && plan.apps.some(({ idApp }) => view.findApp(idApp)?.idAccount !== idAccount);
        if (lacksApp || standingOf(access, idUser) === 'removed') abort.abort();
      }
    },
  };
}
