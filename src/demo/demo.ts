/**
 * The demo: the service's main job from end to end, as its clients see it.
 *
 * In: made-up game sessions, or a file of events; nothing else has to exist.
 * Out: a report to read: what was sent, what the lake holds, what the export brought, seconds for each stage.
 * Invariant: everything goes through the doors that clients, analysts and data engineers use: HTTP, links,
 * snapshot.sql.
 * Crash: the data folder is a temporary one, and the service a child; an interrupted demo leaves neither behind.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import type { Environment } from '../config.ts';
import { pause } from '../runtime/async/retry.ts';
import { AppError } from '../runtime/errors.ts';
import { ensureNatsServer } from '../setup/ensure-nats-server.ts';
import {
  countsAgree,
  countsByName,
  formatCountsByName,
  formatSummary,
  type DemoCounts,
  readDownloadedReport,
  openLakeReader,
  type LakeReader,
  showOtherEvents,
  createStageTiming,
  type StageTiming,
  cutLine,
  formatCount,
  formatSeconds,
} from './demo-report.ts';
import {
  checkReadable,
  parseDemoEvent,
  readEventFile,
  readLines,
  type DemoEvent,
  createExport,
  downloadLinks,
  waitForReport,
  type ExportOptions,
  importEvents,
  type ImportResult,
  runCommand,
  startServiceChild,
  type ServiceChild,
  type ServiceChildOptions,
} from './demo-client.ts';
import { generateGameSessions } from './game-sessions.ts';

export interface DemoOptions {
  /** The program's entry file, which the service runs from. */
  readonly entry: string;
  readonly environment: Environment;
  /** Ends the demo early; what it started is stopped. */
  readonly signal: AbortSignal;
  /** Writes one line for the person who watches. */
  readonly print: (line: string) => void;
  /** Bodies of `/v1/customEvent/`, one a line, `.gz` or not; undefined: made-up sessions. */
  readonly eventsFile: string | undefined;
  /** How many events to make up, and from which seed. */
  readonly madeUpEvents: number;
  readonly seed: number;
}

const idApp = 1;
const account = 1;
const connections = 4;
const daySeconds = 86_400;
const selectors = ['eventId', 'eventName', 'tsEvent', 'customUserId', 'params.name', 'params.value'];
const shownRows = 3;
const shownWidth = 160;
/** At most one line of progress in this time. */
const progressEveryMs = 1000;
/** How often the lake is asked whether everything has arrived, and for how long. */
const lakePollMs = 250;
/** Somebody waits for the lake: shorter than a service's default, which makes fewer and larger files, milliseconds. */
const flushAgeMs = 1000;
const lakeWaitMs = 60_000;

/** What the demo signs in with: to import, and to export. */
interface DemoAccess {
  readonly token: string;
  readonly idUser: string;
  readonly secret: string;
}

/**
 * Runs the demo and returns its exit code: 0 when every count agrees, 1 when they differ. Errors of the service and of
 * the machine are thrown; whatever was started is stopped and removed first.
 */
export async function runDemo(options: DemoOptions): Promise<number> {
  const { print } = options;
  if (options.eventsFile !== undefined) await checkReadable(options.eventsFile);
  const environment = serviceEnvironment(options.environment);
  await ensureNatsServer(environment, { onFetch: print, signal: options.signal });
  const folder = await mkdtemp(path.join(tmpdir(), 'tributary-demo-'));
  const time = createStageTiming();
  try {
    const child = { entry: options.entry, dataDir: folder, environment };
    const access = await addAccess(child, print);
    const service = await time.measure('start', () => startServiceChild(child));
    try {
      print(
        `started   service on ${service.s2s} (import) and ${service.api} (export), in ${formatSeconds(time.ms('start'))}`,
      );
      const counts = await runStages(options, { service, child }, access, time);
      await time.measure('stop', () => service.stop());
      print(`\nstopped   everything, in ${formatSeconds(time.ms('stop'))}`);
      return countsAgree(counts) ? 0 : 1;
    } catch (error) {
      throw options.signal.aborted
        ? new AppError('stopping', 'the demo was interrupted, and what it had started is stopped')
        : error;
    } finally {
      // after an error only: the error says more than that of the stop
      await service.stop().catch(() => undefined);
    }
  } finally {
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

/**
 * Adds the app and the user before the service starts, so that there is no second in which it does not know them yet.
 */
async function addAccess(child: ServiceChildOptions, print: (line: string) => void): Promise<DemoAccess> {
  const app = await runCommand(
    child,
    'app',
    'add',
    String(idApp),
    '--platform',
    'web',
    '--title',
    'Demo game',
    '--account',
    String(account),
  );
  const user = await runCommand(child, 'user', 'add', 'demo-analyst', '--account', String(account));
  const idUser = String(user['idUser']);
  print(`added     app ${idApp} (web) with a token, user ${idUser} with a secret`);
  return { token: String(app['token']), idUser, secret: String(user['secret']) };
}

/** The service that runs, and its program and folder. */
interface RunningDemo {
  readonly service: ServiceChild;
  readonly child: ServiceChildOptions;
}

/** From an empty service to the summary. */
async function runStages(
  options: DemoOptions,
  { service, child }: RunningDemo,
  access: DemoAccess,
  time: StageTiming,
): Promise<DemoCounts> {
  const { print, signal } = options;
  const folder = child.dataDir;
  const lake = await openLakeReader(folder);
  try {
    const sent = await time.measure('import', () => sendEvents(options, service, access.token));
    const stored = await time.measure('lake', () => waitForLake(lake, sent.events, signal));
    print(
      `lake      has ${formatCount(stored)} distinct events, ${formatSeconds(time.ms('lake'))} after the last answer`,
    );

    const exportOptions = { ...access, api: service.api, signal };
    const links = await time.measure('export', () => exportEvents(sent, exportOptions, print));
    const files = await time.measure('download', () => downloadLinks(links, folder, signal));
    for (const { file, bytes } of files)
      print(`download  ${path.basename(file)}, ${formatCount(bytes)} bytes, by its link alone`);
    print(`\nThe first rows of the file:\n\n${indent((await readFirstLines(files[0]?.file ?? '')).join('\n'))}\n`);

    const other = { ...exportOptions, child, idApp, dates: datesOf(sent), print };
    const others = await showOtherEvents(other, lake);
    const lakeRows = await lake.query(countsByName);
    const counts = { sent, stored, lakeRows, others, report: await readDownloadedReport(lake, files) };
    print(
      `The lake by SQL, after .read lake/snapshot.sql in DuckDB, beside what was sent and what the file has:\n\n${indent(countsByName)}\n`,
    );
    print(`${indent(formatCountsByName(counts))}\n\n${formatSummary(counts, time)}`);
    return counts;
  } finally {
    lake.close();
  }
}

/** The settings of the demo's own service: none of this machine's, and never a cluster that others use. */
function serviceEnvironment(environment: Environment): Environment {
  const kept = Object.entries(environment).filter(
    ([name]) => !name.startsWith('TRIBUTARY_') || name === 'TRIBUTARY_CACHE_DIR',
  );
  return { ...Object.fromEntries(kept), TRIBUTARY_LOG_LEVEL: 'warn', TRIBUTARY_FLUSH_AGE_MS: String(flushAgeMs) };
}

async function* madeUpEvents(options: DemoOptions): AsyncGenerator<DemoEvent, void, void> {
  // up to the last midnight: the same seed brings the same events all day, and none lies in the future
  const until = Math.floor(Date.now() / 1000 / daySeconds) * daySeconds;
  for (const body of generateGameSessions({ seed: options.seed, events: options.madeUpEvents, until, days: 5 }))
    yield parseDemoEvent(JSON.stringify(body));
}

async function sendEvents(options: DemoOptions, service: ServiceChild, token: string): Promise<ImportResult> {
  const { print, eventsFile } = options;
  print(
    `import    ${eventsFile === undefined ? `${formatCount(options.madeUpEvents)} made-up events (seed ${options.seed})` : path.basename(eventsFile)}, batches of up to 20, ${connections} connections`,
  );
  let shownAt = performance.now();
  const started = shownAt;
  const onProgress = (acknowledged: number): void => {
    if (performance.now() - shownAt < progressEveryMs) return;
    shownAt = performance.now();
    print(`import    ${formatCount(acknowledged)} acknowledged after ${formatSeconds(shownAt - started)}`);
  };
  const events = eventsFile === undefined ? madeUpEvents(options) : readEventFile(eventsFile);
  const sent = await importEvents(events, {
    s2s: service.s2s,
    idApp,
    token,
    connections,
    keyPrefix: 'demo',
    signal: options.signal,
    onProgress,
  });
  const ms = performance.now() - started;
  print(
    `import    ${formatCount(sent.events)} acknowledged in ${formatSeconds(ms)}, ${formatCount(sent.requests)} requests: ${formatCount(Math.round((sent.events / ms) * 1000))} events/s, each fsynced`,
  );
  return sent;
}

/** Waits until the lake holds as many distinct events as were acknowledged; returns how many it holds in the end. */
async function waitForLake(lake: LakeReader, expected: number, signal: AbortSignal): Promise<number> {
  const deadline = performance.now() + lakeWaitMs;
  for (;;) {
    const [row] = await lake.query('SELECT count(DISTINCT event_id) AS events FROM events');
    const stored = Number(row?.['events']);
    if (stored >= expected || performance.now() > deadline) return stored;
    await pause(lakePollMs, signal);
    signal.throwIfAborted();
  }
}

/** The UTC date of Unix seconds. */
function day(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(0, 10);
}

/** The days of what was sent, none of them in the future. */
function datesOf(sent: ImportResult): { readonly dateFrom: string; readonly dateTo: string } {
  const now = Date.now() / 1000;
  return {
    dateFrom: day(Math.min(sent.firstTimestamp ?? now, now)),
    dateTo: day(sent.timedByReceipt ? now : Math.min(sent.lastTimestamp ?? now, now)),
  };
}

async function exportEvents(
  sent: ImportResult,
  options: ExportOptions,
  print: (line: string) => void,
): Promise<string[]> {
  const dates = datesOf(sent);
  const request = {
    event: 'customEvents',
    selectors: selectors.join(','),
    idApp: String(idApp),
    timezone: 'UTC',
    ...dates,
  };
  const id = await createExport(request, options);
  print(`export    request ${id}: customEvents, ${dates.dateFrom} to ${dates.dateTo}, ${selectors.join(', ')}`);
  return waitForReport(id, options, (progress) => print(`export    ${progress}`));
}

/** The header and the first rows of a CSV file, gzipped or not, as they stand in it. */
async function readFirstLines(file: string): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of readLines(file)) {
    lines.push(cutLine(line, shownWidth));
    if (lines.length > shownRows) break;
  }
  return lines;
}

function indent(text: string): string {
  return text.replace(/^(?=.)/gm, '  ');
}
