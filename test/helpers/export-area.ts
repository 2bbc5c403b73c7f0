import { fork } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { request as httpRequest, type Agent } from 'node:http';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import { addApp, type NewApp } from '../../src/access/apps.ts';
import { addUser, type NewUser } from '../../src/access/users.ts';
import { openAccessReader } from '../../src/access/store.ts';
import { startExport, type ExportDependencies, type ExportOptions, type ExportStage } from '../../src/export/export.ts';
import { createClock, type Clock } from '../../src/runtime/clock.ts';
import { createLogger, type Logger } from '../../src/runtime/logger.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import { bundleChild } from './bundled.ts';
import type { TestBucketOptions } from './connected-bucket.ts';
import { waitFor, within } from './wait.ts';

/** The data object of a response; its members depend on the method and the state. */
export interface AnswerData {
  readonly idRawExport?: string;
  readonly idReportFile?: string;
  readonly status?: string;
  readonly progress?: string;
  readonly errorMessage?: string;
  readonly isCancellable?: boolean;
  readonly info?: string;
  readonly files?: readonly {
    readonly link: string;
    readonly timestampExpires: string;
    readonly rows: number;
    readonly bytes: number;
    readonly sha256: string;
  }[];
  readonly archive?: { readonly link: string; readonly timestampExpires: string };
  readonly reports?: readonly Readonly<Record<string, unknown>>[];
  readonly error?: {
    readonly detail: string;
    readonly info?: { readonly exports: readonly { readonly idRawExport: string }[] };
  };
}

/** A response of the export area. `json` is undefined if the body is not JSON. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
  readonly json: { readonly code: number; readonly message: string; readonly data: AnswerData | null } | undefined;
}

export interface Call {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  /** Keeps connections; each call has its own by default. */
  readonly agent?: Agent;
}

/** Longer than any request of the service takes. */
const answerMs = 40_000;
/** No export ends earlier. */
const soonestEndMs = 25;

/** Sends one HTTP request with its target exactly as given, without normalisation or encoding. */
export function send(port: number, target: string, call: Call = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const body = call.body === undefined ? undefined : Buffer.from(call.body as string);
    const headers = { ...(body === undefined ? {} : { 'content-length': String(body.length) }), ...call.headers };
    const outgoing = httpRequest(
      { host: '127.0.0.1', port, method: call.method ?? 'GET', path: target, headers, agent: call.agent ?? false },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.once('error', reject);
        response.once('end', () => {
          const bytes = Buffer.concat(chunks);
          let json: Answer['json'];
          try {
            json = JSON.parse(bytes.toString('utf8')) as Answer['json'];
          } catch {
            json = undefined;
          }
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: bytes, json });
        });
      },
    );
    outgoing.once('error', reject);
    const timer = setTimeout(
      () => outgoing.destroy(new Error(`timed out waiting until ${target} is answered`)),
      answerMs,
    );
    outgoing.once('close', () => clearTimeout(timer));
    outgoing.end(body);
  });
}

export interface Credentials {
  readonly idUser: string;
  readonly secret: string;
}

/** Returns the Authorization header of HTTP Basic. */
export function basic({ idUser, secret }: Credentials): string {
  return `Basic ${Buffer.from(`${idUser}:${secret}`).toString('base64')}`;
}

function percentEncode(text: string): string {
  return encodeURIComponent(text).replaceAll(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/** Returns the Authorization header of AuthHMAC, by a client's code, independent of the service. */
export function authHmac({ idUser, secret }: Credentials, method: string, url: string, body = ''): string {
  return `AuthHMAC ${idUser}:${createHmac('sha1', secret)
    .update(`${method}&${percentEncode(url)}&${percentEncode(body)}`)
    .digest('base64')}`;
}

/** A data folder with apps and users, on which an export stage can be started, killed and restarted. */
export interface ExportArea {
  readonly dataDir: string;
  readonly tableDir: string;
  readonly reportsDir: string;
  readonly keysDir: string;
  readonly segmentsDir: string;
  readonly titlesDir: string;
  addApp(app: NewApp): Promise<void>;
  addUser(user: Partial<NewUser>): Promise<Credentials>;
  start(
    options?: Partial<ExportOptions> &
      Pick<ExportDependencies, 'runAttempt' | 'runDryRun' | 'runDataQuery'> & {
        readonly clock?: Clock;
        readonly clockOffsetSeconds?: number;
        readonly logger?: Logger;
      },
  ): Promise<RunningArea>;
  /** Starts the stage in a separate process, from `dist`. */
  startProcess(options?: Partial<ExportOptions>, conditions?: ProcessConditions): Promise<ProcessArea>;
}

/** Conditions of a stage in a separate process. */
export interface ProcessConditions {
  /** A file with the time, Unix milliseconds: a clock that the test sets. */
  readonly clockFile?: string;
  /** The crash point at which the process kills itself, as `createCrashPoint` reads it. */
  readonly crashAt?: string;
  /** Whether attempts run in the process, as with `runHere`. */
  readonly runsHere?: boolean;
  /** The bucket that has all but the lake, as `connectTestBucket` connects it. */
  readonly bucket?: TestBucketOptions;
}

/** A running export stage that can be killed. */
export interface ProcessArea extends Client {
  readonly pid: number;
  /** Resolves when the process has exited. */
  readonly exited: Promise<unknown>;
  /** Kills the stage with SIGKILL and waits until it has exited. */
  kill(): Promise<void>;
}

/** A running export stage in this process. */
export interface RunningArea extends Client {
  readonly stage: ExportStage;
  stop(): Promise<void>;
}

/** Calls of an export area's client. */
export interface Client {
  readonly port: number;
  call(user: Credentials, target: string, call?: Call): Promise<Answer>;
  /** Creates a request and returns its id; throws if it is rejected. */
  create(user: Credentials, query: string): Promise<string>;
  /** Waits until the request is final and returns its data object in the report area. */
  waitForEnd(user: Credentials, id: string): Promise<AnswerData>;
  /** Waits for a request's success, downloads every file and returns the CSV text of each part, header included. */
  download(user: Credentials, id: string): Promise<string[]>;
  /** Creates a request and downloads its result. */
  export(user: Credentials, query: string): Promise<string[]>;
}

/** Returns path and query of a link. */
export function targetOf(link: string): string {
  return link.replace(/^https?:\/\/[^/]+/, '');
}

function createClient(port: number): Client {
  const call: Client['call'] = (user, target, options = {}) =>
    send(port, target, { ...options, headers: { authorization: basic(user), ...options.headers } });
  const area: Client = {
    port,
    call,
    async create(user, query) {
      const answer = await call(user, '/api/raw/v1/export/create.json', { method: 'POST', body: query });
      if (answer.status !== 200) throw new Error(`create answered ${answer.status}: ${answer.body.toString('utf8')}`);
      return String(answer.json?.data?.idRawExport);
    },
    async waitForEnd(user, id) {
      let data: AnswerData = {};
      // No export ends sooner, and each poll takes the processor from it.
      await sleep(soonestEndMs);
      await waitFor(
        `export ${id} ends`,
        async () => {
          const answer = await call(user, `/api/report/v1/file/get.json?idReportFile=${id}`);
          data = answer.json?.data ?? {};
          return answer.status === 200 && data.status !== 'In progress';
        },
        120_000,
      );
      return data;
    },
    export: async (user, query) => area.download(user, await area.create(user, query)),
    async download(user, id) {
      const data = await area.waitForEnd(user, id);
      if (data.status !== 'Success!') throw new Error(`export ${id}: ${JSON.stringify(data)}`);
      const parts: string[] = [];
      for (const file of data.files ?? []) {
        const answer = await send(port, targetOf(file.link));
        if (answer.status !== 200) throw new Error(`download answered ${answer.status}`);
        parts.push((file.link.includes('.csv.gz?') ? gunzipSync(answer.body) : answer.body).toString('utf8'));
      }
      return parts;
    },
  };
  return area;
}

/** The bundled export process, which all areas use while the folder of the first one exists. */
let entry: string | undefined;

/** Prepares an export area in a data folder. Starts nothing. */
export function createExportArea(dataDir: string): ExportArea {
  const paths = { access: path.join(dataDir, 'access.json'), keys: path.join(dataDir, 'keys') };
  const lists = { segmentsDir: path.join(dataDir, 'segments'), titlesDir: path.join(dataDir, 'titles') };
  const tableDir = path.join(dataDir, 'lake', 'events');
  const reportsDir = path.join(dataDir, 'reports');
  let analysts = 0;
  const defaults: ExportOptions = {
    host: '127.0.0.1',
    port: 0,
    publicUrl: undefined,
    lakeDir: path.join(dataDir, 'lake'),
    reportsDir,
    keysDir: paths.keys,
    ...lists,
    webhooksDir: path.join(dataDir, 'webhooks'),
    schedulesDir: path.join(dataDir, 'schedules'),
    destinationsDir: path.join(dataDir, 'destinations'),
    deliveryAllow: [],
    webhooksAllow: [],
    downloads: 'stream',
    linkTtlSeconds: 3600,
    maxExports: 10,
    exportWorkers: 2,
    exportMaxRows: 100_000_000,
    retentionMs: 86_400_000,
    exportMaxBytes: 1024 ** 3,
    exportTimeoutMs: 60_000,
    singleFileMaxBytes: 10 * 1024 ** 2,
    partMaxBytes: 256 * 1024 ** 2,
    duckdbMemoryMb: 512,
    quotaUser: [],
    quotaIp: [],
  };
  return {
    dataDir,
    tableDir,
    reportsDir,
    keysDir: paths.keys,
    ...lists,
    addApp: async (app) => void (await addApp(paths, app, Date.now())),
    addUser: (user) => addUser(paths, { name: `analyst ${(analysts += 1)}`, idAccount: 1, canExport: true, ...user }),
    async start(options = {}) {
      const { clockOffsetSeconds = 0, logger = createLogger('silent'), ...rest } = options;
      const { runAttempt, runDryRun, runDataQuery, ...others } = rest;
      const { clock = createClock(clockOffsetSeconds), ...given } = others;
      const access = await openAccessReader(paths, logger);
      const stage = await startExport(
        {
          access,
          clock,
          metrics: createMetrics(),
          logger,
          ...(runAttempt === undefined ? {} : { runAttempt }),
          ...(runDryRun === undefined ? {} : { runDryRun }),
          ...(runDataQuery === undefined ? {} : { runDataQuery }),
        },
        { ...defaults, ...given },
      );
      const stop = async (): Promise<void> => {
        await stage.stop();
        access.close();
      };
      return { ...createClient(stage.port), stage, stop };
    },
    async startProcess(options = {}, conditions = {}) {
      if (entry === undefined || !existsSync(entry))
        entry = bundleChild(path.join(dataDir, 'process'), 'export-process');
      const child = fork(entry, [JSON.stringify({ dataDir, options: { ...defaults, ...options }, conditions })], {
        stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      });
      const exited = once(child, 'exit');
      const ready = Promise.race([
        once(child, 'message'),
        exited.then(() => Promise.reject(new Error('the export process ended'))),
      ]);
      const [message] = (await within('the export process is ready', ready)) as [{ port: number }];
      const kill = async (): Promise<void> => {
        child.kill('SIGKILL');
        await within('the export process has exited', exited);
      };
      return { ...createClient(message.port), pid: child.pid ?? 0, exited, kill };
    },
  };
}
