import { dataPaths } from '../config.ts';
import { findNotices, findProblems } from '../health/health.ts';
import { events } from '../datasets/dataset.ts';
import { readFollowers, summarizeTables } from '../lake/history.ts';
import { describeClock, isClockBehind } from '../lake/log/available-at.ts';
import { describeForeign } from '../lake/log/foreign-commit.ts';
import { lakePaths } from '../lake/lake.ts';
import type { LakeState } from '../lake/log/lake-state.ts';
import { listLog } from '../lake/log/log-files.ts';
import { readSnapshot, type DataFile } from '../lake/log/snapshot.ts';
import { summarizeReports } from '../reports/summary.ts';
import { createClock } from '../runtime/clock.ts';
import { describeError } from '../runtime/errors.ts';
import { createLogger } from '../runtime/logger.ts';
import { isSameProblem, type Problem } from '../runtime/conditions/problem.ts';
import { listLostServices, readServiceStates, type ServiceState } from '../runtime/processes/service-state.ts';
import { openConnection } from '../stream/connection.ts';
import { openReader } from '../stream/reader.ts';
import type { StreamState } from '../stream/stream.ts';
import { parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary status [--data DIR]';

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
  const filesToReplace = files.filter((file) => file.replaces !== undefined).length;
  const { commits } = await listLog(lakePaths(lakeDir).table);
  const isForgotten = (commits[0] ?? forgetBefore) >= forgetBefore;
  // A repair of times has sealed files replaced, too.
  if (lake?.forgetBefore === undefined) return filesToReplace === 0 ? {} : { filesToReplace };
  if (filesToReplace === 0 && isForgotten) return {};
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
function describeService({ pid, startedAt, s2s, api, processes, facts }: ServiceState) {
  return { pid, startedAt, s2s, api, processes, facts };
}

/**
 * `tributary status`: processes, stream, lag, lake and job totals, what is wrong and what to do, what to look at
 * (notices). Works with the service running or stopped; exits 1 when something is wrong.
 */
export const statusCommand: Command = {
  name: 'status',
  usage,
  summary: 'processes, stream, lake and exports; what is wrong and what to do',
  async run(args, { environment, answer }) {
    const { values } = parseWords(args, [], {}, usage);
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    const paths = dataPaths(config.dataDir);
    const services = readServiceStates(paths.run);
    const nowMs = createClock(config.clockOffsetSeconds).nowMs();
    const problems = services.flatMap((service) => findProblems(service, nowMs));
    for (const lost of listLostServices(paths.run)) {
      problems.push({
        code: 'service_ended',
        subject: String(lost.pid),
        what: `the service of pid ${lost.pid} ended without being stopped; it was last seen at ${lost.writtenAt}`,
        since: lost.writtenAt,
        todo: "Start it again: nothing acknowledged is lost. The end of its log and the system's (out of memory?) say why.",
      });
    }

    // An external broker keeps events while the service is stopped.
    const onStream = services.find((service) => service.natsUrl !== undefined);
    const natsUrl = onStream?.natsUrl ?? config.natsUrl;
    const todo = services.some(({ processes }) => processes.some(({ name }) => name === 'nats-server'))
      ? 'Wait a moment: nats-server is restarted by itself.'
      : 'See whether the cluster that TRIBUTARY_NATS_URL names runs.';
    const stream =
      natsUrl === undefined
        ? undefined
        : await attempt(problems, { code: 'stream_unreadable', what: 'the stream cannot be read', todo }, () =>
            readStream(natsUrl, onStream?.streamName ?? config.streamName),
          );
    const readOut = await attempt(
      problems,
      { code: 'lake_unreadable', what: 'the lake cannot be read', todo: "Run 'tributary lake check'." },
      () => readLake(paths.lake, nowMs),
    );
    const lake = readOut?.answer;
    // A running compactor reports the same, with figures of its own.
    problems.push(
      ...(readOut?.problems ?? []).filter((found) => !problems.some((known) => isSameProblem(known, found))),
    );
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
      problems,
      notices: services.flatMap(findNotices),
    });
    return problems.length === 0 ? 0 : 1;
  },
};
