import { findUnknownSettings } from '../config.ts';
import { findNotices, findProblems } from '../health/health.ts';
import { events } from '../datasets/dataset.ts';
import { readFollowers, summarizeTables } from '../lake/history.ts';
import { describeClock, isClockBehind, type LakeState } from '../lake/log/lake-state.ts';
import { describeForeign } from '../lake/log/table-state.ts';
import { listUnshown } from '../lake/files/places.ts';
import { findUnnamedTables, lakePaths } from '../lake/lake.ts';
import { listLog } from '../lake/log/log-files.ts';
import { readSnapshot, type DataFile } from '../lake/log/snapshot.ts';
import { summarizeReports } from '../reports/report-records.ts';
import { describeError } from '../runtime/errors.ts';
import { createLogger } from '../runtime/logger.ts';
import { findFolderId } from '../runtime/files/folder-id.ts';
import { findMissingRecords } from '../runtime/store/marked-records.ts';
import { describeLostFolder } from '../runtime/files/folder-watch.ts';
import { isSameProblem, type Problem } from '../runtime/conditions/problem.ts';
import { listLostServices, readServiceStates, type ServiceState } from '../runtime/processes/service-state.ts';
import { openConnection } from '../stream/connection.ts';
import { openReader } from '../stream/reader.ts';
import type { StreamState } from '../stream/stream.ts';
import { verb, openData } from './command.ts';

async function readStream(natsUrl: string, streamName: string): Promise<StreamState> {
  const connection = await openConnection({ url: natsUrl, name: 'tributary-status', logger: createLogger('silent') });
  try {
    return await (await openReader(connection, { streamName })).state();
  } finally {
    await connection.close();
  }
}

/**
 * The lake's totals from the newest commit of its log, and what is wrong with it. `position` is the last stream
 * sequence the lake has; rows, bytes and files are those of the events, and `tables` has those of every table.
 */
async function readLake(lakeDir: string, nowMs: number) {
  const leader = await readSnapshot(lakePaths(lakeDir).table);
  const { version, files, lake, foreign } = leader;
  const followers = await readFollowers(lakeDir);
  const availableAtMs = lake?.availableAtMs ?? 0;
  const problems = [
    ...(foreign === undefined ? [] : [describeForeign(foreign)]),
    ...[...followers].flatMap(([table, snapshot]) =>
      snapshot.foreign === undefined ? [] : [describeForeign(snapshot.foreign, table)],
    ),
    ...(isClockBehind(availableAtMs, nowMs) ? [describeClock(availableAtMs, nowMs)] : []),
    ...(await findUnnamedTables(lakeDir)),
  ];
  const answer = {
    version,
    files: files.length,
    youngFiles: files.filter((file) => file.young).length,
    bytes: files.reduce((sum, file) => sum + file.sizeBytes, 0),
    rows: files.reduce((sum, file) => sum + (file.numRecords ?? 0), 0),
    /**
     * The stream that the position is in: after a new one was made, until the compactor has seen it, the one before.
     */
    streamId: lake?.epoch?.streamId,
    position: lake?.epoch?.position ?? 0,
    totals: lake?.totals,
    tables: summarizeTables(version < 0 ? followers : new Map([[events.table, leader], ...followers])),
    ...(await describeWaiting(lakeDir, files, lake)),
  };
  return { answer, problems };
}

/**
 * Sealed files that wait to be replaced, and what erasures wait for beside it: history to be dropped once its readers
 * have had the retention.
 */
async function describeWaiting(lakeDir: string, files: readonly DataFile[], lake: LakeState | undefined) {
  const { forgetBefore = 0, forgetAtMs = 0 } = lake ?? {};
  const filesToReplace = (await listUnshown(lakePaths(lakeDir).table, files)).length;
  const { commits } = await listLog(lakePaths(lakeDir).table);
  const isErasing = lake?.forgetBefore !== undefined && (commits[0] ?? forgetBefore) < forgetBefore;
  // A repair of times and a new column have sealed files replaced, too.
  if (!isErasing) return filesToReplace === 0 ? {} : { filesToReplace };
  return { erasure: { finishesAt: new Date(forgetAtMs).toISOString(), filesToReplace } };
}

/** Reads one part of the answer; what cannot be read becomes a problem instead of ending the command. */
async function attempt<T>(problems: Problem[], problem: Problem, read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    problems.push({ ...problem, what: `${problem.what}: ${describeError(error)}` });
    return undefined;
  }
}

/** What a supervisor knows, without the broker's credentials. */
function describeService({ pid, startedAt, writtenAt, s2s, api, processes, facts }: ServiceState) {
  return { pid, startedAt, writtenAt, s2s, api, processes, facts };
}

/**
 * What is wrong with a service. One whose folder is gone may not write there any more: what it wrote last is old, and
 * what has become of its folders is looked at here.
 */
function findServiceProblems(service: ServiceState, nowMs: number): Problem[] {
  const problems = findProblems(service, nowMs);
  const isSilent = problems.some(({ code }) => code === 'supervisor_silent');
  const lost = Object.entries(service.folders ?? {}).find(([folder, id]) => findFolderId(folder) !== id)?.[0];
  return isSilent && lost !== undefined ? [describeLostFolder(lost)] : problems;
}

/**
 * `tributary status`: processes, stream, lag, lake and job totals, what is wrong and what to do, what to look at
 * (notices). Works with the service running or stopped; exits 1 when something is wrong.
 */
export const statusCommand = verb({
  name: 'status',
  summary: 'show processes, stream, lake and exports; what is wrong and what to do',
  examples: ['status', "status | jq '.problems'"],
  exitCodes: { 1: 'there is a problem: `problems` says which, and what to do' },
  async run({ data }, { environment, answer, note }) {
    const { config, paths, clock } = openData(data, { environment });
    // Those of this environment: the service's own are in its log.
    for (const { variable, probably } of findUnknownSettings(environment))
      note(`tributary: ${variable} is no setting${probably === undefined ? '' : `; did you mean ${probably}?`}`);
    const services = readServiceStates(paths.run);
    const nowMs = clock.nowMs();
    const problems = services.flatMap((service) => findServiceProblems(service, nowMs));
    for (const lost of listLostServices(paths.run)) {
      problems.push({
        code: 'service_ended',
        subject: String(lost.pid),
        what: `the service of pid ${lost.pid} ended without being stopped; it was last seen at ${lost.writtenAt}`,
        since: lost.writtenAt,
        todo: "Start it again: nothing acknowledged is lost. The end of its log and the system's (out of memory?) say why.",
      });
    }

    // What is left of folders that are gone says nothing of the service.
    const isLost = problems.some(({ code }) => code === 'folder_lost');
    // An external broker keeps events while the service is stopped.
    const onStream = services.find((service) => service.natsUrl !== undefined);
    const natsUrl = onStream?.natsUrl ?? config.natsUrl;
    const todo = services.some(({ processes }) => processes.some(({ name }) => name === 'nats-server'))
      ? 'Wait a moment: nats-server is restarted by itself.'
      : 'See whether the cluster that TRIBUTARY_NATS_URL names runs.';
    const stream =
      natsUrl === undefined || isLost
        ? undefined
        : await attempt(problems, { code: 'stream_unreadable', what: 'the stream cannot be read', todo }, () =>
            readStream(natsUrl, onStream?.streamName ?? config.streamName),
          );
    const readOut = isLost
      ? undefined
      : await attempt(
          problems,
          { code: 'lake_unreadable', what: 'the lake cannot be read', todo: "Run 'tributary lake check'." },
          () => readLake(paths.lake, nowMs),
        );
    const lake = readOut?.answer;
    // A running compactor reports the same, with figures of its own.
    problems.push(
      ...(readOut?.problems ?? []).filter((found) => !problems.some((known) => isSameProblem(known, found))),
    );
    const missing = await findMissingRecords(config.dataDir);
    problems.push(...missing.filter((found) => !problems.some((known) => isSameProblem(known, found))));
    const exports = await attempt(
      problems,
      {
        code: 'exports_unreadable',
        what: 'the exports cannot be read',
        todo: 'See whether the data folder is readable.',
      },
      () => summarizeReports(paths.reports),
    );
    answer({
      running: services.length > 0,
      problems,
      notices: services.flatMap(findNotices),
      services: services.map(describeService),
      stream:
        stream === undefined
          ? undefined
          : {
              ...stream,
              lagMessages: Math.max(0, stream.lastSequence - (lake?.streamId === stream.id ? lake.position : 0)),
            },
      lake,
      exports,
    });
    return problems.length === 0 ? 0 : 1;
  },
});
