import assert from 'node:assert/strict';
import path from 'node:path';
import { openAccessReader } from './access/store.ts';
import { dataPaths, type Config } from './config.ts';
import type { PublicServer } from './health/routes.ts';
import type { ServiceView } from './runtime/processes/role-messages.ts';
import { holdsEvents } from './lake/files/holds-events.ts';
import type { OpenApiServer } from './runtime/http/openapi.ts';
import { createClock, type Clock } from './runtime/clock.ts';
import { createDescriptorWatch } from './runtime/files/descriptor-watch.ts';
import { isSameDisk, startDiskWatch } from './runtime/files/disk-watch.ts';
import { AppError } from './runtime/errors.ts';
import { exists } from './runtime/files/file-checks.ts';
import { areSameFolders, type FolderIds } from './runtime/files/folder-id.ts';
import { buildWithClosers, type Closers } from './runtime/lifecycle.ts';
import type { Logger } from './runtime/logger.ts';
import type { Metrics } from './runtime/metrics.ts';
import { readPackageJson } from './runtime/files/package-files.ts';
import { httpAddress } from './runtime/http/ports.ts';
import type { Problem } from './runtime/conditions/problem.ts';
import { addressOf } from './runtime/http/request-head.ts';
import type { Stage } from './runtime/processes/role-process.ts';
import type { Role } from './service/service-options.ts';
import { openConnection, type StreamConnection } from './stream/connection.ts';
import { openGuard, type OpenGuard } from './stream/guard.ts';
import { openPublisher } from './stream/publisher.ts';
import { startPublishProbe } from './stream/publish-probe.ts';
import { startBrokerPing } from './stream/broker-ping.ts';
import { openReader } from './stream/reader.ts';
import type { StreamPublisher } from './stream/stream.ts';
import { createStoreCheck } from './stream/store-files.ts';
import { assertBroker } from './stream/topology.ts';

/**
 * The composition root of one process: opens the stores a role needs, starts its stage on them, and returns what stops
 * them in reverse. Read together with service.ts, which runs these processes, it is the architecture.
 *
 * A stage is loaded by the role that runs it, so that an ingest worker, say, carries no SQL engine.
 *
 *   ingest:  access -> [ingest] -> stream        compact: stream -> [compact] -> lake
 *   export:  access, lake -> [export] -> reports
 *
 * What serves a public port also answers there whether the service is ready.
 */

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

interface Parts extends Composition {
  readonly clock: Clock;
  readonly closers: Closers;
}

/** What a disk at its reserve means, where it is not the stream's. */
const diskProblems = {
  lake: {
    code: 'lake_disk_low',
    what: "the lake's disk has come down to its reserve",
    todo: 'Free some space: events are taken until the stream is full, and once the disk is full they wait there for the lake; nothing is lost.',
  },
  reports: {
    code: 'reports_disk_low',
    what: 'the disk of the reports has come down to its reserve',
    todo: 'Free some space: once it is full, exports wait for it, for as long as TRIBUTARY_EXPORT_TIMEOUT_MS says; import and the lake go on.',
  },
} as const satisfies Record<string, Problem>;

/** Finds what is wrong beside a stage's own problems. */
type FindProblems = () => readonly Problem[];

/** Adds what the composition watches to the problems that a stage reports. */
function withProblems(stage: Stage, watches: readonly FindProblems[]): Stage {
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
async function watchStoreDisk(
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

/**
 * Connects to the broker that the supervisor named, whose stream the supervisor has claimed, and watches that stream.
 */
async function openStream(
  { config, logger, closers }: Parts,
  name: string,
): Promise<{ connection: StreamConnection; guard: OpenGuard; findProblems: FindProblems }> {
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
 * A publisher whose acknowledgement also says that the folders are still the service's: a broker whose store was moved
 * or removed goes on acknowledging what no restart will find.
 */
function publishToOwnFolders(publisher: StreamPublisher, folders: FolderIds, natsFolder: string): StreamPublisher {
  const store = folders[natsFolder] === undefined ? undefined : createStoreCheck(natsFolder);
  return {
    ...publisher,
    async publish(payload, timeoutMs) {
      const ack = await publisher.publish(payload, timeoutMs);
      const isOurs = areSameFolders(folders) && (store === undefined || (await store.isKept().catch(() => false)));
      if (!isOurs)
        throw new AppError(
          'publish_unknown',
          'publish: the folders of the service, or files in them, were taken from under it',
        );
      return ack;
    },
  };
}

async function startIngestStage(parts: Parts): Promise<Stage> {
  const { startIngest } = await import('./ingest/ingest.ts');
  const { config, logger, metrics, clock, closers } = parts;
  const paths = dataPaths(config.dataDir);
  const access = openAccessReader(paths, logger, { isExpected: () => holdsEvents(paths.lake), withUsers: false });
  closers.add('access', () => access.close());
  // The supervisor has made the embedded broker's folder; the disk of an external broker is not ours to watch.
  const disk = (await exists(paths.nats))
    ? await startDiskWatch(paths.nats, config.diskReserveBytes, logger)
    : undefined;
  closers.add('disk watch', () => disk?.stop());
  const { connection, guard, findProblems } = await openStream(parts, 'ingest');
  const opened = openPublisher(connection, guard);
  const probe = startPublishProbe(connection, { streamName: config.streamName, claimFile: paths.claim }, opened);
  closers.add('publish probe', () => probe.stop());
  const publisher = publishToOwnFolders(opened, parts.folders ?? {}, paths.nats);
  const { addRoutes, onService } = await openHealth();
  const ingest = await startIngest(
    { access, publisher, clock, metrics, logger, isDiskLow: () => disk?.isLow() ?? false, addRoutes },
    { host: config.host, port: config.s2sPort },
  );
  return { ...withProblems(ingest, [findProblems, () => access.problems()]), onService };
}

async function startCompactStage(parts: Parts): Promise<Stage> {
  const { startCompact } = await import('./compact/compact.ts');
  const { config, logger, metrics, clock, closers } = parts;
  const paths = dataPaths(config.dataDir);
  const { connection, guard, findProblems } = await openStream(parts, 'compact');
  const reader = await openReader(connection, { streamName: config.streamName, guard });
  closers.add('stream reader', () => reader.close());
  const compact = await startCompact(
    { reader, clock, metrics, logger },
    {
      lakeDir: paths.lake,
      spoolDir: path.join(paths.spool, 'compact'),
      flushAgeMs: config.flushAgeMs,
      flushMaxBytes: config.flushMaxBytes,
      flushMaxRows: config.flushMaxRows,
      sealAgeMs: config.sealAgeMs,
      sealMaxBytes: config.sealMaxBytes,
      retentionMs: config.retentionMs,
      duckdbMemoryMb: config.duckdbMemoryMb,
    },
  );
  return withProblems(compact, [findProblems, await watchStoreDisk(parts, paths.lake, diskProblems.lake)]);
}

/** What a stage with a public port takes of the service's health: the routes, and what receives the supervisor's view. */
async function openHealth() {
  const { addHealthRoutes, createReadiness } = await import('./health/routes.ts');
  const readiness = createReadiness();
  return {
    addRoutes: (server: PublicServer): void => addHealthRoutes(server, () => readiness.isReady()),
    onService: (view: ServiceView): void => readiness.update(view),
  };
}

/** Where import is served, as a client of the export area would have to address it. */
function describeImportServer({ publicS2sUrl, host, s2sPort }: Config, exportUrl: string): OpenApiServer {
  const description = 'Import';
  if (publicS2sUrl !== undefined) return { url: publicS2sUrl, description };
  if (s2sPort === 0)
    return {
      url: 'http://{s2s}',
      description: 'Import: set TRIBUTARY_PUBLIC_S2S_URL to have its address here.',
      variables: { s2s: { default: 'localhost:8080', description: 'Host and port of the import area.' } },
    };
  // One that listens everywhere is found where the export area was.
  const [, askedHost = ''] = /^https?:\/\/\[?([^\]/]*?)\]?(?::\d*)?(?:\/|$)/.exec(exportUrl) ?? [];
  return {
    url: httpAddress(['0.0.0.0', '::'].includes(host) && askedHost !== '' ? askedHost : host, s2sPort),
    description,
  };
}

/**
 * The API reference: each area's part, made from what it validates with. `exportUrl` is the address that it is asked
 * for under.
 */
async function describeApi(config: Config): Promise<(exportUrl: string) => object> {
  const [{ assembleOpenApi }, { describeExportApi }, { describeHealth }, { describeImport }] = await Promise.all([
    import('./runtime/http/openapi.ts'),
    import('./export/api/openapi.ts'),
    import('./health/openapi.ts'),
    import('./ingest/openapi.ts'),
  ]);
  const { version } = readPackageJson('package.json') as { version: string };
  const parts = [describeImport(), describeExportApi(), describeHealth()];
  return (exportUrl) =>
    assembleOpenApi(
      version,
      { import: describeImportServer(config, exportUrl), export: { url: exportUrl, description: 'Export' } },
      parts,
    );
}

async function startExportStage(parts: Parts): Promise<Stage> {
  const { config, logger, metrics, clock, closers } = parts;
  const [{ startExport }, { lakePaths }] = await Promise.all([import('./export/export.ts'), import('./lake/lake.ts')]);
  const reference = await describeApi(config);
  const paths = dataPaths(config.dataDir);
  const access = openAccessReader(paths, logger, { isExpected: () => holdsEvents(paths.lake) });
  closers.add('access', () => access.close());
  const health = await openHealth();
  const stage = await startExport(
    {
      access,
      clock,
      metrics,
      logger,
      extraRoutes: [
        health.addRoutes,
        (server) =>
          void server.get('/openapi.json', (request) => reference(config.publicApiUrl ?? addressOf(request.raw))),
      ],
    },
    {
      ...config,
      port: config.apiPort,
      publicUrl: config.publicApiUrl,
      tableDir: lakePaths(paths.lake).table,
      reportsDir: paths.reports,
      keysDir: paths.keys,
    },
  );
  const watched = withProblems(stage, [
    await watchStoreDisk(parts, paths.reports, diskProblems.reports),
    () => access.problems(),
  ]);
  return { ...watched, onService: health.onService };
}

/** Answers for a role whose folders are not the service's own any more: nothing of them is read or written. */
async function startClosedStage(role: Role, { config, logger, closed = '' }: Parts): Promise<Stage> {
  assert(role !== 'compact', 'there is nobody whom a closed compactor could answer');
  const { addRoutes, onService } = await openHealth();
  const { host } = config;
  const stage =
    role === 'ingest'
      ? await (
          await import('./ingest/closed-server.ts')
        ).startClosedIngest({ host, port: config.s2sPort }, addRoutes, logger)
      : await (
          await import('./export/api/closed-server.ts')
        ).startClosedExport({ host, port: config.apiPort }, addRoutes, logger);
  const facts = (): { readonly problems: readonly Problem[] } => ({
    problems: [
      {
        code: 'role_closed',
        subject: role,
        what: `${role} refuses every request: ${closed}`,
        todo: 'Resolve that problem, which is listed too: the process is then started again by itself.',
      },
    ],
  });
  return { ...stage, facts, onService };
}

const starters = { ingest: startIngestStage, compact: startCompactStage, export: startExportStage } satisfies Record<
  Role,
  (parts: Parts) => Promise<Stage>
>;

/** Starts the stage of a role on its stores. A start that fails half-way closes what it had opened. */
export async function startStage(role: Role, composition: Composition): Promise<Stage> {
  return buildWithClosers(composition.logger, async (closers) => {
    const clock = createClock(composition.config.clockOffsetSeconds);
    const descriptors = createDescriptorWatch(role);
    const start = composition.closed === undefined ? starters[role] : (parts: Parts) => startClosedStage(role, parts);
    const stage = withProblems(await start({ ...composition, clock, closers }), [() => descriptors.problems()]);
    closers.add(role, () => stage.stop());
    return { ...stage, stop: () => closers.stop() };
  });
}
