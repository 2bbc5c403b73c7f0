import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { maxBatchEvents } from '../client/batches.ts';
import { downloadFile } from '../client/download.ts';
import { createExportArea, waitForExport, type ExportAccess, type ExportFile } from '../client/export-area.ts';
import { maxBodyBytes } from '../client/event-source.ts';
import { createHttpClient } from '../client/http-client.ts';
import type { Environment } from '../config.ts';
import { retry } from '../runtime/async/retry.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import { openAppendedFile } from '../runtime/files/appended-file.ts';
import { isRecord, membersOf } from '../runtime/files/checksummed-json.ts';
import { assertReadable } from '../runtime/files/file-checks.ts';
import { getTextFile, readPlain } from '../runtime/files/input-file.ts';

/* The demo as a client and as an operator: it reads a file, imports, exports, and runs the program. */

const ignore = (): void => undefined;

/** An event to import. */
export interface DemoEvent {
  readonly json: string;
  readonly name: string;
  /** Unix seconds; undefined if the event gets the time of its receipt. */
  readonly timestamp: number | undefined;
}

/** Parses a body of `/v1/customEvent/`. Error: `usage` if it is not a JSON object. */
export function parseDemoEvent(json: string): DemoEvent {
  let body: unknown;
  try {
    body = JSON.parse(json);
  } catch {
    body = undefined;
  }
  if (!isRecord(body)) throw new AppError('usage', `not a JSON object: ${json.slice(0, 80)}`);
  const { eventTimestamp, customEventName } = body;
  const timestamp = Number(eventTimestamp ?? Number.NaN);
  return { json, name: String(customEventName), timestamp: Number.isFinite(timestamp) ? timestamp : undefined };
}

export async function* readFileLines(file: string): AsyncGenerator<string, void, void> {
  const bytes = Readable.from(readPlain(file, file.endsWith('.gz')));
  try {
    yield* createInterface({ input: bytes, crlfDelay: Number.POSITIVE_INFINITY });
  } finally {
    bytes.destroy();
  }
}

/** Throws `not_found` if a file of events is not readable. */
export async function checkReadable(file: string): Promise<void> {
  await assertReadable(file).catch((error: unknown) => {
    throw new AppError('not_found', `cannot read the events: ${describeError(error)}`);
  });
}

/** Reads a file with a body per line, and skips empty lines. Error: `usage` with the line number. */
export async function* readEventFile(file: string): AsyncGenerator<DemoEvent, void, void> {
  let number = 0;
  try {
    for await (const line of readFileLines(file)) {
      number += 1;
      if (line.trim() !== '') yield parseDemoEvent(line.trim());
    }
  } catch (error) {
    throw new AppError('usage', `${file}, line ${number}: ${describeError(error)}`, { cause: error });
  }
}

/** Longest retry of a batch while the service is not available, ms. */
const retryForMs = 30_000;
const retryEveryMs = 250;
const connections = 4;

interface ImportOptions {
  /** The import area's address, without a trailing slash. */
  readonly s2s: string;
  readonly idApp: number;
  readonly token: string;
  readonly keyPrefix: string;
  readonly signal: AbortSignal;
  readonly onProgress: (acknowledged: number) => void;
}

/** The events that were acknowledged with 200. */
export interface ImportResult {
  readonly events: number;
  readonly requests: number;
  readonly byName: ReadonlyMap<string, number>;
  /** Unix seconds; undefined if no event has a time. */
  readonly firstTimestamp: number | undefined;
  readonly lastTimestamp: number | undefined;
  /** True if an event got the time of its receipt. */
  readonly timedByReceipt: boolean;
}

interface Batch {
  readonly body: string;
  readonly events: readonly DemoEvent[];
}

const toBatch = (events: readonly DemoEvent[]): Batch => ({
  body: `[${events.map(({ json }) => json).join(',')}]`,
  events,
});

/** Groups events into bodies of `customEventBatch` within the API's limits. A larger event gets its own batch. */
export async function* batchEvents(
  events: AsyncIterable<DemoEvent> | Iterable<DemoEvent>,
): AsyncGenerator<Batch, void, void> {
  let pending: DemoEvent[] = [];
  let bytes = 2;
  for await (const event of events) {
    const size = Buffer.byteLength(event.json) + 1;
    if (pending.length > 0 && (pending.length === maxBatchEvents || bytes + size - 1 > maxBodyBytes)) {
      yield toBatch(pending);
      [pending, bytes] = [[], 2];
    }
    pending.push(event);
    bytes += size;
  }
  if (pending.length > 0) yield toBatch(pending);
}

/**
 * Imports events in batches with Idempotency-Keys over several connections. Errors: `usage` if the service rejects a
 * batch; `overloaded` if it is not available for too long.
 */
export async function importEvents(
  events: AsyncIterable<DemoEvent> | Iterable<DemoEvent>,
  options: ImportOptions,
): Promise<ImportResult> {
  const batches = batchEvents(events);
  const byName = new Map<string, number>();
  let [acknowledged, requests, timedByReceipt] = [0, 0, false];
  let [first, last] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  // The first failure stops the other connections.
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, failed.signal]);
  const send = async (): Promise<void> => {
    for (let next = await batches.next(); next.done !== true; next = await batches.next()) {
      requests += 1;
      await postBatch(next.value, `${options.keyPrefix}-${requests}`, { ...options, signal });
      for (const { name, timestamp } of next.value.events) {
        byName.set(name, (byName.get(name) ?? 0) + 1);
        if (timestamp === undefined) timedByReceipt = true;
        else [first, last] = [Math.min(first, timestamp), Math.max(last, timestamp)];
      }
      acknowledged += next.value.events.length;
      options.onProgress(acknowledged);
    }
  };
  try {
    await Promise.all(Array.from({ length: connections }, send));
  } catch (error) {
    failed.abort();
    throw error;
  }
  const [firstTimestamp, lastTimestamp] = last < first ? [] : [first, last];
  return { events: acknowledged, requests, byName, firstTimestamp, lastTimestamp, timedByReceipt };
}

/** Sends a batch until it is acknowledged. Retries a 500 and network errors; any other status is final. */
async function postBatch(batch: Batch, key: string, { s2s, idApp, token, signal }: ImportOptions): Promise<void> {
  const url = `${s2s}/v1/customEventBatch/?idApp=${idApp}`;
  const headers = { authorization: token, 'content-type': 'application/json', 'idempotency-key': key };
  const post = async (): Promise<void> => {
    signal.throwIfAborted();
    // Without the signal: each request would add a listener to it, and the service responds within two seconds.
    const response = await fetch(url, { method: 'POST', headers, body: batch.body });
    const responseText = await response.text();
    if (response.status === 200) return;
    const problem = `${response.status} ${responseText.slice(0, 200)}`;
    if (response.status === 500) throw new Error(problem);
    const first = batch.events[0]?.json.slice(0, 200);
    throw new AppError('usage', `the service rejected a batch: ${problem}; its first event: ${first}`);
  };
  const retryable = (error: unknown): boolean => !isAppError(error, 'usage') && !signal.aborted;
  await retry(post, { forMs: retryForMs, everyMs: retryEveryMs, signal, retryable }).catch((error: unknown) => {
    if (!retryable(error)) throw error;
    throw new AppError('overloaded', `cannot import a batch within ${retryForMs / 1000} s: ${describeError(error)}`);
  });
}

export type DemoExports = ReturnType<typeof openExports>;

/** Opens the export area for a user. The caller closes `http`. */
export function openExports(user: ExportAccess, signal: AbortSignal) {
  const http = createHttpClient();
  return { http, area: createExportArea(http, user, { signal, onWait: ignore }), signal };
}

/** Requests an export by parameters of `create.json` (docs/api.md#parameters-of-create). Returns its idRawExport. */
export async function createExport({ area }: DemoExports, request: Readonly<Record<string, string>>): Promise<string> {
  const data = await area.call('/api/raw/v1/export/create.json', Object.entries(request), true);
  return String(data['idRawExport']);
}

/** Waits until a report's files are ready; `onProgress` receives each change of its progress. */
export async function waitForReport(
  { area, signal }: DemoExports,
  id: string,
  onProgress: (text: string) => void = ignore,
): Promise<readonly ExportFile[]> {
  let lastProgress = '';
  const { files = [] } = await waitForExport(area, id, {
    signal,
    onProgress({ status, data }) {
      const progress = status === 'In progress' ? `${status}, ${String(data['progress'])}` : status;
      if (progress !== lastProgress) onProgress(progress);
      lastProgress = progress;
    },
  });
  return files;
}

/** Downloads files by their links, without credentials, into a folder. Returns their paths, in order. */
export async function downloadFiles(
  { http, signal }: DemoExports,
  files: readonly ExportFile[],
  folder: string,
): Promise<string[]> {
  const paths: string[] = [];
  const options = { http, signal, renew: async () => files, onBytes: ignore, onWait: ignore };
  for (const file of files) paths.push(await downloadFile(file, folder, options));
  return paths;
}

export interface ServiceChildOptions {
  readonly entry: string;
  readonly dataDir: string;
  /** The complete environment of the child. */
  readonly environment: Environment;
}

export type ServiceChild = Awaited<ReturnType<typeof startServiceChild>>;

/** Runs a command of the program on a data folder and returns its JSON output. */
export async function runCommand(
  { entry, dataDir, environment }: ServiceChildOptions,
  ...words: readonly string[]
): Promise<Readonly<Record<string, unknown>>> {
  const given = [entry, ...words, '--data', dataDir];
  const { stdout } = await promisify(execFile)(process.execPath, given, { env: environment });
  return membersOf(JSON.parse(stdout));
}

/**
 * Starts the service on free ports and waits until it is ready. Its log is `service.log` in the data folder. Error:
 * `start_failed` with the last lines of the log.
 */
export async function startServiceChild({ entry, dataDir, environment }: ServiceChildOptions) {
  const logFile = path.join(dataDir, 'service.log');
  const log = await openAppendedFile(logFile, Infinity);
  const words = [entry, 'start', '--data', dataDir, '--s2s-port', '0', '--api-port', '0'];
  const child = spawn(process.execPath, words, { env: environment, stdio: ['ignore', 'pipe', log.fd] });
  await log.close();
  const exited: Promise<(number | NodeJS.Signals | null)[]> = once(child, 'exit');
  const firstLine = once(createInterface({ input: child.stdout as Readable }), 'line');

  const ended = async (what: string): Promise<AppError> => {
    const lines = (await getTextFile(logFile)).trim().split('\n').slice(-5);
    return new AppError('start_failed', `the service ${what}; the end of its log:\n${lines.join('\n')}`);
  };
  const started = await Promise.race([firstLine, exited.then(() => undefined)]);
  if (started === undefined) throw await ended('did not start');
  const { s2s, api } = membersOf(JSON.parse(String(started[0])));

  let stopping: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    const [code, signal] = await exited;
    if (code !== 0) throw await ended(`ended with ${signal ?? `exit code ${code}`}`);
  };
  return {
    s2s: String(s2s),
    api: String(api),
    /** Drains the service. Idempotent. Error: `start_failed` if the exit code is not 0. */
    stop: (): Promise<void> => (stopping ??= stop()),
  };
}
