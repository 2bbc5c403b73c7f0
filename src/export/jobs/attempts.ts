import type { AccessReader } from '../../access/access.ts';
import { endedAttempts, fileStem, type ReportEnd, type ReportJob } from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import { pause } from '../../runtime/async/retry.ts';
import type { Clock } from '../../runtime/clock.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import { judgeOutcome, maxAttempts } from './attempt-outcome.ts';
import { parseExportSpec, selectApps, type ExportApp, type ExportSpec } from './export-spec.ts';
import { findPlanLists, type ListFault, type ListFolders, type PlanLists } from './plan-lists.ts';
import { createRunningAttempts } from './running-attempts.ts';
import { standingOf } from './standing.ts';
import { tableDirOf } from './table-of.ts';
import type { WorkerLimits, WorkerPlan } from './worker-messages.ts';
import type { AttemptOutcome, RunAttempt } from './worker-process.ts';

/** Brings one export request to its one end, by as many attempts as it takes and is allowed. */
export interface Attempts {
  /**
   * Tries until the request has ended; returns early when it is aborted, or when the access data do not say whether its
   * user was removed: neither counts an attempt. Never throws.
   */
  run(id: number, signal: AbortSignal): Promise<void>;
  /** Ends a request, once: of two ends the first stays. */
  finish(id: number, end: ReportEnd, folder?: string): Promise<void>;
  /** How far the running attempts have come, percent; 0 when none has reported. */
  percent(id: number): number;
  /**
   * Breaks off the attempts that work for a removed user, or read the rows of a removed app; they begin anew without.
   */
  dropTakenBack(): void;
}

export interface AttemptsDependencies {
  readonly store: ReportStore;
  readonly access: AccessReader;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly runAttempt: RunAttempt;
  /** Called with each request that ends, and how long it took from its creation, seconds. */
  readonly onEnd: (job: ReportJob, seconds: number) => void;
  /** Called with what is damaged in the lake when a request fails for it. */
  readonly onDamage: (error: string) => void;
}

export interface AttemptsOptions extends ListFolders {
  readonly timeoutMs: number;
  readonly lakeDir: string;
  readonly limits: WorkerLimits;
  /** How long replaced files of the lake stay for their readers, milliseconds. */
  readonly retentionMs: number;
}

/**
 * Kills from outside do not count as failures. This bound ends a request that the kernel kills every time for its
 * memory.
 */
const maxInterruptions = 32;
const firstRetryMs = 200;
const longestRetryMs = 5000;

/** The end of a request that has had its attempts, and may be left without one by a process that was killed then. */
function findLateEnd(job: ReportJob): ReportEnd | undefined {
  const interruptions = job.interruptions ?? 0;
  if (interruptions >= maxInterruptions)
    return { state: 'failed', error: `the export was interrupted ${interruptions} times` };
  if (endedAttempts(job) >= maxAttempts) return { state: 'failed', error: `the export failed ${maxAttempts} times` };
  return undefined;
}

/** Ends a request in the store, and reports it where this end is the one that stays. */
async function endRequest(
  { store, clock, logger, onEnd }: AttemptsDependencies,
  id: number,
  end: ReportEnd,
  folder: string | undefined,
): Promise<void> {
  const job = await store.end(id, end, folder);
  if (job.state !== end.state) return;
  const { idUser, event, state, attempts, error } = job;
  const seconds = (clock.nowMs() - job.createdMs) / 1000;
  const files = job.files?.length ?? 0;
  logger.info({ idReport: id, idUser, event, state, attempts, seconds, files, error }, 'export request ended');
  onEnd(job, seconds);
}

const idsOf = (apps: readonly ExportApp[]): number[] => apps.map(({ idApp }) => idApp);

/** What a request asks for, with the lists that it is made with now; or why it cannot be made, however often. */
async function readRequest(
  { request: kept, idAccount }: ReportJob,
  folders: ListFolders,
): Promise<{ readonly request: ExportSpec; readonly lists: PlanLists } | ListFault> {
  const request = parseExportSpec(kept);
  if (request === undefined)
    return { error: 'its job.json holds no export that this version understands: order it again', isDamage: false };
  const lists = await findPlanLists(request, idAccount, folders);
  return 'error' in lists ? lists : { request, lists };
}

/** Creates what runs attempts; nothing runs until `run` is called. */
export function createAttempts(dependencies: AttemptsDependencies, options: AttemptsOptions): Attempts {
  const { store, access, clock, logger, runAttempt, onDamage } = dependencies;
  const { timeoutMs, lakeDir, limits, retentionMs } = options;
  const running = createRunningAttempts(access);

  async function finish(id: number, end: ReportEnd, folder?: string): Promise<void> {
    await endRequest(dependencies, id, end, folder);
    running.forget(id);
  }

  /** Ends a request whose attempt cannot begin; it is not tried again. */
  async function refuse(id: number, folder: string, error: string): Promise<false> {
    await store.releaseAttempt(id, folder, 'failure');
    await finish(id, { state: 'failed', error });
    return false;
  }

  /** Does what the outcome of an attempt means for its request; says whether to try again. */
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
    const read = await readRequest(job, options);
    if ('error' in read) {
      if (read.isDamage) onDamage(read.error);
      return refuse(id, folder, read.error);
    }
    const { request, lists } = read;
    const apps = selectApps(request, access.current().appsOfAccount(job.idAccount));
    const places = { tableDir: tableDirOf(lakeDir, request), folder, stem: fileStem(job) };
    const plan: WorkerPlan = { request, apps, ...lists, ...places, limits, retentionMs, begunMs: clock.nowMs() };
    const current = running.begin(job, idsOf(apps), signal);
    try {
      const { onPercent } = current;
      return await settle(job, folder, await runAttempt(plan, { timeoutMs, onPercent, signal: current.signal }));
    } finally {
      current.end();
    }
  }

  /** Brings a request one step on; says whether to come again. */
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

  async function run(id: number, signal: AbortSignal): Promise<void> {
    for (let retryMs = firstRetryMs; !signal.aborted; retryMs = Math.min(retryMs * 2, longestRetryMs)) {
      try {
        if (!(await step(id, signal))) return;
      } catch (error) {
        // `conflict`: the request was cancelled in the meantime. Anything else is the disk: job.json cannot be written.
        if (isAppError(error, 'conflict')) return;
        logger.error({ idReport: id, error: describeError(error) }, 'export request cannot be run now');
      }
      await pause(retryMs, signal);
    }
  }

  return { run, finish, percent: (id) => running.percent(id), dropTakenBack: () => running.dropTakenBack() };
}
