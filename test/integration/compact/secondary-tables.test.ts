import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { findLeastAhead } from '../../../src/compact/batch/secondary-table.ts';
import type { Compactor } from '../../../src/compact/wait-for-repair.ts';
import { lakePaths, openDatasetTable, tablePaths } from '../../../src/lake/lake.ts';
import { readSnapshot, type DataFile } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import { inTurn, oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, readRows, readTotals, startTestCompact, type TestCompactOptions } from '../../helpers/lake.ts';
import { openLoadArea } from '../../helpers/loads.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { payments, readPayments, readPaymentTotals, revenueLine } from '../../helpers/revenue.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

const clock = createClock(0);
/** Long enough on a busy machine. */
const soonMs = 120_000;
const dayMs = 24 * 3_600_000;

/** Returns the number of events of all tables that the lake accounts for. */
async function accountedFor(folder: string): Promise<number> {
  const events = await readTotals(path.join(folder, 'lake'));
  return (events?.streamed ?? 0) + ((await readPaymentTotals(folder))?.streamed ?? 0);
}

/** Opens a folder and a stream, whose messages one compactor after the other commits. */
function openPlace() {
  const folder = testFolder();
  const stream = createMemoryStream();
  let sent = 0;
  return {
    folder,
    stream,
    publish: (lines: readonly unknown[]): number => {
      sent += lines.length;
      return stream.publish(lines);
    },
    start: async (options: TestCompactOptions = {}): Promise<Compactor> => {
      const compactor = await startTestCompact(folder, stream, options);
      onTestFinished(() => compactor.stop());
      return compactor;
    },
    takenIn: () =>
      waitFor(`${sent} events are accounted for`, async () => (await accountedFor(folder)) === sent, soonMs),
  };
}

const ids = async (folder: string): Promise<string[]> =>
  (await readPayments(folder)).map((row) => `${String(row['id_transaction'])}@${String(row['id_app'])}`);

/** Throws the first time that a step is reached, as a crash would. */
function failAt(wanted: string, happen: () => unknown = () => undefined): CrashPoint {
  let left = 1;
  return async (step) => {
    if (step !== wanted || (left -= 1) !== 0) return;
    await happen();
    throw new AppError('commit_conflict', `stopped at ${step}`);
  };
}

test('Transactions become rows of payments with their own values, and the events between them rows of the events', async () => {
  const { folder, publish, start, takenIn } = openPlace();
  await start();
  publish([
    eventLine({ custom_user_id: 'e' }),
    revenueLine('a', { total: '12345678901234.1234', currency: 'EUR', ipv4: '1.2.3.4', event_time: 1_700_000_000 }),
    revenueLine('b', { total: '-0.5', custom_user_id: undefined, lvid: 'l'.repeat(32) }),
  ]);
  await takenIn();
  const columns =
    'id_transaction, total::VARCHAR AS total, currency, ipv4, lvid, custom_user_id, is_verified, id_purchase_type, is_test, is_trial, quantity, load_id, date::VARCHAR AS date, epoch(event_time)::BIGINT::VARCHAR AS event_time, available_at >= received_at AS later';
  const [a, b, ...none] = await readPayments(folder, columns);
  expect(none).toEqual([]);
  expect(a).toMatchObject({
    id_transaction: 'a',
    total: '12345678901234.1234',
    currency: 'EUR',
    ipv4: '1.2.3.4',
    lvid: null,
    custom_user_id: 'u1',
    is_verified: 0,
    id_purchase_type: 6,
    is_test: 0,
    is_trial: 0,
    quantity: null,
    load_id: null,
    date: '2023-11-14',
    event_time: '1700000000',
    later: true,
  });
  expect(b).toMatchObject({ id_transaction: 'b', total: '-0.5000', lvid: 'l'.repeat(32), custom_user_id: null });
  expect((await readRows(folder, 'custom_user_id, event_id')).map((row) => row['custom_user_id'])).toEqual(['e']);
  expect(await readTotals(path.join(folder, 'lake'))).toMatchObject({ streamed: 1, stored: 1 });
  expect(await readPaymentTotals(folder)).toEqual({ streamed: 2, stored: 2, failed: 0, repeats: 0, erased: 0 });
});

test('A transaction that is sent again is a duplicate in the same batch, a later one, after a restart and after days', async () => {
  const { folder, publish, start, takenIn } = openPlace();
  let aheadMs = 0;
  const options = { clock: { nowMs: () => clock.nowMs() + aheadMs } };
  const first = await start(options);
  publish([revenueLine('a'), revenueLine('a', { total: '1' }), revenueLine('a', { id_app: 2 })]);
  await takenIn();
  publish([revenueLine('a'), revenueLine('b')]);
  await takenIn();
  aheadMs = 3 * dayMs;
  publish([revenueLine('b', { received_at: clock.nowMs() + aheadMs })]);
  await takenIn();
  await first.stop();
  await start(options);
  publish([revenueLine('a'), revenueLine('b'), revenueLine('c')]);
  await takenIn();
  expect(await ids(folder)).toEqual(['a@1', 'a@2', 'b@1', 'c@1']);
  expect((await readPayments(folder, 'total::VARCHAR AS total, id_transaction, id_app'))[0]?.['total']).toBe('9.9900');
  expect(await readPaymentTotals(folder)).toEqual({ streamed: 9, stored: 4, failed: 0, repeats: 5, erased: 0 });
});

const stepsOfFlush = ['flush-written', 'flush-follower-written', 'flush-follower-committed', 'flush-committed'];

test.for(inTurn([...stepsOfFlush, 'flush-settled'], 5))(
  'A flush that ends at %s gives each table its lines once',
  async (step) => {
    const { folder, publish, start, takenIn } = openPlace();
    // More than the interrupted batch: the next one must not reach across the position of payments.
    let isReached = false;
    const crashPoint = failAt(step, () => {
      publish([revenueLine('late'), eventLine()]);
      isReached = true;
    });
    publish([eventLine(), revenueLine('a'), eventLine({ age: 'old' }), revenueLine('b', { total: 'x' })]);
    publish([revenueLine('a'), revenueLine('c')]);
    const compactor = await start({ crashPoint });
    // Until then earlier messages may be accounted for already.
    await waitFor('the step is reached', () => isReached, soonMs);
    await takenIn();
    await compactor.stop();
    expect(await ids(folder)).toEqual(['a@1', 'c@1', 'late@1']);
    expect(await readRows(folder, 'event_id')).toHaveLength(2);
    expect(await readPaymentTotals(folder)).toEqual({ streamed: 4, stored: 3, failed: 0, repeats: 1, erased: 0 });
    expect(await readTotals(path.join(folder, 'lake'))).toMatchObject({ streamed: 4, stored: 2, failed: 2 });
  },
);

/** Stops a compactor between the two commits of its first batch. */
async function stopBetween(start: (options: TestCompactOptions) => Promise<Compactor>, folder: string): Promise<void> {
  let isReached = false;
  const compactor = await start({
    crashPoint: async (step) => {
      if (step !== 'flush-follower-committed') return;
      isReached = true;
      throw new AppError('sql', 'stopped between the commits');
    },
  });
  await waitFor('payments have their commit', () => isReached);
  await Promise.all([compactor.failed.catch(() => undefined), compactor.stop()]);
  expect(await readTotals(path.join(folder, 'lake'))).toMatchObject({ streamed: 0 });
}

const losses: readonly { readonly what: string; readonly lose: (stream: MemoryStream) => void }[] = [
  {
    what: 'has used its number again',
    lose(stream) {
      stream.truncate(0);
      stream.publish([revenueLine('other'), eventLine()]);
      stream.publish([revenueLine('next')]);
    },
  },
  {
    what: 'has lost it',
    lose(stream) {
      stream.publish([revenueLine('other'), eventLine()]);
      stream.publish([revenueLine('next')]);
      stream.lose(1);
    },
  },
];

test.for(inTurn(losses, 2))(
  'A batch that only payments have is not mistaken for that of a stream that $what',
  async ({ lose }) => {
    const { folder, stream, publish, start } = openPlace();
    publish([revenueLine('a'), eventLine()]);
    await stopBetween(start, folder);
    lose(stream);
    await start();
    await waitFor('what the stream has is in the lake', async () => (await ids(folder)).length === 3, soonMs);
    expect(await ids(folder)).toEqual(['a@1', 'next@1', 'other@1']);
    await waitFor('so is the event', async () => (await readRows(folder, 'event_id')).length === 1, soonMs);
  },
);

test('A batch is classified again if another process has added its transaction to payments meanwhile', async () => {
  const { folder, publish, start, takenIn } = openPlace();
  publish([revenueLine('a')]);
  const compactor = await start();
  await takenIn();
  await compactor.stop();
  const lakeDir = path.join(folder, 'lake');
  let isBeside = false;
  const crashPoint: CrashPoint = async (step) => {
    if (step !== 'flush-follower-written' || isBeside) return;
    isBeside = true;
    const table = await openTable(tablePaths(lakeDir, payments).table, { clock, crashPoint: noCrashPoint });
    const availableAtMs = table.lake().availableAtMs + 1;
    await table.commit(() => ({ cause: 'replay', actions: [], availableAtMs }));
  };
  publish([revenueLine('a'), revenueLine('b')]);
  await start({ crashPoint });
  await takenIn();
  expect(isBeside).toBe(true);
  expect(await ids(folder)).toEqual(['a@1', 'b@1']);
});

test('A transaction is known when a rewrite has replaced its file between two batches', async () => {
  const { folder, stream, publish, start, takenIn } = openPlace();
  await start({ sealAgeMs: 50, retentionMs: 50 });
  publish([revenueLine('a', { custom_user_id: 'ann' }), revenueLine('b', { custom_user_id: 'bob' })]);
  await takenIn();
  const lakeDir = path.join(folder, 'lake');
  const { table: tableDir } = tablePaths(lakeDir, payments);
  const findSealed = async (): Promise<DataFile | undefined> =>
    (await readSnapshot(tableDir)).files.find((file) => !file.young);
  await waitFor('payments are sealed', async () => (await findSealed()) !== undefined, soonMs);
  publish([revenueLine('b')]);
  await takenIn();
  const sealed = await findSealed();
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
  const { signal } = new AbortController();
  const { publisher } = stream;
  const dependencies = { table, lakeDir, duckdb, publisher, clock, crashPoint: noCrashPoint, signal };
  await eraseEvents(dependencies, { users: ['ann'] }, { retentionMs: 50 });
  await waitFor(
    'the rewrite is at the place of the file',
    async () => {
      const now = await findSealed();
      return now?.publishedPath === sealed?.publishedPath && now?.sha256 !== sealed?.sha256;
    },
    soonMs,
  );
  const { streamed = 0, erased = 0 } = (await readPaymentTotals(folder)) ?? {};
  expect({ streamed, erased }).toEqual({ streamed: 3, erased: 1 });
  publish([revenueLine('b')]);
  await waitFor('it came again', async () => (await readPaymentTotals(folder))?.streamed === 4, soonMs);
  expect(await ids(folder)).toEqual(['b@1']);
});

test('Of several tables ahead of the events a batch reaches to the one that is least ahead', () => {
  const states = [100, 50, 0, 70].map((position) => ({ appId: 'one', position }));
  expect(findLeastAhead([...states, { appId: 'two', position: 20 }], { appId: 'one', position: 10 })).toBe(states[1]);
  expect(findLeastAhead(states, { appId: 'one', position: 100 })).toBeUndefined();
});

test('A transaction that duplicates a loaded row is stored if that load is undone meanwhile', async () => {
  const { folder, publish, start } = openPlace();
  const area = await openLoadArea(folder, 'payments');
  const line = revenueLine('a');
  const row = { tsEvent: 1_700_000_000, idApp: 1, eventId: line['event_id'], idTransaction: 'a', total: '1' };
  const loaded = await area.load(area.write('a.ndjson', `${JSON.stringify(row)}\n`));
  let undone: unknown;
  const crashPoint: CrashPoint = async (step) => {
    if (step !== 'flush-follower-written' || undone !== undefined) return;
    expect(await ids(folder)).toEqual(['a@1']);
    undone = await area.undo('load' in loaded ? loaded.load : '');
  };
  publish([line]);
  const compactor = await start({ crashPoint });
  await waitFor('the transaction is committed', async () => (await readPaymentTotals(folder))?.streamed === 2, soonMs);
  await compactor.stop();
  expect(undone).toMatchObject({ rows: 1 });
  expect(await ids(folder)).toEqual(['a@1']);
  expect(await readPaymentTotals(folder)).toEqual({ streamed: 2, stored: 1, failed: 0, repeats: 0, erased: 1 });
});

test('A compactor that has lost the lake commits nothing to payments', async () => {
  const { folder, publish, start } = openPlace();
  publish([revenueLine('a')]);
  const lakeDir = path.join(folder, 'lake');
  const crashPoint: CrashPoint = async (step) => {
    if (step !== 'flush-follower-written') return;
    const table = await openTable(path.join(lakeDir, 'events'), { clock, crashPoint: noCrashPoint });
    await table.commit(() => ({ cause: 'start', actions: [], writer: 'another' }));
  };
  const compactor = await start({ crashPoint });
  await expect(compactor.failed).rejects.toMatchObject({ code: 'fenced' });
  expect(await ids(folder)).toEqual([]);
});

test('A compactor whose table of payments was taken over commits nothing to it', async () => {
  const { folder, publish, start } = openPlace();
  publish([revenueLine('a')]);
  const crashPoint: CrashPoint = async (step) => {
    if (step !== 'flush-follower-written') return;
    const options = { clock, crashPoint: noCrashPoint, retentionMs: dayMs };
    const table = await openDatasetTable(path.join(folder, 'lake'), payments, options);
    await table.commit(() => ({ cause: 'start', actions: [], writer: 'another' }));
  };
  const compactor = await start({ crashPoint });
  await expect(compactor.failed).rejects.toMatchObject({ code: 'fenced' });
  expect(await ids(folder)).toEqual([]);
});
