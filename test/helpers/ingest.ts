import path from 'node:path';
import { addApp } from '../../src/access/apps.ts';
import type { AccessPaths } from '../../src/access/access-file.ts';
import { openAccessReader } from '../../src/access/store.ts';
import type { ClientDiagnosticsView } from '../../src/ingest/diagnostics-routes.ts';
import { startIngest, type Ingest, type IngestOptions } from '../../src/ingest/ingest.ts';
import { platforms, type Platform } from '../../src/datasets/field-schema.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { createMetrics, renderMetrics, type Metrics } from '../../src/runtime/metrics.ts';
import { openReceiptKeys } from '../../src/receipts/receipt-keys.ts';
import type { Logger } from '../../src/runtime/logger.ts';
import type { StreamConnection } from '../../src/stream/connection.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { openReader } from '../../src/stream/reader.ts';
import type { StreamReader } from '../../src/stream/stream.ts';
import { silentLogger, startTestNats, type TestNats, type TestNatsOptions } from './nats.ts';

/** The app of each platform that a test service has, by number. */
export const testApps: Readonly<Record<Platform, number>> = {
  'mobile-a': 1,
  'mobile-b': 2,
  web: 3,
  'mini-app': 4,
  game: 5,
};

/** A response in the form that tests compare. */
export interface ImportAnswer {
  readonly status: number;
  readonly body: string;
  readonly headers: Headers;
}

/** Ingest with a real broker and real access data, an app on each platform. */
export interface TestIngest {
  readonly url: string;
  readonly ingest: Ingest;
  readonly nats: TestNats;
  readonly connection: StreamConnection;
  readonly metrics: Metrics;
  readonly tokens: Readonly<Record<Platform, string>>;
  /**
   * Posts a body to a method as an app of the platform; `headers` add to the usual ones, or remove them if undefined.
   */
  post(
    platform: Platform,
    method: string,
    body: string | Uint8Array | object,
    headers?: Record<string, string>,
  ): Promise<ImportAnswer>;
  /** Returns the lines that the stream got since the last call, parsed. */
  newLines(): Promise<Record<string, unknown>[]>;
  /** Returns one metric's value, by the text of its line up to the value. */
  metric(line: string): Promise<number>;
  stop(): Promise<void>;
}

/** Requests a page and reads it completely. */
export async function ask(url: string, init: RequestInit): Promise<ImportAnswer> {
  const response = await fetch(url, init);
  return { status: response.status, body: await response.text(), headers: response.headers };
}

/** Starts everything that import needs in `folder`. */
export async function startTestIngest(
  folder: string,
  options: Partial<IngestOptions> &
    TestNatsOptions & {
      readonly logger?: Logger;
      readonly isDiskLow?: () => boolean;
      readonly receiptKeysDir?: string;
      readonly clientDiagnosticsView?: ClientDiagnosticsView;
    } = {},
): Promise<TestIngest> {
  const nats = await startTestNats(options);
  const paths: AccessPaths = { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') };
  const tokens: Partial<Record<Platform, string>> = {};
  for (const platform of platforms) {
    const app = { idApp: testApps[platform], platform, title: platform, idAccount: 1 };
    tokens[platform] = (await addApp(paths, app, Date.now())).token;
  }
  const access = await openAccessReader(paths, silentLogger);
  const metrics = createMetrics();
  const connection = await nats.connect();
  const reader: StreamReader = await openReader(connection);
  const receiptKeys = await openReceiptKeys(
    options.receiptKeysDir ?? paths.keys,
    createClock(0),
    options.logger ?? silentLogger,
  );
  const ingest = await startIngest(
    {
      access,
      receiptKeys,
      publisher: openPublisher(connection),
      clock: createClock(0),
      metrics,
      logger: options.logger ?? silentLogger,
      isDiskLow: options.isDiskLow ?? (() => false),
      ...(options.clientDiagnosticsView === undefined ? {} : { clientDiagnosticsView: options.clientDiagnosticsView }),
    },
    { host: '127.0.0.1', port: 0, ...options },
  );
  const url = `http://127.0.0.1:${ingest.port}`;
  const live = tokens as Record<Platform, string>;
  let seen = 0;

  return {
    url,
    ingest,
    nats,
    connection,
    metrics,
    tokens: live,
    post(platform, method, body, headers = {}) {
      const payload = typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body);
      return ask(`${url}/v1/${method}/?idApp=${testApps[platform]}`, {
        method: 'POST',
        headers: { authorization: live[platform], ...headers },
        body: payload,
      });
    },
    async newLines() {
      const lines: Record<string, unknown>[] = [];
      const { lastSequence } = await reader.state();
      for (; seen < lastSequence; seen += 1) {
        const message = await reader.findMessage(seen + 1);
        const text = Buffer.from(message?.payload ?? []).toString();
        lines.push(
          ...text
            .trimEnd()
            .split('\n')
            .map((line) => JSON.parse(line) as Record<string, unknown>),
        );
      }
      return lines;
    },
    async metric(line) {
      const { body } = await renderMetrics([await metrics.snapshot()]);
      const found = body.split('\n').find((text) => text.startsWith(`${line} `));
      return Number(found?.slice(line.length + 1) ?? Number.NaN);
    },
    async stop() {
      await ingest.stop();
      access.close();
      receiptKeys.close();
      await nats.stop();
    },
  };
}
