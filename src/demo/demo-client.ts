import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, createReadStream, createWriteStream, openSync } from 'node:fs';
import { access, constants, readFile } from 'node:fs/promises';
import path from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { createGunzip } from 'node:zlib';
import type { Environment } from '../config.ts';
import { pause, retry } from '../runtime/async/retry.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import { isRecord } from '../runtime/files/checked-json.ts';

/* The demo as a client and as an operator: it reads a file, imports, exports, and runs the program. */

/** One event to import: its JSON as it goes over the wire, and what the demo compares afterwards. */
export interface DemoEvent {
  readonly json: string;
  readonly name: string;
  /** Unix seconds; undefined when the service is to take the time of receipt. */
  readonly timestamp: number | undefined;
}

/** Takes the JSON of one body of `/v1/customEvent/`. Throws `usage` for text that is not a JSON object. */
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

/** Reads the lines of a text file, gunzipped when its name ends in `.gz`. Breaking off the loop closes the file. */
export async function* readLines(file: string): AsyncGenerator<string, void, void> {
  const bytes = createReadStream(file);
  const text = file.endsWith('.gz') ? bytes.pipe(createGunzip()) : bytes;
  if (text !== bytes) bytes.once('error', (error) => text.destroy(error));
  try {
    yield* createInterface({ input: text, crlfDelay: Number.POSITIVE_INFINITY });
  } finally {
    bytes.destroy();
  }
}

/** Checks that a file of events can be read at all. Throws `not_found`. */
export async function checkReadable(file: string): Promise<void> {
  await access(file, constants.R_OK).catch((error: unknown) => {
    throw new AppError('not_found', `cannot read the events: ${describeError(error)}`);
  });
}

/** Reads a file of events, one body a line. Empty lines are passed over. Errors: `usage`, naming the line. */
export async function* readEventFile(file: string): AsyncGenerator<DemoEvent, void, void> {
  let number = 0;
  try {
    for await (const line of readLines(file)) {
      number += 1;
      if (line.trim() !== '') yield parseDemoEvent(line.trim());
    }
  } catch (error) {
    throw new AppError('usage', `${file}, line ${number}: ${describeError(error)}`, { cause: error });
  }
}

/** The API's limits (service.md 8): elements of a batch, bytes of a body. */
const maxBatchEvents = 20;
const maxBodyBytes = 10_240;
/** How long, and how often, one batch is tried again when the service says "retry later" or is away. */
const retryForMs = 30_000;
const retryEveryMs = 250;
const connections = 4;

interface ImportOptions {
  /** The import area's address, without a trailing slash. */
  readonly s2s: string;
  readonly idApp: number;
  readonly token: string;
  /** Start of the Idempotency-Keys: a batch that is sent again is stored once. */
  readonly keyPrefix: string;
  readonly signal: AbortSignal;
  /** Gets, after every batch, how many events were acknowledged so far. */
  readonly onProgress: (acknowledged: number) => void;
}

/** What was sent and acknowledged with 200. */
export interface ImportResult {
  readonly events: number;
  readonly requests: number;
  /** Events by customEventName. */
  readonly byName: ReadonlyMap<string, number>;
  /** Unix seconds, of the events that carry a time; undefined when none does. */
  readonly firstTimestamp: number | undefined;
  readonly lastTimestamp: number | undefined;
  /** Some event took its time of receipt. */
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

/**
 * Groups events into bodies of `customEventBatch` within the API's limits, in order. An event too large for any body
 * goes alone.
 */
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
 * Imports events as a client does: batches over several connections, each with an Idempotency-Key so that it can be
 * sent again. Resolves when every event was acknowledged; throws when the service refuses one, or for too long cannot
 * take it.
 */
export async function importEvents(
  events: AsyncIterable<DemoEvent> | Iterable<DemoEvent>,
  options: ImportOptions,
): Promise<ImportResult> {
  const batches = batchEvents(events);
  const byName = new Map<string, number>();
  let [acknowledged, requests, timedByReceipt] = [0, 0, false];
  let [first, last] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  // The first connection that fails stops the others, which would go on trying after the service is gone.
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, failed.signal]);
  const send = async (): Promise<void> => {
    // The generator hands each batch to exactly one of the connections that ask for the next.
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

/** Sends one batch until it is acknowledged. A 500, or no answer, means "later"; any other answer is final. */
async function postBatch(batch: Batch, key: string, { s2s, idApp, token, signal }: ImportOptions): Promise<void> {
  const url = `${s2s}/v1/customEventBatch/?idApp=${idApp}`;
  const headers = { authorization: token, 'content-type': 'application/json', 'idempotency-key': key };
  const post = async (): Promise<void> => {
    signal.throwIfAborted();
    // Without the signal: each request would hang a listener on it, and the service answers within two seconds.
    const response = await fetch(url, { method: 'POST', headers, body: batch.body });
    const answer = await response.text();
    if (response.status === 200) return;
    const problem = `${response.status} ${answer.slice(0, 200)}`;
    if (response.status === 500) throw new Error(problem);
    const first = batch.events[0]?.json.slice(0, 200);
    throw new AppError('usage', `the import refused a batch: ${problem}; its first event: ${first}`);
  };
  const retryable = (error: unknown): boolean => !isAppError(error, 'usage') && !signal.aborted;
  await retry(post, { forMs: retryForMs, everyMs: retryEveryMs, signal, retryable }).catch((error: unknown) => {
    if (!retryable(error)) throw error;
    throw new AppError(
      'overloaded',
      `the import took a batch neither at once nor within ${retryForMs / 1000} s: ${describeError(error)}`,
    );
  });
}

export interface ExportOptions {
  /** The export area's address, without a trailing slash. */
  readonly api: string;
  readonly idUser: string;
  readonly secret: string;
  readonly signal: AbortSignal;
}

/** Polls this often: within the export area's quota of 100 requests a minute. */
const pollEveryMs = 700;

/** Requests an export by parameters of `create.json` (service.md 2.4). Returns its idRawExport. */
export async function createExport(request: Readonly<Record<string, string>>, options: ExportOptions): Promise<string> {
  const data = await call('POST', `/api/raw/v1/export/create.json?${new URLSearchParams(request).toString()}`, options);
  return String(data['idRawExport']);
}

/** Waits until a report's files are there; `onProgress` gets each change of its progress. Returns their links. */
export async function waitForReport(
  id: string,
  options: ExportOptions,
  onProgress: (text: string) => void = () => undefined,
): Promise<string[]> {
  for (let shown = ''; ; await pause(pollEveryMs, options.signal)) {
    options.signal.throwIfAborted();
    const data = await call('GET', `/api/report/v1/file/get.json?idReportFile=${id}`, options);
    const status = String(data['status']);
    const progress = status === 'In progress' ? `${status}, ${String(data['progress'])}` : status;
    if (progress !== shown) onProgress(progress);
    shown = progress;
    if (status === 'Success!') return (data['files'] as { link: string }[]).map((file) => file.link);
    if (status !== 'In progress') throw new AppError('start_failed', `the export ended with '${status}'`);
  }
}

/** Downloads links as they are, without credentials, into a folder. Returns the files, in the order of the links. */
export async function downloadLinks(
  links: readonly string[],
  folder: string,
  signal: AbortSignal,
): Promise<{ file: string; bytes: number }[]> {
  const downloads: { file: string; bytes: number }[] = [];
  for (const link of links) {
    const { pathname } = new URL(link);
    const response = await fetch(link, { signal });
    if (response.status !== 200 || response.body === null)
      throw new AppError('not_found', `the link ${pathname} answered ${response.status}`);
    const file = path.join(folder, path.basename(pathname));
    let bytes = 0;
    const counted = Readable.fromWeb(response.body).on('data', (chunk: Uint8Array) => void (bytes += chunk.length));
    await pipeline(counted, createWriteStream(file), { signal });
    downloads.push({ file, bytes });
  }
  return downloads;
}

/** Calls a method of the export area with HTTP Basic; returns the envelope's data. Any answer but 200 is an error. */
async function call(
  method: string,
  pathAndQuery: string,
  { api, idUser, secret, signal }: ExportOptions,
): Promise<Readonly<Record<string, unknown>>> {
  const authorization = `Basic ${Buffer.from(`${idUser}:${secret}`).toString('base64')}`;
  const response = await fetch(`${api}${pathAndQuery}`, { method, headers: { authorization }, signal });
  const text = await response.text();
  if (response.status !== 200)
    throw new AppError('usage', `${pathAndQuery.split('?')[0]} answered ${response.status}: ${text.slice(0, 400)}`);
  return (JSON.parse(text) as { data: Readonly<Record<string, unknown>> }).data;
}

/** The program on a data folder. */
export interface ServiceChildOptions {
  /** The program's entry file. */
  readonly entry: string;
  readonly dataDir: string;
  /** Everything the child gets; nothing else of this process's environment. */
  readonly environment: Environment;
}

/** A short-lived service that runs as a child, as an operator would start it. */
export interface ServiceChild {
  readonly s2s: string;
  readonly api: string;
  /** Drains the service; throws when it does not end with exit code 0. Stopping twice is the same as stopping once. */
  stop(): Promise<void>;
}

/** Runs a command of the program on a data folder, as an operator would, and returns its JSON answer. */
export async function runCommand(
  { entry, dataDir, environment }: ServiceChildOptions,
  ...words: readonly string[]
): Promise<Readonly<Record<string, unknown>>> {
  const given = [entry, ...words, '--data', dataDir];
  const { stdout } = await promisify(execFile)(process.execPath, given, { env: environment });
  return JSON.parse(stdout) as Readonly<Record<string, unknown>>;
}

/**
 * Starts the service on free ports and waits until it is ready. Its log goes to `service.log` in the data folder.
 * Throws `start_failed` with the log's last lines.
 */
export async function startServiceChild({ entry, dataDir, environment }: ServiceChildOptions): Promise<ServiceChild> {
  const logFile = path.join(dataDir, 'service.log');
  const log = openSync(logFile, 'a', 0o600);
  const words = [entry, 'start', '--data', dataDir, '--s2s-port', '0', '--api-port', '0'];
  const child = spawn(process.execPath, words, { env: environment, stdio: ['ignore', 'pipe', log] });
  closeSync(log);
  const exited = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
  const firstLine = once(createInterface({ input: child.stdout as Readable }), 'line') as Promise<[string]>;

  const ended = async (what: string): Promise<AppError> => {
    const lines = (await readFile(logFile, 'utf8')).trim().split('\n').slice(-5);
    return new AppError('start_failed', `the service ${what}; the end of its log:\n${lines.join('\n')}`);
  };
  const started = await Promise.race([firstLine, exited.then(() => undefined)]);
  if (started === undefined) throw await ended('did not start');
  const { s2s, api } = JSON.parse(started[0]) as { s2s: string; api: string };

  let stopping: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    const [code, signal] = await exited;
    if (code !== 0) throw await ended(`ended with ${signal ?? `exit code ${code}`}`);
  };
  return { s2s, api, stop: () => (stopping ??= stop()) };
}
