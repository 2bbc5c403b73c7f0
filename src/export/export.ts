import { availableParallelism } from 'node:os';
import type { AccessReader } from '../access/access.ts';
import type { Sessions } from '../access/sessions.ts';
import type { Config } from '../config.ts';
import { findKeptVersions } from '../lake/log/change-feed.ts';
import { openDuckdb, type Duckdb } from '../lake/sql/duckdb.ts';
import { listSegmentIds } from '../segments/segment-store.ts';
import { addCatalogueRoutes, addDataRoutes } from './api/data-routes.ts';
import { addOperations, type Operations } from './operations/operations.ts';
import { addDownloadRoutes, addManifestRoutes } from '../reports/download-routes.ts';
import { openReports, type Reports } from '../reports/open-reports.ts';
import type { ReportStore } from '../reports/store.ts';
import { startSweeper } from '../reports/sweeper.ts';
import type { Clock } from '../runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { toListenError } from '../runtime/http/ports.ts';
import { buildWithClosers, type Closers, type Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { createExportMetrics, describeDamage, followRequests } from './export-health.ts';
import { createAnswers, createLinkHolders } from './api/views.ts';
import { createExports, type Exports } from './api/exports.ts';
import { createRequestRules } from './api/request-rules.ts';
import { createAddMethod } from './api/methods-routes.ts';
import { addWebhookRoutes } from './api/webhook-routes.ts';
import { addScheduleRoutes } from './schedules/schedule-routes.ts';
import type { AccountSchedules } from './schedules/account-schedules.ts';
import { startSchedules, type Schedules } from './schedules/start-schedules.ts';
import type { LastTries } from '../webhooks/last-tries.ts';
import { outgoingRules, startNotifiers, webhookPaths } from './notify/start-notifiers.ts';
import { addAppRoutes, type AppView } from './api/app-routes.ts';
import { addExportRoutes, addListRoutes } from './api/export-routes.ts';
import { addLookRoutes } from './api/look-routes.ts';
import { startJobRunner, type JobRunner, type JobRunnerOptions } from './jobs/scheduler.ts';
import { tableDirOf } from './jobs/table-of.ts';
import { createLooks, type Looks } from './jobs/looks.ts';
import {
  answerInWorker,
  lookInWorker,
  runInWorker,
  type RunAttempt,
  type RunLook,
  type RunQuestion,
} from './jobs/worker-process.ts';
import { createApiServer, defaultApiServerLimits, type ApiServer, type ApiServerLimits } from './api/server.ts';
import { createThrottle } from './api/throttle.ts';
import { createZoneDays } from './api/calendar.ts';

/**
 * The export stage: lake -> report files.
 *
 * In: calls of the export area (service.md 4.3, 4.4), from API users; snapshots of the lake.
 * Out: export requests and their files in the report store, answered as envelopes; downloads by signed link.
 * Each request runs in a worker process of its own, which alone holds a query engine on the data; this process parses,
 * authorizes, schedules and answers.
 * Invariant: a create answered 200 is durable and ends in exactly one result, or in its documented error.
 * Crash: workers die with this process; requests in progress begin anew when it is back, a bounded number of times.
 */

export interface ExportDependencies {
  readonly access: AccessReader;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly logger: Logger;
  /** How an attempt runs: in a process of its own, unless a test's time is not for that. */
  readonly runAttempt?: RunAttempt;
  /** A place where a test may kill the process. */
  readonly crashPoint?: CrashPoint;
  /** How a look at an export runs, likewise. */
  readonly runLook?: RunLook;
  /** How a question after data runs, likewise. */
  readonly runQuestion?: RunQuestion;
  /** Adds routes of the composition's own to the api port: health, metrics, API reference, console. */
  readonly extraRoutes?: readonly ((server: ApiServer) => void)[];
  /** Who is signed in to the console; absent: nobody can be. */
  readonly sessions?: Sessions;
  /** What users see of what comes in for their apps; absent: nothing. */
  readonly appView?: AppView;
  /** What operators see and change; absent: nothing. */
  readonly operations?: Operations;
}

/** The service's settings that this stage gets, as config.ts describes them. */
export const exportSettings = [
  'host',
  'linkTtlSeconds',
  'maxExports',
  'exportWorkers',
  'exportMaxRows',
  'retentionMs',
  'exportMaxBytes',
  'exportTimeoutMs',
  'singleFileMaxBytes',
  'partMaxBytes',
  'duckdbMemoryMb',
  'quotaUser',
  'quotaIp',
  'webhooksAllow',
] as const satisfies readonly (keyof Config)[];

export interface ExportOptions extends Pick<Config, (typeof exportSettings)[number]> {
  /** 0: any free port. */
  readonly port: number;
  /** The address clients see, without a trailing slash; undefined: the one they used. */
  readonly publicUrl: string | undefined;
  readonly lakeDir: string;
  readonly reportsDir: string;
  readonly keysDir: string;
  readonly segmentsDir: string;
  readonly titlesDir: string;
  readonly webhooksDir: string;
  readonly schedulesDir: string;
  readonly limits?: Partial<ApiServerLimits>;
  /** How soon a schedule's slot is made after its time, at most, milliseconds. */
  readonly schedulesEveryMs?: number;
}

/** The running stage. */
export interface ExportStage extends Stoppable {
  readonly port: number;
  /** What `tributary status` shows, with `notices` on damage. */
  facts(): Readonly<Record<string, unknown>>;
}

/** The engine of this process only reckons with days. */
const zoneEngineMemoryMb = 64;

async function listen(server: ApiServer, host: string, port: number): Promise<number> {
  try {
    await server.listen({ host, port });
  } catch (error) {
    throw toListenError(error, host, port, 'Choose another port by TRIBUTARY_API_PORT or --api-port.');
  }
  const address = server.server.address();
  if (address === null || typeof address === 'string')
    throw new AppError('start_failed', `cannot determine the port of ${host}`);
  return address.port;
}

function toRunnerOptions(options: ExportOptions): JobRunnerOptions {
  return {
    workers: options.exportWorkers,
    timeoutMs: options.exportTimeoutMs,
    lakeDir: options.lakeDir,
    segmentsDir: options.segmentsDir,
    titlesDir: options.titlesDir,
    retentionMs: options.retentionMs,
    limits: {
      maxRows: options.exportMaxRows,
      maxBytes: options.exportMaxBytes,
      singleFileMaxBytes: options.singleFileMaxBytes,
      partMaxBytes: options.partMaxBytes,
      memoryMb: options.duckdbMemoryMb,
      threads: availableParallelism(),
    },
  };
}

/**
 * Starts the stage: it listens when this returns. Errors: `locked` when another process owns the reports,
 * `start_failed`, `file_damaged`.
 */
export function startExport(dependencies: ExportDependencies, options: ExportOptions): Promise<ExportStage> {
  return buildWithClosers(dependencies.logger, (closers) => buildExport(dependencies, options, closers));
}

/** What the routes of the area share with the rest of the stage. */
interface RouteParts {
  readonly reports: Reports;
  readonly exports: Exports;
  readonly schedules: AccountSchedules;
  readonly looks: Looks;
  /** Of webhooks. */
  readonly tries: LastTries;
  readonly onAnswer: (method: string, status: number) => void;
}

function addRoutes(
  server: ApiServer,
  { access, clock, logger, sessions, extraRoutes = [], appView, operations }: ExportDependencies,
  options: ExportOptions,
  { reports, exports, schedules, looks, tries, onAnswer }: RouteParts,
): void {
  const answers = createAnswers(reports.keys, (job) => exports.progress(job));
  const throttle = createThrottle(options);
  const addMethod = createAddMethod(server, { access, throttle, sessions, onAnswer }, { publicUrl: options.publicUrl });
  addExportRoutes(server, { exports, answers, throttle }, addMethod);
  addListRoutes(addMethod, { exports, answers });
  addLookRoutes(addMethod, { exports, looks, access });
  addWebhookRoutes(addMethod, { paths: webhookPaths(options), rules: outgoingRules(options), clock, tries });
  addScheduleRoutes(addMethod, schedules);
  if (appView !== undefined) addAppRoutes(addMethod, access, appView);
  addDataRoutes(addMethod, { access, looks, clock });
  if (operations !== undefined) addOperations(addMethod, operations, { clock, logger });
  addCatalogueRoutes(addMethod, { access, looks, clock });
  addDownloadRoutes(server, { ...reports, holders: createLinkHolders(access), clock, logger });
  addManifestRoutes(server, reports.manifestKey);
  for (const add of extraRoutes) add(server);
}

/** What orders are made of. */
interface OrderParts {
  readonly store: ReportStore;
  readonly runner: JobRunner;
  /** Reckons with days. */
  readonly engine: Duckdb;
  /** Settles when the requests of earlier processes have been read. */
  readonly loaded: Promise<void>;
}

/** Starts what users order, at once or by schedules; requests go when nobody needs them any more. */
function startOrders(
  { access, clock, logger, metrics, crashPoint = noCrashPoint }: ExportDependencies,
  { maxExports, lakeDir, segmentsDir, schedulesDir, schedulesEveryMs }: ExportOptions,
  { store, runner, engine, loaded }: OrderParts,
  closers: Closers,
): { readonly exports: Exports; readonly schedules: Schedules } {
  const inProgress = (): number => store.inProgress().length;
  followRequests(metrics, inProgress, () => runner.running());
  const zoneDays = createZoneDays(engine);
  const parseRequest = createRequestRules({
    zoneDays,
    listSegmentIds: (idAccount) => listSegmentIds(segmentsDir, idAccount),
    findVersions: (event) => findKeptVersions(tableDirOf(lakeDir, { event })),
    appsOfAccount: (idAccount) => access.current().appsOfAccount(idAccount),
  });
  const exports = createExports({ store, runner, clock, parseRequest, loaded }, { maxExports });
  const shared = { access, clock, logger, store, exports, parseRequest, zoneDays, loaded, crashPoint, lakeDir };
  const pace = schedulesEveryMs === undefined ? {} : { everyMs: schedulesEveryMs };
  const schedules = startSchedules({ ...shared, ...pace, schedules: schedulesDir });
  closers.add('schedules', () => schedules.runner.stop());
  const sweeper = startSweeper(store, clock, logger, (job) => schedules.runner.isHeld(job));
  closers.add('sweeper', () => sweeper.stop());
  return { exports, schedules };
}

/** Has who listens live asked again for their rights whenever access changes; gives what ends them all. */
function followLive({ access, appView }: ExportDependencies): () => void {
  const forget = access.onChange(() => appView?.hub?.check());
  return () => {
    forget();
    appView?.hub?.close();
  };
}

function looksOf(
  { access, clock, runLook = lookInWorker, runQuestion = answerInWorker }: ExportDependencies,
  options: ExportOptions,
  onDamage: (error: string) => void,
): Looks {
  return createLooks({ access, clock, runLook, runQuestion, onDamage }, toRunnerOptions(options));
}

async function buildExport(
  dependencies: ExportDependencies,
  options: ExportOptions,
  closers: Closers,
): Promise<ExportStage> {
  const { access, clock, logger } = dependencies;
  const reports = await openReports(dependencies, options, closers);
  const { store, files } = reports;
  const engine = await openDuckdb({ memoryMb: zoneEngineMemoryMb, threads: 1 });
  closers.add('zone engine', () => engine.close());

  const metrics = createExportMetrics(dependencies.metrics);
  const { notifier, tries } = startNotifiers({ ...dependencies, store }, options, closers);
  const damages = new Set<string>();
  const onDamage = (error: string): void => void damages.add(error);
  const runner = startJobRunner(
    {
      store,
      access,
      clock,
      logger,
      runAttempt: dependencies.runAttempt ?? runInWorker,
      onEnd(job, seconds) {
        metrics.ended(job, seconds);
        notifier.look(job.id);
        schedules.runner.onEnd();
      },
      onDamage,
    },
    toRunnerOptions(options),
  );
  closers.add('export workers', () => runner.stop());
  const loading = new AbortController();
  const loaded = store.load(loading.signal, () => runner.wake()).then(() => notifier.lookAtAll());
  closers.add('earlier requests', async () => {
    loading.abort();
    await loaded;
  });

  const server = createApiServer({ ...defaultApiServerLimits, ...options.limits }, logger);
  const { exports, schedules } = startOrders(dependencies, options, { store, runner, engine, loaded }, closers);
  const looks = looksOf(dependencies, options, onDamage);
  const parts = { reports, exports, looks, tries, schedules: schedules.ofAccounts, onAnswer: metrics.answered };
  addRoutes(server, dependencies, options, parts);
  // The server waits for its answers.
  closers.add('api server', () => looks.stop().then(() => server.close()));
  // Ended before the server: an answer that goes on until its client goes would keep it.
  closers.add('live', followLive(dependencies));
  const port = await listen(server, options.host, options.port);
  logger.info({ host: options.host, port }, 'export is listening');

  const listNotices = () => [
    ...describeDamage(
      damages,
      store.damaged(),
      files.faults().filter(({ idReport }) => store.knows(idReport)),
    ),
    ...schedules.runner.notices(),
    ...notifier.notices(),
    ...reports.lostKeys(),
  ];
  return {
    port,
    stop: () => closers.stop(),
    facts: () => ({
      exportsRunning: runner.running(),
      exportsInProgress: store.inProgress().length,
      reports: store.count(),
      problems: reports.problems(),
      notices: listNotices(),
    }),
  };
}
