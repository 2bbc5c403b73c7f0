import type { KeyObject } from 'node:crypto';
import { availableParallelism } from 'node:os';
import type { AccessReader } from '../access/access.ts';
import type { Config } from '../config.ts';
import { readCatalogue } from '../lake/catalogue/read-catalogue.ts';
import { findKeptVersions } from '../lake/log/kept-versions.ts';
import { openDuckdb } from '../lake/sql/duckdb.ts';
import { listSegmentIds } from '../segments/segment-store.ts';
import { addDownloadRoutes } from '../reports/download-routes.ts';
import { openManifestKey } from '../reports/manifest-key.ts';
import { addManifestRoutes } from '../reports/manifest-routes.ts';
import { openSigningKeys, signingKeysPath, type SigningKeys } from '../reports/signing-keys.ts';
import { isExpired, type ReportJob } from '../reports/reports.ts';
import { openReportStore, type ReportStore } from '../reports/store.ts';
import { startSweeper } from '../reports/sweeper.ts';
import { createVerifiedFiles, type FileFault, type VerifiedFiles } from '../reports/verified-files.ts';
import type { Clock } from '../runtime/clock.ts';
import { findTextFile } from '../runtime/files/durable-file.ts';
import { AppError } from '../runtime/errors.ts';
import { toListenError } from '../runtime/http/ports.ts';
import { buildWithClosers, type Closers, type Stoppable } from '../runtime/lifecycle.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { addCatalogueRoutes } from './api/catalogue-routes.ts';
import { createAnswers } from './api/views.ts';
import { createExports, type Exports } from './api/exports.ts';
import { createAddMethod } from './api/methods-routes.ts';
import { addWebhookRoutes } from './api/webhook-routes.ts';
import { startNotifier, type Notifier } from './notify/notifier.ts';
import type { WebhookPaths } from '../webhooks/webhook-store.ts';
import { createOutgoingRules, type OutgoingRules } from '../runtime/http/outgoing-rules.ts';
import { addExportRoutes } from './api/export-routes.ts';
import { createLinkHolders } from './api/link-holders.ts';
import { startJobRunner, type JobRunnerOptions } from './jobs/scheduler.ts';
import { tableDirOf } from './jobs/table-of.ts';
import { runInWorker, type RunAttempt } from './jobs/worker-process.ts';
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
  /** Adds routes of the composition's own to the api port: health, metrics, API reference, console. */
  readonly extraRoutes?: readonly ((server: ApiServer) => void)[];
}

/** The service's settings that this stage obeys, as config.ts describes them. */
type ExportSettings = Pick<
  Config,
  | 'host'
  | 'linkTtlSeconds'
  | 'maxExports'
  | 'exportWorkers'
  | 'exportMaxRows'
  | 'retentionMs'
  | 'exportMaxBytes'
  | 'exportTimeoutMs'
  | 'singleFileMaxBytes'
  | 'partMaxBytes'
  | 'duckdbMemoryMb'
  | 'quotaUser'
  | 'quotaIp'
  | 'webhooksAllow'
>;

export interface ExportOptions extends ExportSettings {
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
  readonly limits?: Partial<ApiServerLimits>;
}

/** The running stage. */
export interface ExportStage extends Stoppable {
  readonly port: number;
  /** What `tributary status` shows, with `notices` on damage. */
  facts(): Readonly<Record<string, unknown>>;
}

const lockWaitMs = 10_000;
/** The engine of this process only reckons with days. */
const zoneEngineMemoryMb = 64;
const secondsBuckets = [0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];

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

/** Damaged files that are named one by one. */
const newestDamages = 10;

/** What an operator should look at: damage that an export has met, and requests that cannot be read. */
function describeDamage(
  damages: ReadonlySet<string>,
  requests: readonly string[],
  files: readonly FileFault[],
): Problem[] {
  return [
    ...[...damages].slice(-newestDamages).map((damage) => ({
      code: 'export_met_damage' as const,
      subject: damage,
      what: `an export failed on damage: ${damage}`,
      todo: "Run 'tributary lake check', and restore what it names from a backup.",
    })),
    ...files.slice(-newestDamages).map(({ idReport, detail }) => ({
      code: 'report_file_damaged' as const,
      subject: `${idReport} ${detail}`,
      what: `a report file of export request ${idReport} cannot be downloaded: ${detail}`,
      todo: 'Restore it from a backup, or have its user create the export again.',
    })),
    ...requests.slice(0, newestDamages).map((damage) => ({
      code: 'export_request_unreadable' as const,
      subject: damage,
      what: `an export request cannot be read and is not served: ${damage}`,
      todo: 'Do what it says, then start the service again: requests are read when it starts. All others are served meanwhile.',
    })),
  ];
}

/** The notice when the keys were made anew, and a request that had links is found only later, among the older ones. */
function describeLostKeys(store: ReportStore, keysDir: string, startedMs: number, clock: Clock): Problem[] {
  const hasLinks = store
    .list()
    .some((job) => job.state === 'success' && (job.finishedMs ?? 0) < startedMs && !isExpired(job, clock.nowMs()));
  if (!hasLinks) return [];
  return [
    {
      code: 'link_keys_renewed',
      what: `${signingKeysPath(keysDir)} was gone at the start and was made anew: links given out before are refused`,
      todo: 'Restore that file from a backup; or let the users ask for the state of their exports again, which gives new links.',
    },
  ];
}

/** The report files, owned by this process until the stage stops. */
interface OpenReports {
  readonly store: ReportStore;
  readonly keys: SigningKeys;
  /** Signs manifests. */
  readonly manifestKey: KeyObject;
  /** The link keys were there before this start. */
  readonly hadKeys: boolean;
}

async function openReports(
  { clock, logger }: ExportDependencies,
  { reportsDir, keysDir, linkTtlSeconds }: ExportOptions,
  closers: Closers,
): Promise<OpenReports> {
  const lock = await waitForLock(reportsDir, 'the export role', lockWaitMs);
  closers.add('reports lock', () => lock.release());
  const store = await openReportStore(clock, logger, { reportsDir, linkTtlSeconds });
  const hadKeys = (await findTextFile(signingKeysPath(keysDir))) !== undefined;
  const hasLinks = store.list().some((job) => job.state === 'success');
  const keys = await openSigningKeys(keysDir, clock, logger, hasLinks);
  closers.add('link keys', () => keys.close());
  const sweeper = startSweeper(store, clock, logger);
  closers.add('sweeper', () => sweeper.stop());
  return { store, keys, hadKeys, manifestKey: await openManifestKey(keysDir) };
}

/** What the stage counts. */
interface ExportMetrics {
  ended(job: ReportJob, seconds: number): void;
  answered(method: string, status: number): void;
}

function createExportMetrics(metrics: Metrics): ExportMetrics {
  const ended = metrics.counter('export_requests_total', 'Export requests that ended, by their state.', ['state']);
  const seconds = metrics.histogram(
    'export_request_seconds',
    'Time from the creation of an export request to its end.',
    secondsBuckets,
  );
  const answered = metrics.counter('export_answers_total', 'Answers of the export area, by method and HTTP status.', [
    'method',
    'status',
  ]);
  return {
    ended(job, took) {
      ended.inc({ state: job.state });
      seconds.observe(took);
    },
    answered: (method, status) => answered.inc({ method, status: String(status) }),
  };
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

function webhookPaths({ webhooksDir, keysDir }: ExportOptions): WebhookPaths {
  return { webhooks: webhooksDir, keys: keysDir };
}

function outgoingRules({ webhooksAllow }: ExportOptions): OutgoingRules {
  const rules = createOutgoingRules(webhooksAllow);
  if (typeof rules !== 'string') return rules;
  throw new AppError('config_invalid', `TRIBUTARY_WEBHOOKS_ALLOW holds '${rules}', which is no network and no name`, {
    hint: 'Name networks such as 10.1.0.0/16 and names such as hooks.example.com.',
  });
}

/** Starts to tell webhooks, until the stage stops. */
function startExportNotifier(
  { clock, logger }: ExportDependencies,
  options: ExportOptions,
  store: ReportStore,
  closers: Closers,
): Notifier {
  const paths = webhookPaths(options);
  const notifier = startNotifier({ store, paths, rules: outgoingRules(options), clock, logger });
  closers.add('webhooks', () => notifier.stop());
  return notifier;
}

/** What the routes of the area share with the rest of the stage. */
interface RouteParts {
  readonly store: ReportStore;
  readonly keys: SigningKeys;
  readonly manifestKey: KeyObject;
  readonly files: VerifiedFiles;
  readonly exports: Exports;
  readonly onAnswer: (method: string, status: number) => void;
}

function addRoutes(
  server: ApiServer,
  { access, clock, logger, extraRoutes = [] }: ExportDependencies,
  options: ExportOptions,
  { store, keys, manifestKey, files, exports, onAnswer }: RouteParts,
): void {
  const answers = createAnswers(keys, (job) => exports.progress(job));
  const throttle = createThrottle(options);
  const addMethod = createAddMethod(server, { access, throttle, onAnswer }, { publicUrl: options.publicUrl });
  addExportRoutes(server, { exports, answers, throttle }, addMethod);
  addWebhookRoutes(addMethod, { paths: webhookPaths(options), rules: outgoingRules(options), clock });
  addCatalogueRoutes(addMethod, {
    access,
    read: (idApp, event) => readCatalogue(options.lakeDir, idApp, event),
  });
  addDownloadRoutes(server, { store, keys, holders: createLinkHolders(access), clock, logger, files, manifestKey });
  addManifestRoutes(server, manifestKey);
  for (const add of extraRoutes) add(server);
}

async function buildExport(
  dependencies: ExportDependencies,
  options: ExportOptions,
  closers: Closers,
): Promise<ExportStage> {
  const { access, clock, logger } = dependencies;
  const startedMs = clock.nowMs();
  const { store, keys, hadKeys, manifestKey } = await openReports(dependencies, options, closers);
  const engine = await openDuckdb({ memoryMb: zoneEngineMemoryMb, threads: 1 });
  closers.add('zone engine', () => engine.close());

  const metrics = createExportMetrics(dependencies.metrics);
  const notifier = startExportNotifier(dependencies, options, store, closers);
  const damages = new Set<string>();
  const files = createVerifiedFiles(logger);
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
  const zoneDays = createZoneDays(engine);
  const listSegments = (idAccount: number) => listSegmentIds(options.segmentsDir, idAccount);
  const findVersions = (event: string) => findKeptVersions(tableDirOf(options.lakeDir, { event }));
  const exports = createExports(
    { store, runner, zoneDays, clock, listSegmentIds: listSegments, findVersions, loaded },
    { maxExports: options.maxExports },
  );
  const onAnswer = (method: string, status: number): void => metrics.answered(method, status);
  addRoutes(server, dependencies, options, { store, keys, manifestKey, files, exports, onAnswer });
  closers.add('api server', () => server.close());
  const port = await listen(server, options.host, options.port);
  logger.info({ host: options.host, port }, 'export is listening');

  const listNotices = () => [
    ...describeDamage(
      damages,
      store.damaged(),
      files.faults().filter(({ idReport }) => store.knows(idReport)),
    ),
    ...(hadKeys ? [] : describeLostKeys(store, options.keysDir, startedMs, clock)),
  ];
  return {
    port,
    stop: () => closers.stop(),
    facts: () => ({
      exportsRunning: runner.running(),
      exportsInProgress: store.inProgress().length,
      reports: store.count(),
      notices: listNotices(),
    }),
  };
}
