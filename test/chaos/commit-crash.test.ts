import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { eraseSteps } from '../../src/admin/erase/erase.ts';
import { flushSteps } from '../../src/compact/batch/flush.ts';
import { loadKeysStep } from '../../src/compact/startup-work.ts';
import { checkpointSteps } from '../../src/lake/log/checkpoint.ts';
import { cleanSteps } from '../../src/lake/cleanup.ts';
import { changeSteps } from '../../src/lake/files/change.ts';
import { mergedFolderSteps } from '../../src/lake/files/merged-folders.ts';
import { commitSteps } from '../../src/lake/log/table.ts';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import {
  countStored,
  expectNothingLeftOver,
  prepareCompactProcesses,
  publishBadEvent,
  publishEvents,
  publishRevenue,
  waitForAll,
} from '../helpers/compact-process.ts';
import { inTurn, oneTestIn } from '../helpers/in-turn.ts';
import { readTotals } from '../helpers/lake.ts';
import { readPayments, readPaymentTotals } from '../helpers/revenue.ts';
import { startLakeReaders } from '../helpers/lake-readers.ts';
import { waitFor } from '../helpers/wait.ts';

beforeEach(oneTestIn(2));

/** Number of kills at each step; later sweeps use another order and a random pass. */
const sweeps = chaosFigure('TRIBUTARY_TEST_SWEEPS', { short: 1, long: 2 });
const seed = chaosSeed();
const again = `make chaos PART=commit-crash SEED=${seed}`;
const wanted = '0 torn, doubled or vanished rows for readers of the snapshot and of the sealed files';

const processes = prepareCompactProcesses();

/**
 * Passes of a commit's step at which the kill happens: the commits of the start come before those of flush and seal.
 * The short form selects one of two.
 */
const draw = createRandom(seed);
const passesOf = (): readonly number[] => (isLongRun ? [1, 4] : [draw.pick([1, 4])]);
const compactSteps = [
  ...commitSteps.flatMap((step) => passesOf().map((pass) => `${step}:${pass}`)),
  ...flushSteps,
  ...changeSteps,
  ...(isLongRun ? ['file-linked:3'] : []),
  ...checkpointSteps,
  ...cleanSteps,
  ...mergedFolderSteps,
  loadKeysStep,
];

/** Steps that a compactor passes once, at its start. */
const startSteps = ['swept', loadKeysStep];

/** Returns the steps of a sweep: the first in their order, later ones in random order at a random pass. */
function stepsOfSweep(sweep: number, random: Random): readonly string[] {
  if (sweep === 0) return inTurn(compactSteps, 6);
  const drawn = compactSteps.map((step) => ({
    step: startSteps.includes(step) ? step : `${step.split(':')[0] ?? step}:${random.integer(1, 4)}`,
    at: random.next(),
  }));
  return drawn.toSorted((a, b) => a.at - b.at).map(({ step }) => step);
}

test(
  'A compactor killed at any step of flush, commit, seal, checkpoint and clean-up loses no event, stores none twice and shows no torn commit',
  async () => {
    const random = createRandom(seed);
    const place = await processes.makePlace('steps');
    const { folder, publisher } = place;
    const ids = new Set<string>();
    const transactions = new Set<string>();
    const readers = startLakeReaders(folder);
    let kills = 0;
    for (let sweep = 0; sweep < sweeps; sweep += 1) {
      for (const step of stepsOfSweep(sweep, random)) {
        const { exited, child, isGone } = processes.start(place, { crashAt: step });
        // New events cause every step again: flushes, seals, checkpoints, removed files; one event in each round fails.
        for (let round = 0; round < 500 && !isGone(); round += 1) {
          await publishEvents(publisher, ids, {});
          await publishRevenue(publisher, ids, transactions);
          await publishBadEvent(publisher);
          await waitFor(
            'the events are committed, or the compactor has exited',
            async () => isGone() || (await countStored(folder)) >= ids.size,
            120_000,
          );
        }
        // A compactor that the step did not kill is stopped, and exits with 0.
        child.kill('SIGTERM');
        expect(`${step} ${await exited}`).toBe(`${step} SIGKILL`);
        kills += 1;
      }
    }
    const last = processes.start(place);
    // events that only this one commits: before it runs, a signal would end it like any program
    await publishEvents(publisher, ids, {});
    await waitForAll(folder, ids);
    last.child.kill('SIGTERM');
    expect(await last.exited).toBe('0');
    await readers.stop();
    expect(readers.reads()).toBeGreaterThan(20);
    await expectNothingLeftOver(place, (crashAt) => processes.start(place, { crashAt }));
    const totals = await readTotals(path.join(folder, 'lake'));
    expect(totals?.stored).toBe(ids.size);
    expect(totals?.failed).toBeGreaterThan(0);
    // Two tables, two commits per batch: each transaction is stored once, and each log accounts for its lines.
    const payments = (await readPayments(folder)).map((row) => String(row['id_transaction']));
    expect(payments).toEqual([...transactions].toSorted());
    expect(await readPaymentTotals(folder)).toMatchObject({
      streamed: 2 * transactions.size,
      stored: transactions.size,
      repeats: transactions.size,
    });
    const figures = {
      steps: compactSteps.length,
      kills,
      events: ids.size,
      reads: readers.reads(),
      repeatedGlobReads: readers.repeats(),
      tornRows: 0,
      doubledRows: 0,
      vanishedRows: 0,
    };
    recordFinding({
      promise: 'P4',
      what: 'compactor killed at each step of flush, commit, seal, merge, checkpoint and clean-up',
      wanted,
      figures,
      reached: true,
      seed,
      again,
    });
  },
  sweeps * 400_000,
);

test('An erasure killed at any step can be repeated, and removes only the events that it should', async () => {
  const place = await processes.makePlace('erase');
  const { folder, publisher } = place;
  const kept = new Set<string>();
  const compactor = processes.start(place);
  // An erasure rewrites files as a seal does, which the sweep above kills at every step: the short form selects some.
  const steps = inTurn([...eraseSteps, ...changeSteps, ...commitSteps], 8);
  const readers = startLakeReaders(folder, "NOT starts_with(custom_user_id, 'victim')");
  for (const step of steps) {
    const victims = new Set<string>();
    for (let n = 0; n < 2; n += 1) {
      await publishEvents(publisher, victims, { custom_user_id: `victim of ${step}` });
      await publishEvents(publisher, kept, {});
    }
    await waitForAll(folder, new Set([...kept, ...victims]));
    const killed = processes.start(place, { erase: `victim of ${step}`, crashAt: step });
    expect(`${step} ${await killed.exited}`).toBe(`${step} SIGKILL`);
    const repeated = processes.start(place, { erase: `victim of ${step}` });
    expect(`${step} ${await repeated.exited}`).toBe(`${step} 0`);
    await waitForAll(folder, kept);
  }
  compactor.child.kill('SIGTERM');
  expect(await compactor.exited).toBe('0');
  await readers.stop();
  await expectNothingLeftOver(place, (crashAt) => processes.start(place, { crashAt }));
  const figures = {
    steps: steps.length,
    kills: steps.length,
    keptEvents: kept.size,
    reads: readers.reads(),
    repeatedGlobReads: readers.repeats(),
    tornRows: 0,
    doubledRows: 0,
    vanishedRows: 0,
  };
  recordFinding({
    promise: 'P4',
    what: 'erasure killed at each of its steps, then repeated',
    wanted: '0 rows taken but those to be erased, none of those left',
    figures,
    reached: true,
    seed,
    again,
  });
}, 400_000);

test(
  'Two compactors without a lock are serialised by the fence alone, and lose no event and store none twice',
  async ({ skip }) => {
    inLongForm(skip);
    const place = await processes.makePlace('rivals');
    const { folder, publisher } = place;
    const ids = new Set<string>();
    const transactions = new Set<string>();
    const readers = startLakeReaders(folder);
    const lives = isLongRun ? 12 : 3;
    const ends: string[] = [];
    // Each runs until it is fenced or until the other was replaced a few times; then another one follows.
    const rival = async (spool: string, turns: number): Promise<void> => {
      for (let life = 0; life < turns; life += 1) {
        const { child, exited } = processes.start(place, { spool, options: { withoutLock: true } });
        const stored = await countStored(folder);
        await Promise.race([
          exited,
          waitFor('it has stored some events', async () => (await countStored(folder)) >= stored + 20).catch(
            () => undefined,
          ),
        ]);
        child.kill('SIGKILL');
        ends.push(await exited);
      }
    };
    const rivals = Promise.all([rival('spool-1', lives - 1), rival('spool-2', lives)]);
    while (ends.length < 2 * lives - 1) {
      await publishEvents(publisher, ids, {});
      await publishRevenue(publisher, ids, transactions);
      await waitFor(
        'the events are committed, or all rivals have exited',
        async () => ends.length === 2 * lives - 1 || (await countStored(folder)) >= ids.size,
        120_000,
      );
    }
    await rivals;
    const last = processes.start(place);
    await waitForAll(folder, ids);
    last.child.kill('SIGTERM');
    await last.exited;
    await readers.stop();
    expect(ends).toContain('3');
    const payments = (await readPayments(folder)).map((row) => String(row['id_transaction']));
    expect(payments).toEqual([...transactions].toSorted());
    expect(await readPaymentTotals(folder)).toMatchObject({ stored: transactions.size, repeats: transactions.size });
    await expectNothingLeftOver(place, (crashAt) => processes.start(place, { crashAt }));
    const figures = {
      compactors: ends.length,
      fenced: ends.filter((end) => end === '3').length,
      events: ids.size,
      reads: readers.reads(),
      repeatedGlobReads: readers.repeats(),
      tornRows: 0,
      doubledRows: 0,
      vanishedRows: 0,
    };
    recordFinding({
      promise: 'P4',
      what: 'two compactors without a lock',
      wanted,
      figures,
      reached: true,
      seed,
      again,
    });
  },
  sweeps * 400_000,
);
