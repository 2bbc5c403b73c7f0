import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { findFolderLocation } from '../../../src/runtime/files/folder-id.ts';
import { watchClusterSync } from '../../../src/stream/broker-monitor.ts';
import { awaitLeader, openConnection, type StreamConnection } from '../../../src/stream/connection.ts';
import { openGuard } from '../../../src/stream/guard.ts';
import { ownStream, type StreamOwner } from '../../../src/stream/owner.ts';
import { openPublisher } from '../../../src/stream/publisher.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { startTestCluster, type TestCluster } from '../../helpers/nats-cluster.ts';
import { silentLogger } from '../../helpers/nats.ts';
import { testFolder } from '../../helpers/folder.ts';

beforeEach(oneTestIn(3));

const streamName = 'SHARED';
const payload = Buffer.from('{}\n');

async function startCluster(options: Parameters<typeof startTestCluster>[0] = {}): Promise<TestCluster> {
  const cluster = await startTestCluster(options);
  onTestFinished(() => cluster.stop());
  return cluster;
}

async function connect(cluster: TestCluster): Promise<StreamConnection> {
  const connection = await awaitLeader(() => openConnection({ url: cluster.url, name: 'test', logger: silentLogger }));
  onTestFinished(() => connection.close());
  return connection;
}

/** Claims the stream for a data folder, as the start of a service does. */
async function claim(connection: StreamConnection, folder: string, replicas = 0): Promise<StreamOwner> {
  mkdirSync(folder, { recursive: true });
  const options = {
    streamName,
    maxBytes: 2 ** 24,
    lake: { id: 'lake-1', findStreamId: () => Promise.resolve(undefined) },
    claimFile: path.join(folder, 'stream-claim.json'),
    livenessFolder: path.join(folder, 'run'),
    place: findFolderLocation(folder),
    replicas,
    exclusive: false,
    leaseMs: 300,
    logger: silentLogger,
  };
  const owner = await awaitLeader(() => ownStream(connection, options));
  onTestFinished(() => owner.stop());
  return owner;
}

async function openPublisherOf(connection: StreamConnection, folder: string) {
  const claimFile = path.join(folder, 'stream-claim.json');
  const guard = await openGuard(connection, { streamName, claimFile, logger: silentLogger });
  onTestFinished(() => guard.stop());
  return openPublisher(connection, guard);
}

async function countReplicas(connection: StreamConnection): Promise<number> {
  const manager = await jetstreamManager(connection.nats);
  return (await manager.streams.info(streamName)).config.num_replicas;
}

async function findLeader(connection: StreamConnection): Promise<string> {
  const manager = await jetstreamManager(connection.nats);
  return (await manager.streams.info(streamName)).cluster?.leader ?? '';
}

test('A stream in a cluster has three copies; an offline server is a warning until it is back', async () => {
  const cluster = await startCluster();
  const connection = await connect(cluster);
  const folder = testFolder();
  const owner = await claim(connection, folder);
  expect(await countReplicas(connection)).toBe(3);
  const publisher = await openPublisherOf(connection, folder);
  const leader = await findLeader(connection);
  const other = cluster.names.find((name) => name !== leader) ?? '';
  await cluster.kill(other);
  await expect
    .poll(() => owner.notices(), { timeout: 30_000 })
    .toContainEqual(expect.objectContaining({ code: 'stream_replica_behind', subject: other }));
  await expect
    .poll(() => publisher.publish(payload, 5000).then(() => 'stored', String), { timeout: 30_000 })
    .toBe('stored');
  await cluster.start(other);
  await expect.poll(() => owner.notices(), { timeout: 60_000 }).toEqual([]);
}, 180_000);

test('A start raises the copies of a stream and never lowers them; too few servers are a warning', async () => {
  const cluster = await startCluster();
  const connection = await connect(cluster);
  const folder = testFolder();
  await (await claim(connection, folder, 1)).stop();
  expect(await countReplicas(connection)).toBe(1);
  await (await claim(connection, folder, 3)).stop();
  expect(await countReplicas(connection)).toBe(3);
  await (await claim(connection, folder, 1)).stop();
  expect(await countReplicas(connection)).toBe(3);
  const owner = await claim(connection, folder, 5);
  await expect
    .poll(() => owner.notices(), { timeout: 20_000 })
    .toContainEqual(expect.objectContaining({ code: 'stream_replicas_missing' }));
}, 180_000);

test('Imports continue without a server that hangs, also if it leads the stream', async () => {
  const cluster = await startCluster();
  const connection = await connect(cluster);
  const folder = testFolder();
  await claim(connection, folder);
  const publisher = await openPublisherOf(connection, folder);
  const stored = async () => {
    try {
      await publisher.publish(payload, 1000);
      return 'stored';
    } catch (error) {
      return String(error);
    }
  };
  await expect.poll(stored, { timeout: 60_000 }).toBe('stored');
  for (const hung of [connection.nats.info?.server_name ?? '', await findLeader(connection)]) {
    cluster.pause(hung);
    const startedAt = performance.now();
    await expect.poll(stored, { timeout: 40_000, interval: 50 }).toBe('stored');
    process.stderr.write(`cluster: imports waited ${Math.round(performance.now() - startedAt)} ms for a hung server\n`);
    cluster.resume(hung);
    await expect.poll(stored, { timeout: 40_000, interval: 50 }).toBe('stored');
  }
}, 240_000);

test('A start right after the leader was killed waits for the next one', async () => {
  const cluster = await startCluster();
  const first = await connect(cluster);
  const folder = testFolder();
  await (await claim(first, folder)).stop();
  await cluster.kill(await findLeader(first));
  const owner = await claim(await connect(cluster), folder);
  await expect.poll(() => owner.problems(), { timeout: 30_000 }).toEqual([]);
}, 180_000);

test('A server that acknowledges before its fsync refuses a start, and is a warning later; without a system account that is unchecked', async () => {
  const cluster = await startCluster({ unsafe: ['n2'] });
  await expect(watchClusterSync(cluster.systemUrl, silentLogger)).rejects.toMatchObject({
    code: 'broker_unsafe',
    message: expect.stringContaining('n2') as string,
  });
  const unchecked = await watchClusterSync(undefined, silentLogger);
  expect(unchecked.warnings().map(({ code }) => code)).toEqual(['broker_sync_unchecked']);
  const safe = await startCluster();
  const checked = await watchClusterSync(safe.systemUrl, silentLogger, 500);
  onTestFinished(() => checked.stop());
  expect(checked.warnings()).toEqual([]);
  await safe.kill('n3');
  await safe.start('n3', true);
  await expect
    .poll(() => checked.warnings(), { timeout: 30_000 })
    .toContainEqual(expect.objectContaining({ code: 'broker_sync_unsafe', subject: 'n3' }));
}, 120_000);
