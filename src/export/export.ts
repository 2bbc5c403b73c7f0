import { availableParallelism } from 'node:os';
import type { AccessReader } from '../access/access.ts';
import type { Sessions } from '../access/sessions.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { Config } from '../config.ts';
import { findAvailableVersions } from '../lake/log/change-feed.ts';
import { openDuckdb } from '../lake/sql/duckdb.ts';
import { openDestinations } from '../destinations/destination-store.ts';
import { renderManifest } from '../reports/manifest.ts';
import { addDownloadRoutes, addManifestRoutes, type Download } from '../reports/download-routes.ts';
import { openReports, type Reports } from '../reports/open-reports.ts';
import { isInProgress, type ReportJob } from '../reports/reports.ts';
import type { Clock } from '../runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { createEgressPolicy, type EgressPolicy } from '../runtime/http/egress-policy.ts';
import { portOf, toListenError } from '../runtime/http/ports.ts';
import { buildWithClosers, type Closers, type Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { Tracing } from '../runtime/tracing/tracing.ts';
import { findLeases } from '../runtime/store/open-store.ts';
import { listSegmentIds } from '../segments/segment-store.ts';
import { addAppRoutes, type AppView } from './api/account-routes.ts';
import { createCalendar } from './api/calendar.ts';
import { addCatalogueRoutes, addDataRoutes, addDryRunRoutes } from './api/data-routes.ts';
import { addExportRoutes, addListRoutes } from './api/export-routes.ts';
import { createExports } from './api/exports.ts';
import { createAddMethod } from './api/methods-routes.ts';
import { createRequestParser } from './api/parse-request.ts';
import { createApiServer, defaultApiServerLimits, type ApiServer, type ApiServerLimits } from './api/server.ts';
import { createQuotas } from './api/quotas.ts';
import { createExportViews, createLinkHolders } from './api/views.ts';
import { createExportMetrics, describeDamage, registerRequestGauges } from './export-health.ts';
import { createInteractiveJobs } from './jobs/interactive-jobs.ts';
import { tableDirOf } from './jobs/read-plan.ts';
import { startJobRunner, type JobRunnerOptions } from './jobs/scheduler.ts';
import {
  queryInWorker,
  dryRunInWorker,
  runInWorker,
  type RunAttempt,
  type RunDryRun,
  type RunDataQuery,
} from './jobs/worker-process.ts';
import { createAccountWebhooks } from './notify/account-webhooks.ts';
import { addDestinationRoutes } from './api/destination-routes.ts';
import { addWebhookRoutes } from './api/webhook-routes.ts';
import { addOperationsMethods, type OperationsDependencies } from './admin-api/operations.ts';
import { addScheduleRoutes, createAccountSchedules } from './schedules/account-schedules.ts';
import { createSlotClock } from './schedules/slot-clock.ts';
import { startTasks } from './tasks.ts';

/**
 * The export stage: lake -> report files.
 *
 * In: calls of the export area (docs/api.md#export) and snapshots of the lake. Out: export requests and their files in
 * the report store, envelopes, downloads by signed link. Each request runs in a worker process, which alone queries the
 * data; this process parses, authorizes, schedules and responds.
 * Invariant: a create with status 200 is durable and ends in exactly one result, or in its documented error.
 * Crash: workers die with this process; requests in progress restart with it, a bounded number of times.
 */

export interface ExportDependencies {
  readonly access: AccessReader;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly logger: Logger;
  readonly runAttempt?: RunAttempt;
  readonly runDryRun?: RunDryRun;
  readonly runDataQuery?: RunDataQuery;
  readonly crashPoint?: CrashPoint;
  /** Absent without a collector of traces. */
  readonly tracing?: Tracing | undefined;
  /** Routes of composition on the api port: health, metrics, API reference, console. */
  readonly extraRoutes?: readonly ((server: ApiServer) => void)[];
  /** The sessions of the console; absent without a console. */
  readonly sessions?: Sessions;
  readonly appView?: AppView;
  readonly operations?: OperationsDependencies;
  /** Absent if nothing is audited. */
  readonly audit?: AuditLog;
}

export const exportSettings = [
  'host',
  'downloads',
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
  'deliveryAllow',
] as const satisfies readonly (keyof Config)[];

export interface ExportOptions extends Pick<Config, (typeof exportSettings)[number]> {
  /** 0: any free port. */
  readonly port: number;
  /** Public address without a trailing slash; undefined: the address of each request. */
  readonly publicUrl: string | undefined;
  readonly lakeDir: string;
  readonly reportsDir: string;
  readonly keysDir: string;
  readonly segmentsDir: string;
  readonly titlesDir: string;
  readonly webhooksDir: string;
  readonly schedulesDir: string;
  readonly destinationsDir: string;
  readonly limits?: Partial<ApiServerLimits>;
  readonly schedulesEveryMs?: number;
  /** Time to wait for another process that has the reports, ms; shorter in tests. */
  readonly lockWaitMs?: number;
}

export interface ExportStage extends Stoppable {
  readonly port: number;
  /** Values of `tributary status`. */
  facts(): Readonly<Record<string, unknown>>;
}

/** The engine of this process computes days only. */
const zoneEngineMemoryMb = 64;

async function listen(server: ApiServer, host: string, port: number): Promise<number> {
  try {
    await server.listen({ host, port });
  } catch (error) {
    throw toListenError(error, host, port, 'Set another port by TRIBUTARY_API_PORT or --api-port.');
  }
  return portOf(server.server);
}

function getOutgoingRules({ webhooksAllow }: ExportOptions): EgressPolicy {
  const rules = createEgressPolicy(webhooksAllow);
  if (typeof rules !== 'string') return rules;
  throw new AppError('config_invalid', `TRIBUTARY_WEBHOOKS_ALLOW: '${rules}' is not a network or a host name`, {
    hint: 'Set networks such as 10.1.0.0/16 and names such as hooks.example.com.',
  });
}

function getDeliveryRules({ deliveryAllow }: ExportOptions): EgressPolicy {
  const rules = createEgressPolicy(deliveryAllow, { isClosed: true });
  if (typeof rules !== 'string') return rules;
  throw new AppError('config_invalid', `TRIBUTARY_DELIVERY_ALLOW: '${rules}' is not a network or a host name`, {
    hint: 'Set names such as s3.example.com and networks such as 10.1.0.0/16.',
  });
}

function toRunnerOptions(options: ExportOptions): JobRunnerOptions {
  const { lakeDir, segmentsDir, titlesDir, retentionMs } = options;
  const limits = {
    maxRows: options.exportMaxRows,
    maxBytes: options.exportMaxBytes,
    singleFileMaxBytes: options.singleFileMaxBytes,
    partMaxBytes: options.partMaxBytes,
    memoryMb: options.duckdbMemoryMb,
    threads: availableParallelism(),
  };
  const folders = { lakeDir, segmentsDir, titlesDir };
  return { workers: options.exportWorkers, timeoutMs: options.exportTimeoutMs, ...folders, retentionMs, limits };
}

/** Returns what delivers exports, and what users change. */
function toDestinations(
  { clock, logger }: ExportDependencies,
  options: ExportOptions,
  manifestKey: Reports['manifestKey'],
) {
  return {
    paths: { destinations: options.destinationsDir, keys: options.keysDir },
    rules: getDeliveryRules(options),
    clock,
    logger,
    renderManifest(job: ReportJob): string | undefined {
      const key = manifestKey.current();
      return key && renderManifest(job, key);
    },
  };
}

/** Starts everything except the HTTP server. */
async function startWork(
  dependencies: ExportDependencies,
  options: ExportOptions,
  { store, manifestKey }: Reports,
  closers: Closers,
) {
  const { access, clock, logger, tracing, audit, crashPoint = noCrashPoint } = dependencies;
  const { runAttempt = runInWorker, runDryRun = dryRunInWorker, runDataQuery = queryInWorker } = dependencies;
  const { lakeDir, segmentsDir, schedulesDir, schedulesEveryMs, webhooksDir, keysDir, reportsDir } = options;
  const leases = findLeases(reportsDir);
  const engine = await openDuckdb({ memoryMb: zoneEngineMemoryMb, threads: 1 });
  closers.add('zone engine', () => engine.close());
  const metrics = createExportMetrics(dependencies.metrics);
  const webhooks = {
    paths: { webhooks: webhooksDir, keys: keysDir },
    rules: getOutgoingRules(options),
    clock,
    logger,
  };

  const destinations = toDestinations(dependencies, options, manifestKey);
  const damages = new Set<string>();
  const onDamage = (error: string): void => void damages.add(error);
  function onEnd(job: ReportJob, seconds: number): void {
    metrics.ended(job, seconds);
    tasks.onEnd(job.id);
  }
  const runnerOptions = toRunnerOptions(options);
  const ofRunner = { store, access, clock, logger, leases, runAttempt, onEnd, onDamage, tracing };
  const runner = startJobRunner(ofRunner, runnerOptions);
  closers.add('export workers', () => runner.stop());
  registerRequestGauges(
    dependencies.metrics,
    () => runner.waiting(),
    () => runner.running(),
  );
  const loading = new AbortController();
  const loaded = store.load(loading.signal, () => runner.wake());
  closers.add('earlier requests', async () => {
    loading.abort();
    await loaded;
  });

  const calendar = createCalendar(engine);
  const parseRequest = createRequestParser({
    calendar,
    listSegmentIds: (idAccount) => listSegmentIds(segmentsDir, idAccount),
    findVersions: (event) => findAvailableVersions(tableDirOf(lakeDir, { event })),
    hasDestination: async (idAccount, id) =>
      (await openDestinations(destinations.paths).find(idAccount, id)) !== undefined,
    appsOfAccount: (idAccount) => access.current().appsOfAccount(idAccount),
  });
  const exports = createExports({ store, runner, clock, parseRequest, loaded }, options);
  const ofSchedules = { access, clock, parseRequest, slotClock: createSlotClock(calendar), schedules: schedulesDir };
  const pace = schedulesEveryMs === undefined ? {} : { everyMs: schedulesEveryMs };
  const ofSlots = { ...ofSchedules, ...pace, logger, store, exports, loaded, crashPoint, lakeDir };
  const tasks = startTasks({ ...ofSlots, webhooks, destinations, leases, audit });
  closers.add('tasks', () => tasks.stop());
  const following = store.follow((id, job) => {
    runner.onChange(id, job);
    if (job !== undefined && !isInProgress(job)) tasks.onEnd(id);
  });
  closers.add('requests of other hosts', () => following.stop());
  const schedules = createAccountSchedules({ ...ofSchedules, onAsked: () => tasks.onAsked() });
  const interactiveJobs = createInteractiveJobs({ access, clock, runDryRun, runDataQuery, onDamage }, runnerOptions);
  return { exports, runner, tasks, schedules, looks: interactiveJobs, damages, webhooks, destinations, metrics };
}

type Work = Awaited<ReturnType<typeof startWork>>;

function addRoutes(
  server: ApiServer,
  { access, clock, logger, sessions, extraRoutes = [], appView, operations, tracing, audit }: ExportDependencies,
  options: ExportOptions,
  reports: Reports,
  { exports, looks: interactiveJobs, schedules, webhooks, destinations, metrics }: Work,
): void {
  const { publicUrl } = options;
  const exportViews = createExportViews(
    reports.keys,
    (job) => exports.progress(job),
    (id) => reports.store.readDelivery(id),
  );
  const quotas = createQuotas(options);
  const hasClientAddresses = options.quotaIp.length > 0;
  const ofMethods = { access, quotas, sessions, audit, onAnswer: metrics.answered };
  const addMethod = createAddMethod(server, ofMethods, { publicUrl, hasClientAddresses });
  addExportRoutes(server, { exports, exportViews, quotas, tracing }, addMethod);
  addListRoutes(addMethod, { exports, exportViews, access });
  addDryRunRoutes(addMethod, { exports, interactiveJobs, access });
  const { lakeDir, schedulesDir } = options;
  const findJob = (id: number) => reports.store.find(id);
  const ofWebhooks = { ...webhooks, lakeDir, schedules: schedulesDir, access, findJob };
  addWebhookRoutes(addMethod, { ...ofWebhooks, webhooks: createAccountWebhooks(ofWebhooks) });
  addDestinationRoutes(addMethod, destinations);
  addScheduleRoutes(addMethod, schedules);
  if (appView !== undefined) addAppRoutes(addMethod, access, appView);
  addDataRoutes(addMethod, { access, interactiveJobs, clock });
  if (operations !== undefined) addOperationsMethods(addMethod, operations, { clock, logger });
  addCatalogueRoutes(addMethod, { access, interactiveJobs, clock });
  const presign = options.downloads === 'redirect' ? reports.store.objects.presign : undefined;
  const onDownload = async ({ idUser, idReport, file, address }: Download): Promise<void> =>
    audit?.record('download', 'ok', {
      idUser,
      name: access.current().findUser(idUser)?.name,
      address: hasClientAddresses ? address : undefined,
      subject: `export ${idReport}`,
      detail: file,
    });
  addDownloadRoutes(server, { ...reports, holders: createLinkHolders(access), clock, logger, presign, onDownload });
  addManifestRoutes(server, reports.manifestKey);
  for (const add of extraRoutes) add(server);
}

async function buildExport(
  dependencies: ExportDependencies,
  options: ExportOptions,
  closers: Closers,
): Promise<ExportStage> {
  const { access, logger, appView } = dependencies;
  const reports = await openReports(dependencies, options, closers);
  const { store, files } = reports;
  const work = await startWork(dependencies, options, reports, closers);
  const { looks, runner, tasks, damages } = work;
  const server = createApiServer({ ...defaultApiServerLimits, ...options.limits }, logger);
  addRoutes(server, dependencies, options, reports, work);
  // The server waits for its responses.
  closers.add('api server', () => looks.stop().then(() => server.close()));
  // Live responses end before the server closes: they would keep it open.
  const unfollow = access.onChange(() => appView?.hub?.check());
  closers.add('live', () => {
    unfollow();
    appView?.hub?.close();
  });
  const port = await listen(server, options.host, options.port);
  logger.info({ host: options.host, port }, 'export listening');
  return {
    port,
    stop: () => closers.stop(),
    facts: () => ({
      exportsRunning: runner.running(),
      exportsInProgress: store.inProgress().length,
      reports: store.count(),
      problems: reports.problems(),
      warnings: [
        ...describeDamage(
          damages,
          store.damaged(),
          files.faults().filter(({ idReport }) => store.lastRead(idReport) !== undefined),
        ),
        ...tasks.notices(),
        ...reports.lostKeys(),
      ],
    }),
  };
}

/**
 * Starts the stage, which listens when this returns. Errors: `locked` if another process has the folder of the reports,
 * `start_failed`, `file_damaged`.
 */
export function startExport(dependencies: ExportDependencies, options: ExportOptions): Promise<ExportStage> {
  return buildWithClosers(dependencies.logger, (closers) => buildExport(dependencies, options, closers));
}
