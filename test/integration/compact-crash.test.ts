import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { eraseSteps } from '../../src/compact/erase.ts';
import { flushSteps } from '../../src/compact/flush.ts';
import { checkLake } from '../../src/lake/check.ts';
import { checkpointSteps } from '../../src/lake/checkpoint.ts';
import { cleanSteps } from '../../src/lake/clean.ts';
import { intentSteps } from '../../src/lake/intent.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/snapshot.ts';
import { commitSteps } from '../../src/lake/table.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import type { StreamPublisher } from '../../src/stream/stream.ts';
import { compileSources } from '../helpers/compiled.ts';
import { startTestNats } from '../helpers/nats.ts';
import { eventLine, readRows } from '../helpers/lake.ts';
import { startLakeReaders } from '../helpers/lake-readers.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { waitFor } from '../helpers/wait.ts';

const compiled = temporaryFolder();
let dist: string;
const children = new Set<ChildProcess>();

beforeAll(() => {
  dist = compileSources(compiled);
}, 180_000);
afterAll(() => {
  for (const child of children) child.kill('SIGKILL');
});

/** A lake to be, and a broker with a stream of its own. */
interface Place {
  readonly folder: string;
  readonly url: string;
  readonly publisher: StreamPublisher;
}

async function makePlace(name: string): Promise<Place> {
  const nats = await startTestNats();
  onTestFinished(() => nats.stop());
  const { url, address } = nats.current();
  return { folder: path.join(compiled, name), url: url.replace('nats://', `nats://${address.user}:${address.password}@`), publisher: openPublisher(await nats.connect()) };
}

interface ChildSettings {
  readonly crashAt?: string;
  readonly spool?: string;
  readonly erase?: string;
  readonly options?: Readonly<Record<string, unknown>>;
}

/** Starts a compactor, or an erasure, in a process of its own. */
function startChild({ folder, url }: Place, settings: ChildSettings = {}): { readonly child: ChildProcess; readonly exited: Promise<string> } {
  const script = path.join(import.meta.dirname, '..', 'helpers', 'compact-child.mjs');
  const child = spawn(process.execPath, [script, dist, JSON.stringify({ folder, url, ...settings })], { stdio: ['ignore', 'ignore', 'inherit'] });
  children.add(child);
  const exited = once(child, 'exit').then(([code, signal]) => {
    children.delete(child);
    return String(signal ?? code);
  });
  return { child, exited };
}

/** Publishes events of a user and remembers their ids. */
async function publish(publisher: StreamPublisher, ids: Set<string>, members: Readonly<Record<string, unknown>>): Promise<void> {
  const lines = Array.from({ length: 5 }, (_, n) => eventLine({ event_time: 1_700_000_000 + n * 40_000, ...members }));
  for (const line of lines) ids.add(String(line['event_id']));
  await publisher.publish(Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join('')), 5000);
}

async function countStored(folder: string): Promise<number> {
  return (await readSnapshot(lakePaths(path.join(folder, 'lake')).table)).lake?.totals.stored ?? 0;
}

async function waitForAll(folder: string, ids: ReadonlySet<string>): Promise<void> {
  await waitFor('every acknowledged event is in the lake', async () => {
    const rows = await readRows(folder, 'event_id').catch(() => []);
    return rows.length >= ids.size;
  }, 60_000);
  const rows = (await readRows(folder, 'event_id')).map((row) => String(row['event_id']));
  expect(new Set(rows)).toEqual(ids);
  expect(rows.length).toBe(ids.size);
}

/** After one more start, which sweeps: no staged work, no temporary, no file that the log does not know. */
async function expectNothingLeftOver(place: Place): Promise<void> {
  const { folder } = place;
  const { version } = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
  const sweeper = startChild(place, { crashAt: 'swept' });
  expect(await sweeper.exited).toBe('SIGKILL');
  expect((await readSnapshot(lakePaths(path.join(folder, 'lake')).table)).version).toBeGreaterThan(version);
  const lakeDir = path.join(folder, 'lake');
  const paths = lakePaths(lakeDir);
  await waitFor('staging is empty', async () => (await readdir(paths.staging)).length === 0);
  const names = await readdir(lakeDir, { recursive: true });
  expect(names.filter((name) => name.endsWith('.tmp') || name.includes('pending-'))).toEqual([]);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
}

const compactSteps = [...commitSteps.flatMap((step) => [step, `${step}:3`, `${step}:6`]), ...flushSteps, ...intentSteps, 'file-renamed:3', ...checkpointSteps, ...cleanSteps];

test('a compactor killed at any step of flush, commit, seal, checkpoint and clean-up loses, doubles and tears nothing', async () => {
  const place = await makePlace('steps');
  const { folder, publisher } = place;
  const ids = new Set<string>();
  const readers = startLakeReaders(folder, () => false);
  for (const step of compactSteps) {
    const { exited, child } = startChild(place, { crashAt: step });
    const isGone = (): boolean => child.exitCode !== null || child.signalCode !== null;
    // New events keep every step coming: flushes, seals, checkpoints, removed files; one event in each round fails.
    for (let round = 0; round < 500 && !isGone(); round += 1) {
      await publish(publisher, ids, {});
      await publisher.publish(Buffer.from(`${JSON.stringify(eventLine({ age: 'x' }))}\n`), 5000);
      await waitFor('the events are taken in, or the compactor is gone', async () => isGone() || (await countStored(folder)) >= ids.size);
    }
    // One that the step did not kill is told to stop, and ends with 0.
    child.kill('SIGTERM');
    expect(`${step} ${await exited}`).toBe(`${step} SIGKILL`);
  }
  const last = startChild(place);
  await waitForAll(folder, ids);
  last.child.kill('SIGTERM');
  expect(await last.exited).toBe('0');
  await readers.stop();
  expect(readers.reads()).toBeGreaterThan(20);
  await expectNothingLeftOver(place);
  const { lake } = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
  expect(lake?.totals.stored).toBe(ids.size);
  expect(lake?.totals.failed).toBeGreaterThan(0);
}, 400_000);

test('an erasure killed at any step can be repeated, and takes nothing but what it should', async () => {
  const place = await makePlace('erase');
  const { folder, publisher } = place;
  const kept = new Set<string>();
  const compactor = startChild(place);
  let erasing = false;
  const readers = startLakeReaders(folder, () => erasing);
  for (const step of [...eraseSteps, ...intentSteps, ...commitSteps]) {
    const victims = new Set<string>();
    for (let n = 0; n < 2; n += 1) {
      await publish(publisher, victims, { custom_user_id: `victim of ${step}` });
      await publish(publisher, kept, {});
    }
    await waitForAll(folder, new Set([...kept, ...victims]));
    erasing = true;
    const killed = startChild(place, { erase: `victim of ${step}`, crashAt: step });
    expect(`${step} ${await killed.exited}`).toBe(`${step} SIGKILL`);
    const repeated = startChild(place, { erase: `victim of ${step}` });
    expect(`${step} ${await repeated.exited}`).toBe(`${step} 0`);
    await waitForAll(folder, kept);
    erasing = false;
  }
  compactor.child.kill('SIGTERM');
  expect(await compactor.exited).toBe('0');
  await readers.stop();
  await expectNothingLeftOver(place);
}, 400_000);

test('two compactors without a lock take turns by the fence alone, and lose and double nothing', async () => {
  const place = await makePlace('rivals');
  const { folder, publisher } = place;
  const ids = new Set<string>();
  const readers = startLakeReaders(folder, () => false);
  const ends: string[] = [];
  // Each lives until it is fenced or until the other has been replaced a few times; then another takes its place.
  const rival = async (spool: string, lives: number): Promise<void> => {
    for (let life = 0; life < lives; life += 1) {
      const { child, exited } = startChild(place, { spool, options: { withoutLock: true } });
      const stored = await countStored(folder);
      await Promise.race([exited, waitFor('it has stored some events', async () => (await countStored(folder)) >= stored + 20).catch(() => undefined)]);
      child.kill('SIGKILL');
      ends.push(await exited);
    }
  };
  const rivals = Promise.all([rival('spool-1', 5), rival('spool-2', 6)]);
  while (ends.length < 11) {
    await publish(publisher, ids, {});
    await waitFor('the events are taken in, or all rivals are gone', async () => ends.length === 11 || (await countStored(folder)) >= ids.size);
  }
  await rivals;
  const last = startChild(place);
  await waitForAll(folder, ids);
  last.child.kill('SIGTERM');
  await last.exited;
  await readers.stop();
  expect(ends).toContain('3');
  await expectNothingLeftOver(place);
}, 400_000);
