import { findUnknownSettings } from '../config.ts';
import { findWarnings, findProblems } from '../ops/health.ts';
import { events } from '../datasets/dataset.ts';
import { readSecondaryTables, summarizeTables } from '../lake/history.ts';
import { describeClock, isClockBehind, type LakeState } from '../lake/log/lake-state.ts';
import { describeForeign } from '../lake/log/table-state.ts';
import { listDeferredReplacements } from '../lake/files/deferred-replacement.ts';
import { findUnnamedTables, lakePaths } from '../lake/lake.ts';
import { listLog } from '../lake/log/log-files.ts';
import { readSnapshot, type DataFile } from '../lake/log/snapshot.ts';
import { summarizeReports } from '../reports/report-records.ts';
import { describeError } from '../runtime/errors.ts';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import { withFormerStatus } from '../runtime/former-names.ts';
import { createLogger } from '../runtime/logger.ts';
import { findFolderId } from '../runtime/files/folder-id.ts';
import { listHosts } from '../runtime/store/hosts.ts';
import { findMissingRecords } from '../runtime/store/marked-records.ts';
import { findLeases, openStore } from '../runtime/store/open-store.ts';
import { describeLostFolder } from '../runtime/files/folder-watch.ts';
import { isSameProblem, type Problem } from '../runtime/problems/problem.ts';
import { listCrashedServices, readServiceStates, type ServiceState } from '../runtime/processes/service-state.ts';
import { openConnection } from '../stream/connection.ts';
import { openReader } from '../stream/reader.ts';
import type { StreamState } from '../stream/stream.ts';
import { defineDataCommand } from './command.ts';
import { flag } from './option-specs.ts';
import { renderStatus } from './status-table.ts';
import { findBroker, type BrokerConnection } from './stop.ts';

async function readStream({ url, streamName }: BrokerConnection): Promise<StreamState> {
  const connection = await openConnection({ url, name: 'tributary-status', logger: createLogger('silent') });
  try {
    return await (await openReader(connection, { streamName })).state();
  } finally {
    await connection.close();
  }
}

/**
 * Estimates the size of the event lines in the stream, bytes: its size, and the compression of the messages that the
 * running import processes have published. Undefined before the first message.
 */
export function estimateLinesBytes(
  services: readonly Pick<ServiceState, 'facts'>[],
  bytes: number,
): number | undefined {
  const published = services.flatMap(({ facts }) => Object.values(facts).map((fact) => membersOf(fact['published'])));
  const sum = (name: string): number => published.reduce((total, sizes) => total + (Number(sizes[name]) || 0), 0);
  const storedBytes = sum('storedBytes');
  return storedBytes === 0 ? undefined : Math.round((bytes * sum('bytes')) / storedBytes);
}

/** Reads the state of the lake and its problems; files, rows and bytes are those of the events table. */
async function readLake(lakeDir: string, nowMs: number) {
  const eventsSnapshot = await readSnapshot(lakePaths(lakeDir).table);
  const { version, files, lake, foreign } = eventsSnapshot;
  const secondaryTables = await readSecondaryTables(lakeDir);
  const availableAtMs = lake?.availableAtMs ?? 0;
  const problems = [
    ...(foreign === undefined ? [] : [describeForeign(foreign)]),
    ...[...secondaryTables].flatMap(([table, snapshot]) =>
      snapshot.foreign === undefined ? [] : [describeForeign(snapshot.foreign, table)],
    ),
    ...(isClockBehind(availableAtMs, nowMs) ? [describeClock(availableAtMs, nowMs)] : []),
    ...(await findUnnamedTables(lakeDir)),
  ];
  const status = {
    version,
    files: files.length,
    youngFiles: files.filter((file) => file.young).length,
    bytes: files.reduce((sum, file) => sum + file.sizeBytes, 0),
    rows: files.reduce((sum, file) => sum + (file.numRecords ?? 0), 0),
    streamId: lake?.epoch?.streamId,
    position: lake?.epoch?.position ?? 0,
    totals: lake?.totals,
    tables: summarizeTables(
      version < 0 ? secondaryTables : new Map([[events.table, eventsSnapshot], ...secondaryTables]),
    ),
    ...(await describeWaiting(lakeDir, files, lake)),
  };
  return { status, problems };
}

/** Describes the sealed files that wait to be replaced, and the end of an erasure, which is a retention later. */
async function describeWaiting(lakeDir: string, files: readonly DataFile[], lake: LakeState | undefined) {
  const { forgetBefore = 0, forgetAtMs = 0 } = lake ?? {};
  const filesToReplace = (await listDeferredReplacements(lakePaths(lakeDir).table, files)).length;
  const { commits } = await listLog(lakePaths(lakeDir).table);
  const isErasing = lake?.forgetBefore !== undefined && (commits[0] ?? forgetBefore) < forgetBefore;
  // A repair of times and a new column replace sealed files, too.
  if (!isErasing) return filesToReplace === 0 ? {} : { filesToReplace };
  return { erasure: { finishesAt: new Date(forgetAtMs).toISOString(), filesToReplace } };
}

/** Reads one part of the status; an error becomes a problem. */
async function attempt<T>(problems: Problem[], problem: Problem, read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    problems.push({ ...problem, message: `${problem.message}: ${describeError(error)}` });
    return undefined;
  }
}

/** Finds the problems of a service; one with a lost folder cannot write its state, so the folders are checked here. */
function findServiceProblems(service: ServiceState, nowMs: number): Problem[] {
  const problems = findProblems(service, nowMs);
  const isSilent = problems.some(({ code }) => code === 'supervisor_unresponsive');
  const lost = Object.entries(service.folders ?? {}).find(([folder, id]) => findFolderId(folder) !== id)?.[0];
  return isSilent && lost !== undefined ? [describeLostFolder(lost)] : problems;
}

/**
 * Lists the hosts that share the buckets, and their leases; undefined without a bucket. A service that runs here has
 * observed which of them are alive. Without one, that is unknown.
 */
async function readHosts(dataDir: string, services: readonly Pick<ServiceState, 'facts'>[]) {
  const [observed] = services.flatMap(({ facts }) => {
    const { hosts, leases } = facts['supervisor'] ?? {};
    return hosts === undefined ? [] : [{ hosts, leases }];
  });
  const shared = findLeases(dataDir);
  if (observed !== undefined || shared === undefined) return observed;
  return { hosts: await listHosts(openStore(dataDir)), leases: await shared.list() };
}

const isOfProcess = ([name]: readonly [string, unknown]): boolean => name !== 'hosts' && name !== 'leases';

/** Renders what the processes of a service report. Its hosts and leases are those of the whole status. */
function showFacts(facts: ServiceState['facts']) {
  return Object.fromEntries(
    Object.entries(facts).map(([name, reported]) => [
      name,
      withFormerStatus(Object.fromEntries(Object.entries(reported).filter(isOfProcess))),
    ]),
  );
}

const describeCrashed = ({ pid, writtenAt }: ServiceState): Problem => ({
  code: 'service_crashed',
  subject: String(pid),
  message: `the service of pid ${pid} crashed; it was last seen at ${writtenAt}`,
  since: writtenAt,
  action:
    'Start the service again; no acknowledged event is lost. Check the end of its log and the system log (out of memory?).',
});

export const statusCommand = defineDataCommand({
  name: 'status',
  summary: 'show processes, stream, lake, exports and problems',
  details: ['Prints a table on a terminal, and one JSON object with all figures in a pipe or with --json.'],
  options: { all: flag('show all figures on a terminal') },
  examples: ['status', 'status --all', "status | jq '.problems'"],
  exitCodes: { 1: 'there are problems; the output lists them with actions' },
  async run({ all, json }, { config, paths, clock, environment, print, printResult, printMessage, screen }) {
    for (const { variable, probably } of findUnknownSettings(environment))
      printMessage(
        `tributary: unknown setting ${variable}${probably === undefined ? '' : `; did you mean ${probably}?`}`,
      );
    const services = readServiceStates(paths.run);
    const nowMs = clock.nowMs();
    const problems = services.flatMap((service) => findServiceProblems(service, nowMs));
    problems.push(...listCrashedServices(paths.run).map(describeCrashed));
    // A running process may have reported the same problem, with its own figures.
    const addNew = (found: readonly Problem[]): void =>
      void problems.push(...found.filter((one) => !problems.some((known) => isSameProblem(known, one))));

    // Folders that were replaced do not describe the service.
    const isLost = problems.some(({ code }) => code === 'data_folder_replaced');
    const brokerConnection = findBroker(config);
    const action = services.some(({ processes }) => processes.some(({ name }) => name === 'nats-server'))
      ? 'Wait: nats-server is restarting.'
      : 'Check that the cluster of TRIBUTARY_NATS_URL is running.';
    const stream =
      brokerConnection === undefined || isLost
        ? undefined
        : await attempt(problems, { code: 'stream_unreadable', message: 'cannot read the stream', action }, () =>
            readStream(brokerConnection),
          );
    const readOut = isLost
      ? undefined
      : await attempt(
          problems,
          { code: 'lake_unreadable', message: 'cannot read the lake', action: "Run 'tributary lake check'." },
          () => readLake(paths.lake, nowMs),
        );
    const lake = readOut?.status;
    addNew(readOut?.problems ?? []);
    addNew(await findMissingRecords(config.dataDir));
    const exports = await attempt(
      problems,
      {
        code: 'exports_unreadable',
        message: 'cannot read the exports',
        action: 'Check the permissions of the data folder.',
      },
      () => summarizeReports(paths.reports),
    );
    const shared = await attempt(
      problems,
      { code: 'hosts_unreadable', message: 'cannot list the hosts', action: 'Check the bucket and the credentials.' },
      () => readHosts(config.dataDir, services),
    );
    const position = lake?.streamId === stream?.id ? (lake?.position ?? 0) : 0;
    const status = {
      running: services.length > 0,
      problems,
      warnings: services.flatMap(findWarnings),
      ...shared,
      // Without the broker's credentials.
      services: services.map(({ pid, startedAt, writtenAt, s2s, api, processes, facts }) => {
        return { pid, startedAt, writtenAt, s2s, api, processes, facts: showFacts(facts) };
      }),
      stream:
        stream === undefined
          ? undefined
          : {
              ...stream,
              estimatedLinesBytes: estimateLinesBytes(services, stream.bytes),
              lagMessages: Math.max(0, stream.lastSequence - position),
            },
      lake,
      exports,
    };
    if (screen === undefined || json || all) printResult(withFormerStatus(status));
    else for (const line of renderStatus(status, nowMs)) print(line);
    return problems.length === 0 ? 0 : 1;
  },
});
