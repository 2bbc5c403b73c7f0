import assert from 'node:assert/strict';
import path from 'node:path';
import { dataPaths, type Config } from '../config.ts';
import type { PublicServer } from '../ops/routes.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { retry } from '../runtime/async/retry.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { describeError } from '../runtime/errors.ts';
import { isSameDisk, startDiskWatch } from '../runtime/files/disk-watch.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { areSameFolders, type FolderIds } from '../runtime/files/folder-id.ts';
import { findMissingRecords, markRecords } from '../runtime/store/marked-records.ts';
import type { Closers } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { ServiceView, Stage } from '../runtime/processes/role-process.ts';
import type { Tracing } from '../runtime/tracing/tracing.ts';
import { startBrokerPing } from '../stream/broker-monitor.ts';
import { awaitLeader, openConnection, type StreamConnection } from '../stream/connection.ts';
import { openGuard } from '../stream/guard.ts';
import { assertBroker } from '../stream/stream-admin.ts';

/** The composition of a process of any role. */
export interface Composition {
  readonly config: Config;
  readonly entry: string;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** The folders that the supervisor holds. */
  readonly folders?: FolderIds;
  /** The reason why the folders must not be used; the stage then only reports it. */
  readonly closed?: string | undefined;
  /** Id of this host among those that share buckets; undefined on one machine. */
  readonly hostId?: string | undefined;
}

/** A composition with the parts that undo it. */
export interface CompositionContext extends Composition {
  readonly clock: Clock;
  readonly closers: Closers;
  /** Absent without a collector of traces. */
  readonly tracing?: Tracing | undefined;
}

type FindProblems = () => readonly Problem[];

/** Adds problems of the composition to those of a stage. */
export function withProblems(stage: Stage, watches: readonly FindProblems[]): Stage {
  return {
    ...stage,
    facts() {
      const { problems = [], ...facts } = stage.facts?.() ?? {};
      return { ...facts, problems: [problems, ...watches.map((find) => find())].flat() };
    },
  };
}

/** Watches the free space of a store, unless it is on the stream's disk, where import watches it. */
export async function watchStoreDisk(
  { config, logger, closers }: CompositionContext,
  folder: string,
  problem: Problem,
): Promise<FindProblems> {
  const { nats } = dataPaths(config.dataDir);
  if ((await exists(nats)) && (await isSameDisk(folder, nats))) return () => [];
  const disk = await startDiskWatch(folder, config.diskReserveBytes, logger);
  closers.add('disk watch', () => disk.stop());
  return () => (disk.isLow() ? [problem] : []);
}

/** Interval of the check for missing records, ms. It lists them all, which costs requests in a bucket. */
const recordsCheckMs = { folder: 5000, bucket: 60_000 } as const;

/** Marks the records of the data folder as known, and reports those that go missing. */
export async function watchRecords({
  config,
  logger,
  closers,
  folders = {},
}: CompositionContext): Promise<FindProblems> {
  let missing: readonly Problem[] = [];
  const onError = (error: unknown): void =>
    logger.warn({ error: describeError(error) }, 'cannot look for missing records, will retry');
  const check = async (): Promise<void> => {
    if (!areSameFolders(folders)) return;
    missing = await findMissingRecords(config.dataDir);
    await markRecords(config.dataDir);
  };
  await check().catch(onError);
  const everyMs = recordsCheckMs[config.storage.state === undefined ? 'folder' : 'bucket'];
  const loop = startPollLoop(check, { everyMs, onError, pausesFirst: true });
  closers.add('records watch', () => loop.stop());
  return () => missing;
}

/** Connects to the broker and watches the stream, which the supervisor has claimed. */
export async function openStream({ config, logger, closers }: CompositionContext, name: string) {
  const { natsUrl: url } = config;
  assert(url !== undefined, 'the supervisor names the broker to its children');
  const connection = await awaitLeader(() => openConnection({ url, name: `tributary-${name}`, logger }));
  closers.add('broker connection', () => connection.close());
  assertBroker(connection);
  const claimFile = dataPaths(config.dataDir).claim;
  const guard = await awaitLeader(() => openGuard(connection, { streamName: config.streamName, claimFile, logger }));
  closers.add('stream guard', () => guard.stop());
  const ping = startBrokerPing(connection);
  closers.add('broker ping', () => ping.stop());
  const findProblems: FindProblems = () => [...ping.problems(), ...guard.problems()];
  return { connection, guard, findProblems };
}

/**
 * Answers event lookups while the compactor is down, once the broker is reachable. Returns its connection to the broker:
 * undefined before it is open, and without a broker.
 */
export function startStandbyResponder({
  config,
  logger,
  closers,
}: CompositionContext): () => StreamConnection | undefined {
  const { natsUrl: url, streamName } = config;
  if (url === undefined) return () => undefined;
  let current: StreamConnection | undefined;
  const paths = dataPaths(config.dataDir);
  const options = { lakeDir: paths.lake, indexDir: paths.eventIndex, workDir: path.join(paths.spool, 'stand-in') };
  const stopping = new AbortController();
  const open = () => openConnection({ url, name: 'tributary-stand-in', logger });
  const opened = retry(open, { forMs: Infinity, everyMs: 1000, signal: stopping.signal }).then(
    async (connection) => {
      // Loaded on demand: an ingest worker must not load the SQL engine.
      const { startResponder } = await import('../event-lookup/responder.ts');
      current = connection;
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
  return () => current;
}

/** Returns the health routes, the receiver of the supervisor's view, and the wait for the end of a drain. */
export async function openHealth({ config }: Pick<CompositionContext, 'config'>) {
  const { addHealthRoutes, createReadiness } = await import('../ops/routes.ts');
  const readiness = createReadiness(config.drainMs);
  return {
    addRoutes: (server: PublicServer): void => addHealthRoutes(server, readiness),
    onService: (view: ServiceView): void => readiness.update(view),
    drained: () => readiness.drained(),
  };
}
