import { expect, test } from 'vitest';
import { eraseSteps } from '../../src/compact/erase.ts';
import { flushSteps } from '../../src/compact/flush.ts';
import { checkpointSteps } from '../../src/lake/checkpoint.ts';
import { cleanSteps } from '../../src/lake/clean.ts';
import { intentSteps } from '../../src/lake/intent.ts';
import { commitSteps } from '../../src/lake/table.ts';
import { countStored, expectNothingLeftOver, prepareCompactProcesses, publishBadEvent, publishEvents, readTotals, waitForAll } from '../helpers/compact-process.ts';
import { startLakeReaders } from '../helpers/lake-readers.ts';
import { waitFor } from '../helpers/wait.ts';

const processes = prepareCompactProcesses();

const compactSteps = [...commitSteps.flatMap((step) => [step, `${step}:3`, `${step}:6`]), ...flushSteps, ...intentSteps, 'file-renamed:3', ...checkpointSteps, ...cleanSteps];

test('a compactor killed at any step of flush, commit, seal, checkpoint and clean-up loses, doubles and tears nothing', async () => {
  const place = await processes.makePlace('steps');
  const { folder, publisher } = place;
  const ids = new Set<string>();
  const readers = startLakeReaders(folder, () => false);
  for (const step of compactSteps) {
    const { exited, child, isGone } = processes.start(place, { crashAt: step });
    // New events keep every step coming: flushes, seals, checkpoints, removed files; one event in each round fails.
    for (let round = 0; round < 500 && !isGone(); round += 1) {
      await publishEvents(publisher, ids, {});
      await publishBadEvent(publisher);
      await waitFor('the events are taken in, or the compactor is gone', async () => isGone() || (await countStored(folder)) >= ids.size);
    }
    // One that the step did not kill is told to stop, and ends with 0.
    child.kill('SIGTERM');
    expect(`${step} ${await exited}`).toBe(`${step} SIGKILL`);
  }
  const last = processes.start(place);
  await waitForAll(folder, ids);
  last.child.kill('SIGTERM');
  expect(await last.exited).toBe('0');
  await readers.stop();
  expect(readers.reads()).toBeGreaterThan(20);
  await expectNothingLeftOver(place, (crashAt) => processes.start(place, { crashAt }));
  const totals = await readTotals(folder);
  expect(totals?.stored).toBe(ids.size);
  expect(totals?.failed).toBeGreaterThan(0);
}, 400_000);

test('an erasure killed at any step can be repeated, and takes nothing but what it should', async () => {
  const place = await processes.makePlace('erase');
  const { folder, publisher } = place;
  const kept = new Set<string>();
  const compactor = processes.start(place);
  let erasing = false;
  const readers = startLakeReaders(folder, () => erasing);
  for (const step of [...eraseSteps, ...intentSteps, ...commitSteps]) {
    const victims = new Set<string>();
    for (let n = 0; n < 2; n += 1) {
      await publishEvents(publisher, victims, { custom_user_id: `victim of ${step}` });
      await publishEvents(publisher, kept, {});
    }
    await waitForAll(folder, new Set([...kept, ...victims]));
    erasing = true;
    const killed = processes.start(place, { erase: `victim of ${step}`, crashAt: step });
    expect(`${step} ${await killed.exited}`).toBe(`${step} SIGKILL`);
    const repeated = processes.start(place, { erase: `victim of ${step}` });
    expect(`${step} ${await repeated.exited}`).toBe(`${step} 0`);
    await waitForAll(folder, kept);
    erasing = false;
  }
  compactor.child.kill('SIGTERM');
  expect(await compactor.exited).toBe('0');
  await readers.stop();
  await expectNothingLeftOver(place, (crashAt) => processes.start(place, { crashAt }));
}, 400_000);

test('two compactors without a lock take turns by the fence alone, and lose and double nothing', async () => {
  const place = await processes.makePlace('rivals');
  const { folder, publisher } = place;
  const ids = new Set<string>();
  const readers = startLakeReaders(folder, () => false);
  const ends: string[] = [];
  // Each lives until it is fenced or until the other has been replaced a few times; then another takes its place.
  const rival = async (spool: string, lives: number): Promise<void> => {
    for (let life = 0; life < lives; life += 1) {
      const { child, exited } = processes.start(place, { spool, options: { withoutLock: true } });
      const stored = await countStored(folder);
      await Promise.race([exited, waitFor('it has stored some events', async () => (await countStored(folder)) >= stored + 20).catch(() => undefined)]);
      child.kill('SIGKILL');
      ends.push(await exited);
    }
  };
  const rivals = Promise.all([rival('spool-1', 5), rival('spool-2', 6)]);
  while (ends.length < 11) {
    await publishEvents(publisher, ids, {});
    await waitFor('the events are taken in, or all rivals are gone', async () => ends.length === 11 || (await countStored(folder)) >= ids.size);
  }
  await rivals;
  const last = processes.start(place);
  await waitForAll(folder, ids);
  last.child.kill('SIGTERM');
  await last.exited;
  await readers.stop();
  expect(ends).toContain('3');
  await expectNothingLeftOver(place, (crashAt) => processes.start(place, { crashAt }));
}, 400_000);
