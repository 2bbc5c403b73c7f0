import assert from 'node:assert/strict';
import path from 'node:path';
import { dataPaths, type Config } from '../config.ts';
import type { PublicServer } from '../health/routes.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { retry } from '../runtime/async/retry.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { describeError } from '../runtime/errors.ts';
import { isSameDisk, startDiskWatch } from '../runtime/files/disk-watch.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { areSameFolders, type FolderIds } from '../runtime/files/folder-id.ts';
import { findMissingRecords, markRecords } from '../runtime/store/marked-records.ts';
import type { Closers } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { ServiceView, Stage } from '../runtime/processes/role-process.ts';
import { startBrokerPing } from '../stream/broker-monitor.ts';
import { openConnection, type StreamConnection } from '../stream/connection.ts';
import { openGuard, type OpenGuard } from '../stream/guard.ts';
import { assertBroker } from '../stream/topology.ts';

/** What a process is composed of, whichever its role. */
export interface Composition {
  readonly config: Config;
  /** The program's entry file. */
  readonly entry: string;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** The folders that the service runs on, as its supervisor holds them. */
  readonly folders?: FolderIds;
  /** Why the stage may not touch them now: it only answers that it cannot. */
  readonly closed?: string | undefined;
}

/** A composition under way: what the stages are built with, and what undoes it. */
export interface Parts extends Composition {
  readonly clock: Clock;
  readonly closers: Closers;
}

/** Finds what is wrong beside a stage's own problems. */
type FindProblems = () => readonly Problem[];

/** Adds what the composition watches to the problems that a stage reports. */
export function withProblems(stage: Stage, watches: readonly FindProblems[]): Stage {
  return {
    ...stage,
    facts() {
      const { problems = [], ...facts } = stage.facts?.() ?? {};
      return { ...facts, problems: [...(problems as Problem[]), ...watches.flatMap((find) => find())] };
    },
  };
}

/**
 * Watches the disk of a store that has one of its own. On the stream's disk import watches the reserve for all: what
 * waits for the lake or for a report does not grow while no event is taken.
 */
export async function watchStoreDisk(
  { config, logger, closers }: Parts,
  folder: string,
  problem: Problem,
): Promise<FindProblems> {
  const { nats } = dataPaths(config.dataDir);
  if ((await exists(nats)) && (await isSameDisk(folder, nats))) return () => [];
  const disk = await startDiskWatch(folder, config.diskReserveBytes, logger);
  closers.add('disk watch', () => disk.stop());
  return () => (disk.isLow() ? [problem] : []);
}

/** How soon a record that is missing, or back, is noticed, milliseconds. */
const lookForRecordsMs = 5000;

/** Marks the records of the data folder as known, and watches that none goes missing. */
export async function watchRecords({ config, logger, closers, folders = {} }: Parts): Promise<FindProblems> {
  let missing: readonly Problem[] = [];
  const onError = (error: unknown): void =>
    logger.warn({ error: describeError(error) }, 'cannot look for missing records, will retry');
  const look = async (): Promise<void> => {
    // Not in a folder that has taken the place of this one.
    if (!areSameFolders(folders)) return;
    missing = await findMissingRecords(config.dataDir);
    await markRecords(config.dataDir);
  };
  await look().catch(onError);
  const loop = startPollLoop(look, { everyMs: lookForRecordsMs, onError, pausesFirst: true });
  closers.add('records watch', () => loop.stop());
  return () => missing;
}

/** A stage's connection to the broker, its watch on the stream, and what is wrong with either. */
interface StageStream {
  readonly connection: StreamConnection;
  readonly guard: OpenGuard;
  readonly findProblems: FindProblems;
}

/**
 * Connects to the broker that the supervisor named, whose stream the supervisor has claimed, and watches that stream.
 */
export async function openStream({ config, logger, closers }: Parts, name: string): Promise<StageStream> {
  assert(config.natsUrl !== undefined, 'the supervisor names the broker to its children');
  const connection = await openConnection({ url: config.natsUrl, name: `tributary-${name}`, logger });
  closers.add('broker connection', () => connection.close());
  assertBroker(connection);
  const guard = await openGuard(connection, {
    streamName: config.streamName,
    claimFile: dataPaths(config.dataDir).claim,
    logger,
  });
  closers.add('stream guard', () => guard.stop());
  const ping = startBrokerPing(connection);
  closers.add('broker ping', () => ping.stop());
  return { connection, guard, findProblems: () => [...ping.problems(), ...guard.problems()] };
}

/**
 * Starts to answer questions after events in the place of the compactor's process, once the broker is there: nothing
 * else of the stage waits for it.
 */
export function startStandIn({ config, logger, closers }: Parts): void {
  const { natsUrl: url, streamName } = config;
  if (url === undefined) return;
  const paths = dataPaths(config.dataDir);
  const options = { lakeDir: paths.lake, indexDir: paths.eventIndex, workDir: path.join(paths.spool, 'stand-in') };
  const stopping = new AbortController();
  const open = () => openConnection({ url, name: 'tributary-stand-in', logger });
  const opened = retry(open, { forMs: Infinity, everyMs: 1000, signal: stopping.signal }).then(
    async (connection) => {
      // Loaded here: import has no part of it, and would carry the SQL engine.
      const { startResponder } = await import('../find/responder.ts');
      return { connection, responder: startResponder({ connection, streamName, logger }, options, 'stand-in') };
    },
    () => undefined,
  );
  closers.add('stand-in', async () => {
    stopping.abort();
    const { connection, responder } = (await opened) ?? {};
    await responder?.stop();
    await connection?.close();
  });
}

/** What a stage with a public port takes of the service's health: the routes, and what receives the supervisor's view. */
export async function openHealth() {
  const { addHealthRoutes, createReadiness } = await import('../health/routes.ts');
  const readiness = createReadiness();
  return {
    addRoutes: (server: PublicServer): void => addHealthRoutes(server, readiness),
    onService: (view: ServiceView): void => readiness.update(view),
  };
}
