import type { Config } from '../config.ts';
import { startTogether } from '../runtime/async/start-together.ts';
import { AppError } from '../runtime/errors.ts';
import type { FolderPins } from '../runtime/files/folder-pins.ts';
import type { FolderWatch } from '../runtime/files/folder-watch.ts';
import type { Closers } from '../runtime/lifecycle.ts';
import { forkRole, type RoleChild, type RunningChild } from '../runtime/processes/child.ts';
import { startKeeper, type Keeper } from '../runtime/processes/supervisor.ts';
import type { Role, ServiceOptions } from './service-options.ts';

const readyMs = 60_000;
/** Long enough for the slowest flush or answer; then the process is killed, which loses nothing. */
const graceMs = 30_000;

/** What a role's process last told, and when, by the monotonic clock. */
export interface Report {
  readonly metrics: unknown[];
  readonly facts: Readonly<Record<string, unknown>>;
  readonly atMs: number;
}

/** What the processes of the roles are started with. */
export interface RoleDependencies {
  readonly options: ServiceOptions;
  /** Beside the service's own: what each role is given. */
  readonly environment: NodeJS.ProcessEnv;
  readonly pins: FolderPins;
  readonly watch: FolderWatch;
  /** Every process of the service, those of the roles included once they run. */
  readonly keepers: Keeper<RunningChild>[];
  readonly closers: Closers;
  readonly signal: AbortSignal;
}

/** The processes of the roles at work. */
export interface RoleProcesses {
  readonly keepers: readonly Keeper<RoleChild>[];
  /** What each told last, by its name. */
  readonly reports: ReadonlyMap<string, Report>;
}

/** The names of a role's processes. */
function namesOf(role: Role, config: Config): readonly string[] {
  return role === 'ingest' ? Array.from({ length: config.ingestWorkers }, (_, index) => `ingest-${index + 1}`) : [role];
}

/**
 * Starts the processes of the roles side by side: what the others have to tidy does not keep import waiting. They are
 * stopped one after the other: first no new events, then the last flush, then nobody reads. Errors: `stopping`, and
 * what a start throws.
 */
export async function startRoles({
  options,
  environment,
  pins,
  watch,
  keepers,
  closers,
  signal,
}: RoleDependencies): Promise<RoleProcesses> {
  const { config, logger, entry } = options;
  const reports = new Map<string, Report>();
  const roleKeepers = new Map<string, Keeper<RoleChild>>();

  const startOne = async (name: string, role: Role, unwanted: AbortSignal): Promise<RoleChild> => {
    const onReport = (report: Omit<Report, 'atMs'>): void =>
      void reports.set(name, { ...report, atMs: performance.now() });
    pins.pin();
    const loss = watch.findLoss();
    // Clients and operators are answered all the same; nothing reads or writes the folders.
    if (role === 'compact') watch.assertWhole();
    const own = { TRIBUTARY_FOLDERS: JSON.stringify(pins.ids()), TRIBUTARY_CLOSED: loss?.what };
    const child = await forkRole({
      entry,
      role,
      environment: { ...environment, ...own },
      shared: role === 'ingest',
      readyMs,
      signal: unwanted,
      onReport,
    });
    // It was no child yet when that was told: one that is closed would stay so, and one that is not would go on.
    if (watch.findLoss()?.what !== loss?.what) {
      child.kill();
      await child.exited;
      throw new AppError(
        'folder_lost',
        'the folders of the service were lost, or came back, while the process started',
      );
    }
    onReport({ metrics: [], facts: {} });
    return child;
  };
  const keep = async (name: string, role: Role, starting: AbortSignal): Promise<void> => {
    const keeper = await startKeeper(name, (unwanted) => startOne(name, role, unwanted), logger, starting);
    roleKeepers.set(name, keeper);
    keepers.push(keeper);
  };

  const wanted = (['export', 'compact', 'ingest'] as const)
    .filter((role) => options.roles.includes(role))
    .flatMap((role) => namesOf(role, config).map((name) => ({ name, role })));
  for (const { name } of wanted) closers.add(name, () => roleKeepers.get(name)?.stop(graceMs));
  await startTogether(
    wanted.map(
      ({ name, role }) =>
        (unwanted) =>
          keep(name, role, unwanted),
    ),
    signal,
  );
  // However they came up: listed in this order.
  const order = wanted.map(({ name }) => name);
  keepers.sort((one, other) => order.indexOf(one.state().name) - order.indexOf(other.state().name));
  if (signal.aborted) throw new AppError('stopping', 'the service was stopped while it started');
  return { keepers: [...roleKeepers.values()], reports };
}
