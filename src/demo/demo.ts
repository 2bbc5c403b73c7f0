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
import type { Environment } from '../config.ts';
import { pause } from '../runtime/async/retry.ts';
import { AppError } from '../runtime/errors.ts';
import { ensureNatsServer } from '../setup/ensure-nats-server.ts';
import {
  checkReadable,
  createExport,
  downloadLinks,
  importEvents,
  parseDemoEvent,
  readEventFile,
  readLines,
  runCommand,
  startServiceChild,
  waitForReport,
  type DemoEvent,
  type ImportResult,
  type ServiceChild,
  type ServiceChildOptions,
} from './demo-client.ts';
import {
  countsAgree,
  countsByName,
  createStageTiming,
  cutLine,
  formatCount,
  formatCountsByName,
  formatSeconds,
  formatSummary,
  openLakeReader,
  readDownloadedReport,
  showOtherEvents,
  type DemoCounts,
  type LakeReader,
  type StageTiming,
} from './demo-report.ts';
import { generateGameSessions } from './game-sessions.ts';

interface DemoOptions {
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
const account = '1';
const daySeconds = 86_400;
const selectors = ['eventId', 'eventName', 'tsEvent', 'customUserId', 'params.name', 'params.value'];
const shownRows = 3;
const shownWidth = 160;
/** At most one line of progress in this time. */
const progressEveryMs = 1000;
/** How often the lake is asked whether everything has arrived, and for how long. */
const lakePollMs = 250;
const lakeWaitMs = 60_000;
/** Somebody waits for the lake: shorter than a service's default, which makes fewer and larger files, milliseconds. */
const flushAgeMs = 1000;

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
  const { entry, print, signal } = options;
  if (options.eventsFile !== undefined) await checkReadable(options.eventsFile);
  const environment = serviceEnvironment(options.environment);
  await ensureNatsServer(environment, { onFetch: print, signal });
  const dataDir = await mkdtemp(path.join(tmpdir(), 'tributary-demo-'));
  const time = createStageTiming();
  try {
    const child = { entry, dataDir, environment };
    const access = await addAccess(child, print);
    const service = await time.measure('start', () => startServiceChild(child));
    try {
      const started = formatSeconds(time.ms('start'));
      print(`started   service on ${service.s2s} (import) and ${service.api} (export), in ${started}`);
      const counts = await runStages(options, { service, child }, access, time);
      await time.measure('stop', () => service.stop());
      print(`\nstopped   everything, in ${formatSeconds(time.ms('stop'))}`);
      return countsAgree(counts) ? 0 : 1;
    } catch (error) {
      if (!signal.aborted) throw error;
      throw new AppError('stopping', 'the demo was interrupted, and what it had started is stopped');
    } finally {
      // After an error only: the error says more than that of the stop.
      await service.stop().catch(() => undefined);
    }
  } finally {
    await rm(dataDir, { recursive: true, force: true, maxRetries: 5 });
  }
}

/**
 * Adds the app and the user before the service starts, so that there is no second in which it does not know them yet.
 */
async function addAccess(child: ServiceChildOptions, print: (line: string) => void): Promise<DemoAccess> {
  const named = ['--title', 'Demo game', '--account', account];
  const app = await runCommand(child, 'app', 'add', String(idApp), '--platform', 'web', ...named);
  const user = await runCommand(child, 'user', 'add', 'demo-analyst', '--account', account);
  const idUser = String(user['idUser']);
  print(`added     app ${idApp} (web) with a token, user ${idUser} with a secret`);
  return { token: String(app['token']), idUser, secret: String(user['secret']) };
}

/** From an empty service to the summary. */
async function runStages(
  options: DemoOptions,
  { service, child }: { readonly service: ServiceChild; readonly child: ServiceChildOptions },
  access: DemoAccess,
  time: StageTiming,
): Promise<DemoCounts> {
  const { print, signal } = options;
  const folder = child.dataDir;
  const lake = await openLakeReader(folder);
  try {
    const sent = await time.measure('import', () => sendEvents(options, service, access.token));
    const stored = await time.measure('lake', () => waitForLake(lake, sent.events, signal));
    const after = formatSeconds(time.ms('lake'));
    print(`lake      has ${formatCount(stored)} distinct events, ${after} after the last answer`);

    const exporting = { ...access, api: service.api, signal };
    const dates = datesOf(sent);
    const links = await time.measure('export', async () => {
      const names = { event: 'customEvents', selectors: selectors.join(','), idApp: String(idApp), timezone: 'UTC' };
      const id = await createExport({ ...names, ...dates }, exporting);
      print(`export    request ${id}: customEvents, ${dates.dateFrom} to ${dates.dateTo}, ${selectors.join(', ')}`);
      return waitForReport(id, exporting, (progress) => print(`export    ${progress}`));
    });
    const files = await time.measure('download', () => downloadLinks(links, folder, signal));
    for (const { file, bytes } of files)
      print(`download  ${path.basename(file)}, ${formatCount(bytes)} bytes, by its link alone`);
    print(`\nThe first rows of the file:\n\n${indent((await readFirstLines(files[0]?.file ?? '')).join('\n'))}\n`);

    const others = await showOtherEvents({ ...exporting, child, idApp, dates, print }, lake);
    const lakeRows = await lake.query(countsByName);
    const counts = { sent, stored, lakeRows, others, report: await readDownloadedReport(lake, files) };
    print('The lake by SQL, after .read lake/snapshot.sql in DuckDB, beside what was sent and what the file has:\n');
    print(`${indent(countsByName)}\n\n${indent(formatCountsByName(counts))}\n\n${formatSummary(counts, time)}`);
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

function* madeUpEvents({ seed, madeUpEvents: events }: DemoOptions): Generator<DemoEvent, void, void> {
  // Up to the last midnight: the same seed brings the same events all day, and none lies in the future.
  const until = Math.floor(Date.now() / 1000 / daySeconds) * daySeconds;
  for (const body of generateGameSessions({ seed, events, until, days: 5 })) yield parseDemoEvent(JSON.stringify(body));
}

async function sendEvents(options: DemoOptions, { s2s }: ServiceChild, token: string): Promise<ImportResult> {
  const { print, eventsFile, signal, seed } = options;
  const what =
    eventsFile === undefined
      ? `${formatCount(options.madeUpEvents)} made-up events (seed ${seed})`
      : path.basename(eventsFile);
  print(`import    ${what}, batches of up to 20, 4 connections`);
  const started = performance.now();
  let shownAt = started;
  const onProgress = (acknowledged: number): void => {
    if (performance.now() - shownAt < progressEveryMs) return;
    shownAt = performance.now();
    print(`import    ${formatCount(acknowledged)} acknowledged after ${formatSeconds(shownAt - started)}`);
  };
  const events = eventsFile === undefined ? madeUpEvents(options) : readEventFile(eventsFile);
  const sent = await importEvents(events, { s2s, idApp, token, keyPrefix: 'demo', signal, onProgress });
  const ms = performance.now() - started;
  const rate = formatCount(Math.round((sent.events / ms) * 1000));
  print(
    `import    ${formatCount(sent.events)} acknowledged in ${formatSeconds(ms)}, ${formatCount(sent.requests)} requests: ${rate} events/s, each fsynced`,
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

/** The UTC days of what was sent, none of them in the future. */
function datesOf({ firstTimestamp, lastTimestamp, timedByReceipt }: ImportResult) {
  const now = Date.now() / 1000;
  const day = (seconds = now): string => new Date(Math.min(seconds, now) * 1000).toISOString().slice(0, 10);
  return { dateFrom: day(firstTimestamp), dateTo: day(timedByReceipt ? now : lastTimestamp) };
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
