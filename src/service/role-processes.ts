import type { Config } from '../config.ts';
import { startTogether } from '../runtime/async/in-parallel.ts';
import { AppError } from '../runtime/errors.ts';
import type { FolderHandles, FolderWatch } from '../runtime/files/folder-watch.ts';
import { forkRole, type RoleChild } from '../runtime/processes/child.ts';
import { startSupervisor, type Supervisor } from '../runtime/processes/supervisor.ts';
import { createProcessMetrics } from './process-metrics.ts';
import type { Role, ServiceOptions, ServiceStart } from './service-options.ts';

const readyMs = 60_000;
/** Grace period of the slowest flush or response, after kept connections have ended, ms. The kill afterwards loses nothing. */
const graceMs = 30_000;

/** Each glibc arena keeps memory that DuckDB has freed: 0.4 GB with eight arenas per core at the defaults. */
const fewArenas = { MALLOC_ARENA_MAX: '2' };

/** The last report of a role's process, and its time by the monotonic clock. */
interface Report {
  readonly facts: Readonly<Record<string, unknown>>;
  readonly atMs: number;
}

interface RoleDependencies extends ServiceStart {
  /** Environment of each role. */
  readonly environment: NodeJS.ProcessEnv;
  readonly pins: FolderHandles;
  readonly watch: FolderWatch;
}

export type RoleProcesses = Awaited<ReturnType<typeof startRoles>>;

function namesOf(role: Role, config: Config): readonly string[] {
  return role === 'ingest' ? Array.from({ length: config.ingestWorkers }, (_, index) => `ingest-${index + 1}`) : [role];
}

/** Lists the processes to start, in their displayed order; they stop in the reverse order. */
function listProcesses({ config, roles }: ServiceOptions): readonly { readonly name: string; readonly role: Role }[] {
  return (['export', 'compact', 'ingest'] as const)
    .filter((role) => roles.includes(role))
    .flatMap((role) => namesOf(role, config).map((name) => ({ name, role })));
}

/** Starts the roles in parallel; they stop in the order import, compact, export. Errors: those of a start. */
export async function startRoles({
  options,
  environment,
  pins,
  watch,
  supervisors,
  closers,
  signal,
}: RoleDependencies) {
  const { logger, entry } = options;
  const reports = new Map<string, Report>();
  const metrics = createProcessMetrics();
  const started = new Map<string, Supervisor<RoleChild>>();

  const startOne = async (name: string, role: Role, unwanted: AbortSignal): Promise<RoleChild> => {
    const onReport = (report: Omit<Report, 'atMs'>): void =>
      void reports.set(name, { ...report, atMs: performance.now() });
    pins.pin();
    const loss = watch.findLoss();
    // Import and export serve clients without their folders.
    if (role === 'compact') watch.assertWhole();
    const own = { TRIBUTARY_FOLDERS: JSON.stringify(pins.ids()), TRIBUTARY_CLOSED: loss?.message };
    const child = await forkRole({
      entry,
      name,
      role,
      environment: { ...(role === 'compact' ? fewArenas : {}), ...environment, ...own },
      shared: role === 'ingest',
      readyMs,
      signal: unwanted,
      onReport,
      onMetrics: (measured) => metrics.take(name, measured),
    });
    // A change during the fork reached no child.
    if (watch.findLoss()?.message !== loss?.message) {
      child.kill();
      await child.exited;
      throw new AppError('folder_lost', 'the folders of the service were lost or restored while the process started');
    }
    onReport({ facts: {} });
    metrics.forget(name);
    return child;
  };
  const supervise = async (name: string, role: Role, starting: AbortSignal): Promise<void> => {
    const supervisor = await startSupervisor(
      name,
      (unwanted) => startOne(name, role, unwanted),
      logger,
      starting,
      () => watch.findLoss() !== undefined,
    );
    started.set(name, supervisor);
    supervisors.push(supervisor);
  };

  const wanted = listProcesses(options);
  for (const { name } of wanted) closers.add(name, () => started.get(name)?.stop(options.config.drainMs + graceMs));
  const starts = wanted.map(
    ({ name, role }) =>
      (unwanted: AbortSignal) =>
        supervise(name, role, unwanted),
  );
  await startTogether(starts, signal);
  const order = wanted.map(({ name }) => name);
  supervisors.sort((one, other) => order.indexOf(one.state().name) - order.indexOf(other.state().name));
  if (signal.aborted) throw new AppError('stopping', 'the service was stopped while it started');
  return {
    supervisors: [...started.values()],
    reports,
    collectMetrics: () => metrics.collect(started),
  };
}
