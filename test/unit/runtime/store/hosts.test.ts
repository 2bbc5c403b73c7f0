import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createLogger } from '../../../../src/runtime/logger.ts';
import { createFolderStore } from '../../../../src/runtime/store/folder-store.ts';
import { assertCompatible, openHosts, type Host, type HostDescription } from '../../../../src/runtime/store/hosts.ts';
import type { ObjectStore } from '../../../../src/runtime/store/object-store.ts';
import { pause } from '../../../../src/runtime/async/retry.ts';
import { openFakeStore, startFakeS3 } from '../../../helpers/fake-s3.ts';
import { testFolder } from '../../../helpers/folder.ts';

const logger = createLogger('silent');
const beatMs = 400;
const dayMs = 86_400_000;

const describeHost = (name: string, program = '0.4.1'): HostDescription => ({
  name,
  roles: ['ingest', 'export'],
  program,
  startedAt: '2026-01-01T00:00:00.000Z',
});

/** Opens a host, with a clock that a test can set forward, or slow down. */
function open(store: ObjectStore, name: string, { runFolder = testFolder(), program = '0.4.1', pace = 1 } = {}) {
  const ahead = { ms: 0 };
  const clock = { nowMs: () => performance.now() * pace + ahead.ms, pause };
  const hosts = openHosts(store, describeHost(name, program), { runFolder, logger, beatMs, clock });
  onTestFinished(() => hosts.stop());
  const statesOf = async (): Promise<Record<string, boolean | undefined>> =>
    Object.fromEntries((await hosts.list()).map((host) => [host.name, host.isAlive]));
  return { ...hosts, runFolder, ahead, statesOf };
}

describe.each([
  { where: 'a folder', openStore: async () => createFolderStore(testFolder()) },
  { where: 'S3', openStore: async () => await openFakeStore(await startFakeS3()) },
])('hosts in $where', ({ openStore }) => {
  it('A host lists the others, and says that one is alive only when it has observed that', async () => {
    const store = await openStore();
    const [one, other] = [open(store, 'web-1'), open(store, 'web-2')];
    await one.start();
    expect(await other.statesOf()).toEqual({ 'web-1': undefined });
    await expect.poll(other.statesOf).toEqual({ 'web-1': true });
    await other.start();
    expect((await other.list()).find(({ name }) => name === 'web-2')).toEqual({
      ...describeHost('web-2'),
      id: other.id(),
      isAlive: true,
    });
    await expect.poll(one.statesOf).toEqual({ 'web-1': true, 'web-2': true });
    await one.stop();
    await one.stop();
    expect(await other.statesOf()).toEqual({ 'web-2': true });
  });

  it('A host that is silent is dead after three beats, and its record is removed after a day without a change', async () => {
    const store = await openStore();
    const [one, other] = [open(store, 'web-1'), open(store, 'web-2')];
    await one.start();
    const key = `hosts/${one.id()}.json`;
    const record = (await store.get(key))?.bytes ?? Buffer.from('');
    await one.stop();
    await store.create(key, record);
    expect(await other.statesOf()).toEqual({ 'web-1': undefined });
    await expect.poll(other.statesOf).toEqual({ 'web-1': false });
    other.ahead.ms = dayMs / 2;
    expect(await other.statesOf()).toEqual({ 'web-1': false });
    other.ahead.ms = dayMs;
    expect(await other.statesOf()).toEqual({});
    expect(await store.list('hosts/')).toEqual([]);
  });

  it('Of two running hosts with one id, the earlier one takes another id', async () => {
    const store = await openStore();
    const one = open(store, 'web-1');
    // The disk of a cloned machine: the same folder for both.
    const other = open(store, 'web-2', { runFolder: one.runFolder });
    expect(other.id()).toBe(one.id());
    const former = one.id();
    await one.start();
    await other.start();
    await expect.poll(() => one.id()).not.toBe(former);
    expect(other.id()).toBe(former);
    await expect.poll(one.statesOf).toEqual({ 'web-1': true, 'web-2': true });
    expect(readFileSync(path.join(one.runFolder, 'host.json'), 'utf8')).toContain(one.id());
  });

  it('A host does not start while one of another minor version runs, and does after that one was killed', async () => {
    const store = await openStore();
    const one = open(store, 'web-1', { program: '0.4.7' });
    await one.start();
    await open(store, 'web-2', { program: '0.4.0' }).start();
    const newer = open(store, 'web-3', { program: '0.5.0' });
    const refusal = {
      code: 'start_failed',
      message: expect.stringMatching(/0\.5\.0 .*web-1 \(host \w+, version 0\.4\.7\)/),
    };
    await expect(newer.start()).rejects.toMatchObject(refusal);
    expect(await one.statesOf()).not.toHaveProperty('web-3');
  });

  it('A host starts next to the record of a killed one of another minor version', async () => {
    const store = await openStore();
    const one = open(store, 'web-1', { program: '0.4.7' });
    await one.start();
    const key = `hosts/${one.id()}.json`;
    const record = (await store.get(key))?.bytes ?? Buffer.from('');
    await one.stop();
    await store.create(key, record);
    const newer = open(store, 'web-3', { program: '0.5.0' });
    await newer.start();
    expect(await newer.statesOf()).toEqual({ 'web-1': false, 'web-3': true });
  });
});

describe('the id of a host', () => {
  const store = createFolderStore('/nonexistent');
  const idIn = (runFolder: string): string => openHosts(store, describeHost('web'), { runFolder, logger }).id();

  it('A host keeps its id across restarts; an emptied, copied or damaged folder gets a new one', () => {
    const runFolder = path.join(testFolder(), 'run');
    const id = idIn(runFolder);
    expect(idIn(runFolder)).toBe(id);
    const copy = path.join(testFolder(), 'copy');
    cpSync(runFolder, copy, { recursive: true });
    const copied = idIn(copy);
    expect([idIn(copy), idIn(runFolder)]).toEqual([copied, id]);
    writeFileSync(path.join(copy, 'host.json'), '{"id":');
    const damaged = idIn(copy);
    rmSync(runFolder, { recursive: true });
    expect(new Set([id, copied, damaged, idIn(runFolder)]).size).toBe(4);
  });
});

const host = (program: string, isAlive: boolean | undefined): Host => ({
  ...describeHost('web', program),
  id: '0123456789ab',
  isAlive,
});

describe('the check of versions', () => {
  it('Hosts of one minor version run concurrently, and a dead host does not matter', () => {
    const self = { program: '0.4.1' };
    assertCompatible(self, [host('0.4.0', true), host('0.4.9', undefined), host('0.5.0', false)]);
    for (const other of [host('0.5.0', true), host('0.3.1', undefined), host('1.4.1', true), host('unknown', true)])
      expect(() => assertCompatible(self, [host('0.4.1', true), other])).toThrow(
        expect.objectContaining({ code: 'start_failed', hint: expect.stringContaining('Stop those hosts') }),
      );
  });

  it('A host that uses another stream than a running one is refused, and both names are in the error', async () => {
    const store = createFolderStore(testFolder());
    const [one, other] = [open(store, 'web-1'), open(store, 'web-2')];
    // By a slow clock, no host of a slow machine seems dead.
    const third = open(store, 'web-3', { pace: 0.05 });
    await one.start();
    await one.useStream('EVENTS@1');
    await other.start();
    await other.useStream('EVENTS@1');
    await third.start();
    await expect(third.useStream('EVENTS@2')).rejects.toMatchObject({
      code: 'start_failed',
      message: expect.stringMatching(
        /web-[12] \(host \w+\) uses the stream EVENTS@1, and this host the stream EVENTS@2/,
      ),
    });
  });
});
