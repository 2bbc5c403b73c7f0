import { findFreePort, isListening } from './free-ports.ts';
import { execFile, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pass } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll } from 'vitest';
import { cacheFolder } from '../../src/nats-setup/ensure-nats-server.ts';
import { openS3Bucket, type S3Bucket, type S3Settings } from '../../src/runtime/store/s3-bucket.ts';
import { startFakeS3 } from './fake-s3.ts';
import { findPythonS3 } from './python-engines.ts';
import { isWhole } from './in-turn.ts';
import { waitFor } from './wait.ts';

const gateway = 'github.com/versity/versitygw/cmd/versitygw@v1.8.0';
/** Maximum duration of its build, ms. */
const buildMs = 1_500_000;
const credentials = { accessKeyId: 'tester', secretAccessKey: 'tester-secret' };

/** A server with one empty bucket. */
export interface S3Server {
  readonly settings: S3Settings & { readonly endpoint: string };
  /** Kills the server. */
  stop(): Promise<void>;
}

/** A server in a separate process. */
export interface S3Process extends S3Server {
  /** Starts a killed server again on its port; one that keeps objects in memory is empty then. */
  startAgain(): Promise<void>;
}

function noServer(why: string): undefined {
  process.stderr.write(`skipped: ${why}\n`);
}

/** Returns the path of versitygw, which a nightly run builds into the cache folder; undefined, with a notice, without it. */
export async function findGateway(): Promise<string | undefined> {
  const folder = path.join(cacheFolder(process.env), 'test-go', path.basename(gateway));
  const binary = path.join(folder, 'versitygw');
  if (existsSync(binary)) return binary;
  if (!isWhole) return noServer('versitygw is built in the nightly run (TRIBUTARY_TEST_WHOLE=1)');
  if (spawnSync('go', ['version']).status !== 0) {
    return noServer('versitygw cannot be built here, because Go is missing');
  }
  const staging = `${folder}.${process.pid}`;
  try {
    const env = { ...process.env, GOBIN: staging };
    await promisify(execFile)('go', ['install', gateway], { env, timeout: buildMs });
    mkdirSync(folder, { recursive: true });
    renameSync(path.join(staging, 'versitygw'), binary);
    return binary;
  } catch (error) {
    return noServer(`versitygw cannot be built here (${String(error).split('\n')[0]})`);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

/** Runs a server until `stop`, and creates a bucket in it. */
async function startServer(name: string, command: (port: number) => readonly string[]): Promise<S3Process> {
  const port = await findFreePort();
  const [program = '', ...words] = command(port);
  const env = {
    ...process.env,
    ROOT_ACCESS_KEY: credentials.accessKeyId,
    ROOT_SECRET_KEY: credentials.secretAccessKey,
  };
  const start = async (): Promise<ChildProcess> => {
    const started = spawn(program, words, { env, stdio: 'ignore' });
    await waitFor(
      `${name} accepts connections`,
      async () => started.exitCode !== null || (await isListening(port)),
      60_000,
    );
    return started;
  };
  let child = await start();
  const endpoint = `http://127.0.0.1:${port}`;
  const { S3 } = await import('@aws-sdk/client-s3');
  const s3 = new S3({ endpoint, credentials, region: 'us-east-1', forcePathStyle: true });
  await s3.createBucket({ Bucket: 'lake' });
  s3.destroy();
  return {
    settings: { bucket: 'lake', endpoint, pathStyle: true, credentials },
    async stop() {
      child.kill('SIGKILL');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    },
    async startAgain() {
      child = await start();
      // A connection of another program may have the port for a while.
      for (let tries = 0; child.exitCode !== null && tries < 20; tries += 1) {
        await pass(500);
        child = await start();
      }
      if (child.exitCode !== null) throw new Error(`${name} does not start again on port ${port}`);
    },
  };
}

/** Starts a server in memory, until the test ends. */
export async function startMemoryServer(): Promise<S3Server> {
  const { endpoint } = await startFakeS3();
  return { settings: { bucket: 'lake', endpoint, pathStyle: true, credentials }, stop: () => Promise.resolve() };
}

/** Starts versitygw on an empty folder; undefined, with a notice, if it is not available. */
export async function startGateway(folder: string): Promise<S3Process | undefined> {
  const binary = await findGateway();
  if (binary === undefined) return undefined;
  mkdirSync(path.join(folder, 'objects'), { recursive: true });
  return await startServer('versitygw', (port) => {
    const options = ['--port', `127.0.0.1:${port}`, '--keep-alive', '--quiet'];
    return [binary, ...options, 'posix', path.join(folder, 'objects')];
  });
}

/** Starts moto, which keeps objects in memory; undefined, with a notice, if it is not available. */
export async function startMoto(): Promise<S3Server | undefined> {
  if (!isWhole) return noServer('moto runs in the nightly run (TRIBUTARY_TEST_WHOLE=1)');
  const python = await findPythonS3();
  if (python === undefined) return undefined;
  return await startServer('moto', (port) => [python, '-m', 'moto.server', '-H', '127.0.0.1', '-p', String(port)]);
}

/** Starts a server for the tests of a block, with two clients of its bucket. Returns what finds them during a test. */
export function useServer(start: () => Promise<S3Server | undefined>) {
  let server: S3Server | undefined;
  let buckets: readonly S3Bucket[] = [];
  beforeAll(async () => {
    server = await start();
    if (server !== undefined) buckets = [await openS3Bucket(server.settings), await openS3Bucket(server.settings)];
  }, buildMs + 100_000);
  afterAll(async () => {
    for (const bucket of buckets) bucket.close();
    await server?.stop();
  });
  return { findServer: () => server, listBuckets: () => buckets };
}
