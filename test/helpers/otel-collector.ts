import { execFile, spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { onTestFinished } from 'vitest';
import { cacheFolder } from '../../src/nats-setup/ensure-nats-server.ts';
import { findFreePort, isListening } from './free-ports.ts';
import { isWhole } from './in-turn.ts';
import { waitFor } from './wait.ts';

const source = path.resolve(import.meta.dirname, '../fixtures/otel-collector');
/** Release of its modules in go.mod. */
const release = '0.165.0';
/** Maximum duration of its build, ms. */
const buildMs = 1_500_000;

function noCollector(why: string): undefined {
  process.stderr.write(`skipped: ${why}\n`);
}

/** Builds the collector into the cache folder, in a nightly run; undefined, with a notice, without it. */
async function findCollector(): Promise<string | undefined> {
  const binary = path.join(cacheFolder(process.env), 'test-go', `otel-collector-${release}`, 'collector');
  if (existsSync(binary)) return binary;
  if (!isWhole) return noCollector('the OpenTelemetry Collector is built in the nightly run (TRIBUTARY_TEST_WHOLE=1)');
  const env = { ...process.env, GOFLAGS: '-mod=mod', PATH: `${process.env['PATH'] ?? ''}:/usr/local/go/bin` };
  if (spawnSync('go', ['version'], { env }).status !== 0)
    return noCollector('Go is missing, which builds the collector');
  const staging = `${path.dirname(binary)}.${process.pid}`;
  try {
    cpSync(source, staging, { recursive: true });
    const run = (...words: string[]) => promisify(execFile)('go', words, { cwd: staging, env, timeout: buildMs });
    await run('mod', 'tidy');
    await run('build', '-o', 'collector', '.');
    mkdirSync(path.dirname(binary), { recursive: true });
    renameSync(path.join(staging, 'collector'), binary);
    return binary;
  } catch (error) {
    return noCollector(`the OpenTelemetry Collector cannot be built here (${String(error).split('\n')[0]})`);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

/** A span in the log of the collector, with its text. */
export interface LoggedSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly text: string;
}

const fieldOf = (text: string, field: string): string =>
  new RegExp(`^\\s+${field}\\s*: ?(.*)$`, 'm').exec(text)?.[1]?.trim() ?? '';

/** Reads the spans that the collector's debug exporter has logged in detail. */
function readLog(log: string): LoggedSpan[] {
  const [, ...spans] = log.split(/^Span #\d+$/m);
  return spans.map((text) => ({
    name: fieldOf(text, 'Name'),
    traceId: fieldOf(text, 'Trace ID'),
    spanId: fieldOf(text, 'ID'),
    parentSpanId: fieldOf(text, 'Parent ID'),
    text,
  }));
}

/** Starts the OpenTelemetry Collector until the test ends; undefined, with a notice, if it cannot be built. */
export async function startCollector() {
  const binary = await findCollector();
  if (binary === undefined) return undefined;
  const port = await findFreePort();
  const endpoint = `127.0.0.1:${port}`;
  const settings = {
    receivers: { otlp: { protocols: { http: { endpoint } } } },
    exporters: { debug: { verbosity: 'detailed' } },
    service: {
      pipelines: { traces: { receivers: ['otlp'], exporters: ['debug'] } },
      telemetry: { metrics: { level: 'none' } },
    },
  };
  const child = spawn(binary, ['--config', `yaml:${JSON.stringify(settings)}`], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (log += text));
  await waitFor(
    'the collector accepts connections',
    async () => {
      if (child.exitCode !== null) throw new Error(`the collector exited: ${log}`);
      return isListening(port);
    },
    60_000,
  );
  return { url: `http://${endpoint}`, log: (): string => log, spans: (): LoggedSpan[] => readLog(log) };
}
