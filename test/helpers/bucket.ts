import { once } from 'node:events';
import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { onTestFinished, vi } from 'vitest';
import { startFakeS3, type FakeS3 } from './fake-s3.ts';
import { testFolder } from './folder.ts';
import { findFreePort, isListening } from './free-ports.ts';
import { natsBinary } from './nats.ts';
import { waitFor } from './wait.ts';

/** Settings of a service whose lake, reports and state are in the bucket of a server. */
export function bucketSettings(endpoint: string): Readonly<Record<string, string>> {
  return {
    TRIBUTARY_STORAGE_URL: 's3://lake/tributary',
    TRIBUTARY_S3_ENDPOINT: endpoint,
    TRIBUTARY_S3_PATH_STYLE: 'on',
    AWS_ACCESS_KEY_ID: 'tester',
    AWS_SECRET_ACCESS_KEY: 'tester-secret',
    AWS_REGION: 'us-east-1',
  };
}

/** Lets commands in the tests' process find the credentials of a bucket, until the test ends. */
export function shareCredentials(settings: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(settings)) if (name.startsWith('AWS_')) vi.stubEnv(name, value);
  onTestFinished(() => void vi.unstubAllEnvs());
}

/** Starts a server of a bucket in memory until the test ends, and shares its credentials. */
export async function startTestBucket(): Promise<{
  readonly s3: FakeS3;
  readonly settings: Readonly<Record<string, string>>;
}> {
  const s3 = await startFakeS3();
  const settings = bucketSettings(s3.endpoint);
  shareCredentials(settings);
  return { s3, settings };
}

/** Starts a nats-server that fsyncs before it acknowledges, until the test ends; returns its address. */
export async function startTestBroker(): Promise<string> {
  const folder = testFolder();
  const port = await findFreePort();
  mkdirSync(folder, { recursive: true });
  const config = path.join(folder, 'nats.conf');
  writeFileSync(
    config,
    `listen: "127.0.0.1:${port}"\njetstream { store_dir: "${folder}/store", sync_interval: always }\n`,
  );
  const server = spawn(await natsBinary(), ['-c', config], { stdio: 'ignore' });
  onTestFinished(async () => {
    server.kill('SIGKILL');
    if (server.exitCode === null && server.signalCode === null) await once(server, 'exit');
  });
  await waitFor('nats-server listens', () => isListening(port));
  return `nats://127.0.0.1:${port}`;
}
