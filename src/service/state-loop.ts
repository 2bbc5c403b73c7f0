import process from 'node:process';
import { dataPaths } from '../config.ts';
import { findNotices, findProblems, withSince } from '../health/health.ts';
import type { OpsView } from '../health/ops-server.ts';
import { createProblemLog } from '../health/problem-log.ts';
import type { Clock } from '../runtime/clock.ts';
import { describeError } from '../runtime/errors.ts';
import { createDescriptorWatch } from '../runtime/files/descriptor-watch.ts';
import type { FolderPins } from '../runtime/files/folder-pins.ts';
import type { FolderWatch } from '../runtime/files/folder-watch.ts';
import type { RunningChild } from '../runtime/processes/child.ts';
import { findProcessStart } from '../runtime/processes/process-identity.ts';
import { removeServiceState, writeServiceState, type ServiceState } from '../runtime/processes/service-state.ts';
import { createSilenceWatch } from '../runtime/processes/silence-watch.ts';
import type { Keeper } from '../runtime/processes/supervisor.ts';
import type { StreamOwner } from '../stream/owner.ts';
import type { Broker } from './own-broker.ts';
import type { RoleProcesses } from './role-processes.ts';
import type { ServiceOptions } from './service-options.ts';

const stateEveryMs = 1000;

export interface StateDependencies {
  readonly options: ServiceOptions;
  readonly clock: Clock;
  /** ISO time at which the service began to start. */
  readonly startedAt: string;
  readonly pins: FolderPins;
  readonly watch: FolderWatch;
  readonly broker: Broker | undefined;
  readonly streamOwner: StreamOwner | undefined;
  readonly keepers: readonly Keeper<RunningChild>[];
  readonly roles: RoleProcesses;
  /** Addresses of the areas, as far as they run. */
  readonly s2s: string | undefined;
  readonly api: string | undefined;
  /** Given each new view for the operator's address. */
  readonly onView: (view: OpsView) => void;
}

/**
 * Gathers, every second, what the service is doing: for the commands (run/), the operator's address, the log and the
 * roles' /readyz. Returns what ends that.
 */
export function startStateLoop({
  options,
  clock,
  startedAt,
  pins,
  watch,
  broker,
  streamOwner,
  keepers,
  roles,
  s2s,
  api,
  onView,
}: StateDependencies): () => void {
  const { config, logger } = options;
  const { run } = dataPaths(config.dataDir);
  const { reports } = roles;
  const served = roles.keepers.filter((keeper) => keeper.state().name !== 'compact');
  const silence = createSilenceWatch(logger);
  const problemLog = createProblemLog(logger, () => clock.nowMs());
  const descriptors = createDescriptorWatch('the supervisor');

  const buildState = (): ServiceState => {
    const loss = watch.findLoss();
    return {
      pid: process.pid,
      processStart: findProcessStart(process.pid),
      folder: pins.ids()[config.dataDir] ?? '',
      startedAt,
      writtenAt: new Date(clock.nowMs()).toISOString(),
      s2s,
      api,
      natsUrl: broker?.url,
      streamName: config.streamName,
      processes: keepers.map((keeper) => keeper.state()),
      facts: {
        ...Object.fromEntries([...reports].map(([name, report]) => [name, report.facts])),
        supervisor: {
          problems: [
            ...descriptors.problems(),
            ...(streamOwner?.problems() ?? []),
            ...(loss === undefined ? [] : [loss]),
          ],
          notices: streamOwner?.notices() ?? [],
        },
        ...(broker?.watch === undefined
          ? {}
          : { 'nats-server': { heals: broker.watch.heals(), problems: broker.watch.problems() } }),
      },
      silentMs: Object.fromEntries(
        [...reports].map(([name, report]) => [name, Math.round(performance.now() - report.atMs)]),
      ),
    };
  };

  const publish = (): void => {
    const reporting = roles.keepers.filter((keeper) => keeper.state().state === 'running');
    silence.look(
      reporting.map((keeper) => ({
        name: keeper.state().name,
        reportedAtMs: reports.get(keeper.state().name)?.atMs ?? 0,
        renew: () => keeper.renew(),
      })),
    );
    const state = buildState();
    const found = findProblems(state, clock.nowMs());
    const since = problemLog.update(found, findNotices(state));
    const problems = withSince(found, since);
    onView({ problems, metrics: [...reports.values()].map((report) => report.metrics) });
    for (const keeper of served) keeper.current()?.send({ type: 'service', view: { ready: problems.length === 0 } });
    if (pins.findLost().length > 0) return;
    try {
      writeServiceState(run, { ...state, since });
    } catch (error) {
      // A full disk must not take the supervisor down: the state is a convenience for the commands.
      logger.warn({ error: describeError(error) }, 'service state cannot be written');
    }
  };

  publish();
  const timer = setInterval(publish, stateEveryMs);
  return () => {
    clearInterval(timer);
    if (pins.findLost().length === 0) removeServiceState(run, process.pid);
  };
}
