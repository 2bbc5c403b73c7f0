import type { Config } from '../config.ts';
import { startTogether } from '../runtime/async/in-parallel.ts';
import { AppError } from '../runtime/errors.ts';
import type { FolderPins, FolderWatch } from '../runtime/files/folder-watch.ts';
import { forkRole, type RoleChild } from '../runtime/processes/child.ts';
import { startSupervisor, type Supervisor } from '../runtime/processes/supervisor.ts';
import { createProcessMetrics } from './process-metrics.ts';
import type { Role, ServiceOptions, ServiceStart } from './service-options.ts';

const readyMs = 60_000;
/** Long enough for the slowest flush or answer; then the process is killed, which loses nothing. */
const graceMs = 30_000;

/** In each arena glibc keeps memory that DuckDB has freed: with eight for each core it is 0.4 GB more at the defaults. */
const fewArenas = { MALLOC_ARENA_MAX: '2' };

/** What a role's process reported last, and when, by the monotonic clock. */
export interface Report {
  readonly facts: Readonly<Record<string, unknown>>;
  readonly atMs: number;
}

/** What the processes of the roles are started with. */
interface RoleDependencies extends ServiceStart {
  /** Beside the service's own: what each role is given. */
  readonly environment: NodeJS.ProcessEnv;
  readonly pins: FolderPins;
  readonly watch: FolderWatch;
}

/** The processes of the roles at work. */
export interface RoleProcesses {
  readonly supervisors: readonly Supervisor<RoleChild>[];
  /** What each reported last, by its name. */
  readonly reports: ReadonlyMap<string, Report>;
  /** Asks the processes for their metrics. */
  readonly collectMetrics: () => Promise<readonly unknown[][]>;
}

/** The names of a role's processes. */
function namesOf(role: Role, config: Config): readonly string[] {
  return role === 'ingest' ? Array.from({ length: config.ingestWorkers }, (_, index) => `ingest-${index + 1}`) : [role];
}

/** The processes of the roles that run, in the order in which they are listed and stopped, backwards. */
function listProcesses({ config, roles }: ServiceOptions): readonly { readonly name: string; readonly role: Role }[] {
  return (['export', 'compact', 'ingest'] as const)
    .filter((role) => roles.includes(role))
    .flatMap((role) => namesOf(role, config).map((name) => ({ name, role })));
}

/**
 * Starts the processes of the roles side by side: import does not wait for the recovery of the others. They are
 * stopped one after the other: import, the last flush, export. Errors: `stopping`, and
 * what a start throws.
 */
export async function startRoles({
  options,
  environment,
  pins,
  watch,
  supervisors,
  closers,
  signal,
}: RoleDependencies): Promise<RoleProcesses> {
  const { logger, entry } = options;
  const reports = new Map<string, Report>();
  const metrics = createProcessMetrics();
  const started = new Map<string, Supervisor<RoleChild>>();

  const startOne = async (name: string, role: Role, unwanted: AbortSignal): Promise<RoleChild> => {
    const onReport = (report: Omit<Report, 'atMs'>): void =>
      void reports.set(name, { ...report, atMs: performance.now() });
    pins.pin();
    const loss = watch.findLoss();
    // Import and export answer clients all the same, without reading or writing the folders.
    if (role === 'compact') watch.assertWhole();
    const own = { TRIBUTARY_FOLDERS: JSON.stringify(pins.ids()), TRIBUTARY_CLOSED: loss?.what };
    const child = await forkRole({
      entry,
      role,
      environment: { ...(role === 'compact' ? fewArenas : {}), ...environment, ...own },
      shared: role === 'ingest',
      readyMs,
      signal: unwanted,
      onReport,
      onMetrics: (measured) => metrics.take(name, measured),
    });
    // It was no child yet when that was reported: one that is closed would stay so, and one that is not would go on.
    if (watch.findLoss()?.what !== loss?.what) {
      child.kill();
      await child.exited;
      throw new AppError(
        'folder_lost',
        'the folders of the service were lost, or came back, while the process started',
      );
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
  for (const { name } of wanted) closers.add(name, () => started.get(name)?.stop(graceMs));
  const starts = wanted.map(
    ({ name, role }) =>
      (unwanted: AbortSignal) =>
        supervise(name, role, unwanted),
  );
  await startTogether(starts, signal);
  // The order in which they are listed, whichever was ready first.
  const order = wanted.map(({ name }) => name);
  supervisors.sort((one, other) => order.indexOf(one.state().name) - order.indexOf(other.state().name));
  if (signal.aborted) throw new AppError('stopping', 'the service was stopped while it started');
  return {
    supervisors: [...started.values()],
    reports,
    collectMetrics: () => metrics.collect(started),
  };
}
