import type { AccessReader } from '../../access/access.ts';
import { withAnySignal } from '../../runtime/async/in-parallel.ts';
import { createKeyedSemaphore } from '../../runtime/async/semaphore.ts';
import type { Clock } from '../../runtime/clock.ts';
import { selectApps, type ExportApp, type ExportSpec } from './export-spec.ts';
import { findTableVersions, planRead, type ReadOptions } from './read-plan.ts';
import { createResultCache } from './result-cache.ts';
import type { DataQuery, DryRunKind } from './worker-messages.ts';
import type { DataEnd, DryRunEnd, RunDryRun, RunDataQuery, WorkerExit } from './worker-process.ts';

/** An estimate or a preview of a request. */
export interface DryRunRequest {
  readonly look: DryRunKind;
  readonly request: ExportSpec;
  readonly idAccount: number;
}

/** A query about the data of apps of an account. */
export interface DataRequest {
  readonly question: DataQuery;
  readonly apps: readonly ExportApp[];
  readonly idAccount: number;
}

/** Not started: too many of the account are queued. */
type Busy = { readonly kind: 'busy' };
export type DryRunResult = DryRunEnd | Busy;
export type DataResult = DataEnd | Busy;

export type InteractiveJobs = ReturnType<typeof createInteractiveJobs>;

interface InteractiveJobsDependencies {
  readonly access: AccessReader;
  readonly clock: Clock;
  readonly runDryRun: RunDryRun;
  readonly runDataQuery: RunDataQuery;
  readonly onDamage: (error: string) => void;
}

/** Maximum numbers of concurrent workers, in total and per account. */
const [atOnce, atOnceOfAccount] = [2, 1];
/** Maximum numbers of running and queued workers, per account and in total. */
const [maxJobsPerAccount, maxJobs] = [8, 64];
export const interactiveTimeoutMs = 20_000;

async function runNow<End extends DryRunEnd | DataEnd>(
  work: () => Promise<End>,
  onDamage: (error: string) => void,
): Promise<End | WorkerExit> {
  try {
    const result = await work();
    if (result.kind === 'failed' && result.reason === 'damage') onDamage(result.error);
    return result;
  } catch (error) {
    return { kind: 'crashed', error: String(error) };
  }
}

/** Creates the queue of jobs that a user waits for: estimates, previews and data queries. Each runs in a worker. */
export function createInteractiveJobs(
  { access, clock, runDryRun, runDataQuery, onDamage }: InteractiveJobsDependencies,
  options: ReadOptions,
) {
  const { lakeDir, limits } = options;
  const slots = createKeyedSemaphore(atOnceOfAccount, atOnce);
  const stopping = new AbortController();
  const underWay = new Set<Promise<unknown>>();
  const activities = createResultCache<DataResult>();
  const days = createResultCache<DryRunResult>();

  /** Runs work when a worker is free. A signal that aborts earlier removes it from the queue. */
  async function runInTurn<End extends DryRunEnd | DataEnd>(
    idAccount: number,
    signal: AbortSignal,
    work: (until: AbortSignal) => Promise<End>,
  ): Promise<End | WorkerExit | Busy> {
    if (slots.count(idAccount) >= maxJobsPerAccount || slots.count() >= maxJobs) return { kind: 'busy' };
    const running = withAnySignal([signal, stopping.signal], (until) =>
      slots
        .run<End | WorkerExit>(idAccount, () => runNow(() => work(until), onDamage), until)
        // `runNow` never throws: the signal has aborted.
        .catch((): WorkerExit => ({ kind: 'aborted' })),
    );
    underWay.add(running);
    return await running.finally(() => underWay.delete(running));
  }

  return {
    /** Runs a dry run; settles when its worker has exited. Never throws. Rows by date are cached. */
    async run({ look, request, idAccount }: DryRunRequest, signal: AbortSignal): Promise<DryRunResult> {
      const query = () =>
        runInTurn<DryRunEnd>(idAccount, signal, async (until) => {
          const read = await planRead(request, idAccount, { access, clock }, options);
          if ('error' in read) return { kind: 'failed', reason: read.isDamage ? 'damage' : 'user', error: read.error };
          return await runDryRun({ ...read, look }, { timeoutMs: interactiveTimeoutMs, signal: until });
        });
      // A segment can be replaced without a new version.
      if (look !== 'daily' || request.idSegment !== undefined) return await query();
      const apps = selectApps(request, access.current().appsOfAccount(idAccount)).map(({ idApp }) => idApp);
      const versions = await findTableVersions(lakeDir);
      return await days.find(JSON.stringify([apps, request]), versions, ({ kind }) => kind === 'daily', query);
    },
    /** Runs a query about data, as `run` does. Counts of all events are cached. */
    async ask({ question, apps, idAccount }: DataRequest, signal: AbortSignal): Promise<DataResult> {
      const query = () =>
        runInTurn<DataEnd>(idAccount, signal, (until) =>
          runDataQuery({ question, apps, lakeDir, limits }, { timeoutMs: interactiveTimeoutMs, signal: until }),
        );
      if (question.ask !== 'activity') return await query();
      const key = apps.map(({ idApp }) => idApp).join();
      const versions = await findTableVersions(lakeDir);
      return await activities.find(key, versions, ({ kind }) => kind === 'activity', query);
    },
    async stop(): Promise<void> {
      stopping.abort();
      await Promise.all(underWay);
    },
  };
}
