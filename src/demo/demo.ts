/**
 * The demo: the main job of the service from import to export.
 *
 * In: generated game sessions or a file of events.
 * Out: a text report: counts of what was sent, stored and exported, and the duration of each stage.
 * Invariant: it uses public interfaces only: HTTP, links, commands, snapshot.sql.
 * Crash: the data folder is temporary and the service a child; an interrupted demo removes both.
 */
import { makeTemporaryFolder, removeTree } from '../runtime/files/work-files.ts';
import path from 'node:path';
import type { Environment } from '../config.ts';
import { pause } from '../runtime/async/retry.ts';
import { AppError } from '../runtime/errors.ts';
import { ensureNatsServer } from '../nats-setup/ensure-nats-server.ts';
import {
  checkReadable,
  createExport,
  downloadFiles,
  importEvents,
  openExports,
  parseDemoEvent,
  readEventFile,
  readFileLines,
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
  readonly entry: string;
  readonly environment: Environment;
  readonly signal: AbortSignal;
  readonly print: (line: string) => void;
  /** A file with a body of `/v1/customEvent/` per line, also as `.gz`; undefined for generated sessions. */
  readonly eventsFile: string | undefined;
  /** Number and seed of the generated events. */
  readonly madeUpEvents: number;
  readonly seed: number;
}

const idApp = 1;
const account = '1';
const daySeconds = 86_400;
const selectors = ['eventId', 'eventName', 'tsEvent', 'customUserId', 'params.name', 'params.value'];
const shownRows = 3;
const shownWidth = 160;
const progressEveryMs = 1000;
const lakePollMs = 250;
const lakeWaitMs = 60_000;
/** Flush age, ms; shorter than the default, since a person waits for the lake. */
const flushAgeMs = 1000;

interface DemoAccess {
  readonly token: string;
  readonly idUser: string;
  readonly secret: string;
}

/** Runs the demo and returns its exit code: 0 if all counts agree, else 1. Stops and removes everything in any case. */
export async function runDemo(options: DemoOptions): Promise<number> {
  const { entry, print, signal } = options;
  if (options.eventsFile !== undefined) await checkReadable(options.eventsFile);
  const environment = serviceEnvironment(options.environment);
  await ensureNatsServer(environment, { onFetch: print, signal });
  const dataDir = await makeTemporaryFolder('tributary-demo-');
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
      throw new AppError('stopping', 'the demo was interrupted; its service is stopped');
    } finally {
      // An error of a stage explains more than one of the stop.
      await service.stop().catch(() => undefined);
    }
  } finally {
    await removeTree(dataDir, 5);
  }
}

/** Adds the app and the user before the start: a running service takes a second to see them. */
async function addAccess(child: ServiceChildOptions, print: (line: string) => void): Promise<DemoAccess> {
  const named = ['--title', 'Demo game', '--account', account];
  const app = await runCommand(child, 'app', 'add', String(idApp), '--platform', 'web', ...named);
  const user = await runCommand(child, 'user', 'add', 'demo-analyst', '--account', account);
  const idUser = String(user['idUser']);
  print(`added     app ${idApp} (web) with a token, user ${idUser} with a secret`);
  return { token: String(app['token']), idUser, secret: String(user['secret']) };
}

async function runStages(
  options: DemoOptions,
  { service, child }: { readonly service: ServiceChild; readonly child: ServiceChildOptions },
  access: DemoAccess,
  time: StageTiming,
): Promise<DemoCounts> {
  const { print, signal } = options;
  const folder = child.dataDir;
  const lake = await openLakeReader(folder);
  const exports = openExports({ url: service.api, idUser: access.idUser, secret: access.secret }, signal);
  try {
    const sent = await time.measure('import', () => sendEvents(options, service, access.token));
    const stored = await time.measure('lake', () => waitForLake(lake, sent.events, signal));
    const after = formatSeconds(time.ms('lake'));
    print(`lake      has ${formatCount(stored)} distinct events, ${after} after the last response`);

    const dates = datesOf(sent);
    const files = await time.measure('export', async () => {
      const names = { event: 'customEvents', selectors: selectors.join(','), idApp: String(idApp), timezone: 'UTC' };
      const id = await createExport(exports, { ...names, ...dates });
      print(`export    request ${id}: customEvents, ${dates.dateFrom} to ${dates.dateTo}, ${selectors.join(', ')}`);
      return waitForReport(exports, id, (progress) => print(`export    ${progress}`));
    });
    const paths = await time.measure('download', () => downloadFiles(exports, files, folder));
    for (const { name, bytes } of files) print(`download  ${name}, ${formatCount(bytes)} bytes, by its link alone`);
    print(`\nThe first rows of the file:\n\n${indent((await readFirstLines(paths[0] ?? '')).join('\n'))}\n`);

    const others = await showOtherEvents({ exports, child, idApp, dates, print }, lake);
    const lakeRows = await lake.query(countsByName);
    const counts = { sent, stored, lakeRows, others, report: await readDownloadedReport(lake, paths) };
    print('The lake by SQL (.read lake/snapshot.sql in DuckDB), compared with the sent events and the file:\n');
    print(`${indent(countsByName)}\n\n${indent(formatCountsByName(counts))}\n\n${formatSummary(counts, time)}`);
    return counts;
  } finally {
    exports.http.close();
    lake.close();
  }
}

/** Returns the settings of the demo's service, without those of this machine and its cluster. */
function serviceEnvironment(environment: Environment): Environment {
  const kept = Object.entries(environment).filter(
    ([name]) => !name.startsWith('TRIBUTARY_') || name === 'TRIBUTARY_CACHE_DIR',
  );
  return { ...Object.fromEntries(kept), TRIBUTARY_LOG_LEVEL: 'warn', TRIBUTARY_FLUSH_AGE_MS: String(flushAgeMs) };
}

function* madeUpEvents({ seed, madeUpEvents: events }: DemoOptions): Generator<DemoEvent, void, void> {
  // Up to the last midnight: a seed makes the same events all day, and none in the future.
  const until = Math.floor(Date.now() / 1000 / daySeconds) * daySeconds;
  for (const body of generateGameSessions({ seed, events, until, days: 5 })) yield parseDemoEvent(JSON.stringify(body));
}

async function sendEvents(options: DemoOptions, { s2s }: ServiceChild, token: string): Promise<ImportResult> {
  const { print, eventsFile, signal, seed } = options;
  const what =
    eventsFile === undefined
      ? `${formatCount(options.madeUpEvents)} generated events (seed ${seed})`
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

/** Waits until the lake has as many distinct events as were acknowledged; returns their number after a timeout too. */
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

/** Returns the UTC days of the sent events, none in the future. */
function datesOf({ firstTimestamp, lastTimestamp, timedByReceipt }: ImportResult) {
  const now = Date.now() / 1000;
  const day = (seconds = now): string => new Date(Math.min(seconds, now) * 1000).toISOString().slice(0, 10);
  return { dateFrom: day(firstTimestamp), dateTo: day(timedByReceipt ? now : lastTimestamp) };
}

async function readFirstLines(file: string): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of readFileLines(file)) {
    lines.push(cutLine(line, shownWidth));
    if (lines.length > shownRows) break;
  }
  return lines;
}

function indent(text: string): string {
  return text.replace(/^(?=.)/gm, '  ');
}
