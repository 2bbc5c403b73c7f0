import process from 'node:process';
import { dataPaths } from '../config.ts';
import { findWarnings, findOwnProblems, findProblems, withSince, createProblemLog } from '../ops/health.ts';
import type { OpsView } from '../ops/ops-server.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import type { Clock } from '../runtime/clock.ts';
import { describeError } from '../runtime/errors.ts';
import { createDescriptorWatch, type DescriptorWatch } from '../runtime/files/disk-watch.ts';
import { findStamp } from '../runtime/files/file-checks.ts';
import type { SharedHosts } from './shared-hosts.ts';
import type { FolderHandles, FolderWatch } from '../runtime/files/folder-watch.ts';
import type { RunningChild, RoleChild } from '../runtime/processes/child.ts';
import {
  createHeartbeat,
  type Heartbeat,
  createLivenessWatch,
  type LivenessWatch,
} from '../runtime/processes/heartbeat.ts';
import { findProcessStart } from '../runtime/processes/procfs.ts';
import type { ServiceView } from '../runtime/processes/role-process.ts';
import { removeServiceState, writeServiceState, type ServiceState } from '../runtime/processes/service-state.ts';
import type { Supervisor } from '../runtime/processes/supervisor.ts';
import type { StreamOwner } from '../stream/owner.ts';
import type { Broker } from './broker.ts';
import type { RoleProcesses } from './role-processes.ts';
import type { ServiceOptions } from './service-options.ts';

const stateEveryMs = 1000;
const ownStart = findProcessStart(process.pid);

interface StateDependencies {
  readonly options: ServiceOptions;
  readonly clock: Clock;
  /** Start of the service, ISO 8601. */
  readonly startedAt: string;
  readonly pins: FolderHandles;
  readonly watch: FolderWatch;
  readonly broker: Broker | undefined;
  readonly streamOwner: StreamOwner | undefined;
  readonly supervisors: readonly Supervisor<RunningChild>[];
  readonly roles: RoleProcesses;
  /** The hosts that share the buckets; undefined on one machine. */
  readonly hosts: SharedHosts | undefined;
  /** Addresses of the areas; undefined for an area that does not run here. */
  readonly s2s: string | undefined;
  readonly api: string | undefined;
  /** Receives each new view of the operator's address. */
  readonly onView: (view: OpsView) => void;
}

/**
 * Returns the problem of a one-area service without access data. A new service of both areas gets it later, and so does
 * one whose state is in a bucket, which other hosts use.
 */
export function findAbsentAccess({ config, roles }: ServiceOptions): Problem[] {
  const { access } = dataPaths(config.dataDir);
  const isOneArea = roles.includes('ingest') !== roles.includes('export');
  if (!isOneArea || config.storage.state !== undefined || findStamp(access) !== undefined) return [];
  return [
    {
      code: 'access_missing',
      message: `${access} does not exist: all requests are rejected`,
      action:
        'Set TRIBUTARY_DATA_DIR to the data folder of the service, or add apps and users by commands on this folder.',
    },
  ];
}

/** Returns the reports of all processes by name, that of the supervisor included. */
function collectFacts(
  { options, watch, broker, streamOwner, roles, hosts }: StateDependencies,
  descriptors: DescriptorWatch,
): ServiceState['facts'] {
  const loss = watch.findLoss();
  return {
    ...Object.fromEntries([...roles.reports].map(([name, report]) => [name, report.facts])),
    supervisor: {
      problems: [
        ...descriptors.problems(),
        ...(streamOwner?.problems() ?? []),
        ...(loss === undefined ? [] : [loss]),
        ...findAbsentAccess(options),
      ],
      warnings: streamOwner?.notices() ?? [],
      ...hosts?.facts(),
    },
    ...(broker?.watch === undefined
      ? {}
      : { 'nats-server': { heals: broker.watch.restarts(), problems: broker.watch.problems() } }),
  };
}

/** Returns the state that commands and the operator's address show. */
function buildState(dependencies: StateDependencies, descriptors: DescriptorWatch): ServiceState {
  const { options, clock, startedAt, pins, broker, supervisors, roles, s2s, api } = dependencies;
  const { config } = options;
  return {
    pid: process.pid,
    processStart: ownStart,
    folder: pins.ids()[config.dataDir] ?? '',
    folders: pins.ids(),
    startedAt,
    writtenAt: new Date(clock.nowMs()).toISOString(),
    s2s,
    api,
    natsUrl: broker?.url,
    streamName: config.streamName,
    processes: supervisors.map((supervisor) => supervisor.state()),
    facts: collectFacts(dependencies, descriptors),
    silentMs: Object.fromEntries(
      [...roles.reports].map(([name, report]) => [name, Math.round(performance.now() - report.atMs)]),
    ),
  };
}

/** Kills running processes that no longer report. */
function endSilent(silence: LivenessWatch, { supervisors, reports }: RoleProcesses): void {
  const reporting = supervisors.filter((supervisor) => supervisor.state().state === 'running');
  silence.check(
    reporting.map((supervisor) => ({
      name: supervisor.state().name,
      reportedAtMs: reports.get(supervisor.state().name)?.atMs ?? 0,
      renew: () => supervisor.renew(),
    })),
  );
}

/** Sends a role's process the view of the service if it changed. */
function sendView(supervisor: Supervisor<RoleChild>, heartbeat: Heartbeat, view: ServiceView): void {
  const child = supervisor.current();
  if (child !== undefined)
    heartbeat.send(`${child.pid} ${JSON.stringify(view)}`, () => child.send({ type: 'service', view }));
}

/** Collects the service's state every second for commands, the operator's port, the log and `/readyz`. */
export function startStateLoop(dependencies: StateDependencies) {
  const { options, clock, pins, roles, hosts, onView } = dependencies;
  const { config, logger } = options;
  const { run } = dataPaths(config.dataDir);
  const served = roles.supervisors
    .filter((supervisor) => supervisor.state().name !== 'compact')
    .map((supervisor) => ({ supervisor, heartbeat: createHeartbeat() }));
  const stateNews = createHeartbeat();
  const silence = createLivenessWatch(logger);
  const problemLog = createProblemLog(logger, () => clock.nowMs());
  const descriptors = createDescriptorWatch('the supervisor');
  let isDraining = false;

  const publish = (): void => {
    endSilent(silence, roles);
    const state = buildState(dependencies, descriptors);
    const found = findProblems(state, clock.nowMs());
    const warnings = findWarnings(state);
    const since = problemLog.update(found, warnings);
    const problems = withSince(found, since);
    onView({ problems, warnings, processes: state.processes, collectMetrics: roles.collectMetrics, isDraining });
    for (const { supervisor, heartbeat } of served) {
      const ready = !isDraining && findOwnProblems(state, supervisor.state().name, clock.nowMs()).length === 0;
      const view = { ready, ...(hosts === undefined ? {} : { hosts: hosts.keepers() }) };
      sendView(supervisor, heartbeat, isDraining ? { ...view, draining: true } : view);
    }
    if (pins.findLost().length > 0) return;
    try {
      const { writtenAt: _writtenAt, silentMs: _silentMs, ...lasting } = state;
      stateNews.send(JSON.stringify({ ...lasting, since }), () => writeServiceState(run, { ...state, since }));
    } catch (error) {
      // A full disk must not end the supervisor: only commands need the state.
      logger.warn({ error: describeError(error) }, 'cannot write service state');
    }
  };

  publish();
  const loop = startPollLoop(publish, {
    everyMs: stateEveryMs,
    onError: (error) => logger.error({ error: describeError(error) }, 'cannot collect service state'),
    pausesFirst: true,
  });
  return {
    /** Makes every port not ready; the roles close their ports later. */
    drain(): void {
      isDraining = true;
      publish();
    },
    async stop(): Promise<void> {
      await loop.stop();
      if (pins.findLost().length === 0) removeServiceState(run, process.pid);
    },
  };
}
