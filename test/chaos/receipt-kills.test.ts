import path from 'node:path';
import { setTimeout as pass } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { findReceiptInLake } from '../../src/cli/receipt-in-lake.ts';
import { dataPaths } from '../../src/config.ts';
import { datasets, events, getMethod } from '../../src/datasets/dataset.ts';
import { createRandom } from '../../src/demo/random.ts';
import { type FullRow, findFullRows } from '../../src/lake/event-index/find-rows.ts';
import { tablePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { digestEvent } from '../../src/receipts/event-digest.ts';
import { parseReceipt } from '../../src/receipts/parse-receipt.ts';
import { findReceiptKeys } from '../../src/receipts/receipt-keys.ts';
import type { Receipt } from '../../src/receipts/receipt.ts';
import { balanceAccounts, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { planBlows, strike } from '../helpers/blows.ts';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { testFolder } from '../helpers/folder.ts';
import { createLedger } from '../helpers/ledger.ts';
import { startLoad } from '../helpers/load.ts';
import { startTestService } from '../helpers/service.ts';
import { addTestApp } from '../helpers/service-access.ts';
import { waitFor } from '../helpers/wait.ts';

const kills = chaosFigure('TRIBUTARY_TEST_KILLS', { short: 2, long: 200 });
const seed = chaosSeed();
const again = `make chaos PART=receipt-kills KILLS=${kills} SEED=${seed}`;
/** Receipts that are verified one by one as `tributary verify` does; the rows are compared for all. */
const verifiedByOne = isLongRun ? 500 : 25;

/** Reads the rows of a table by event id. */
async function readAll(lakeDir: string, table: string, eventIds: readonly string[]): Promise<Map<string, FullRow>> {
  const dataset = datasets.get(table) ?? events;
  const snapshot = await readSnapshot(tablePaths(lakeDir, dataset).table);
  const rows = await findFullRows({ dataset, snapshot }, [...new Set(eventIds)], {});
  expect(rows.length, 'a row for each id').toBe(new Set(rows.map(({ eventId }) => eventId)).size);
  return new Map(rows.map((row) => [row.eventId, row]));
}

const isPayment = ({ method }: Receipt): boolean => method.startsWith('customRevenue');

/** Returns the events of a receipt whose rows differ from it in more than the time of receipt. */
function findWrong({ events: told, method, salt, receivedAt }: Receipt, rows: ReadonlyMap<string, FullRow>): unknown[] {
  const receivedAtMs = Date.parse(receivedAt);
  const times = { received_at: receivedAtMs, event_time: Math.floor(receivedAtMs / 1000) };
  return told.filter(({ eventId, sha256 }) => {
    const values = { ...rows.get(eventId)?.values, kind: getMethod(method).kind, event_id: eventId, ...times };
    return digestEvent(salt, values) !== sha256;
  });
}

test(
  `After ${kills} kills of any process every sent receipt verifies, and the lake has each of its events`,
  async ({ skip }) => {
    inLongForm(skip);
    const random = createRandom(seed);
    const dataDir = path.join(testFolder(), 'data');
    const token = await addTestApp(dataDir);
    const settings = { TRIBUTARY_INGEST_WORKERS: '2', TRIBUTARY_SEAL_AGE_MS: '5000', TRIBUTARY_LOG_LEVEL: 'warn' };
    const service = await startTestService({ dataDir, settings });
    onTestFinished(() => service.destroy());

    const answers: string[] = [];
    const load = { s2s: () => service.s2s, idApp: 1, token, random, clients: 2, pauseMs: 20, receipts: answers };
    const ledgers = [createLedger('once'), createLedger('keyed'), createLedger('revenue')] as const;
    const [once, keyed, revenue] = ledgers;
    const loads = [
      startLoad(once, load),
      startLoad(keyed, { ...load, idempotencyKeys: true, repeatShare: 0.1 }),
      startLoad(revenue, { ...load, clients: 1, revenue: true, repeatShare: 0.1 }),
    ];
    const more = async (): Promise<void> => {
      const wanted = answers.length + random.integer(10, isLongRun ? 400 : 60);
      await waitFor('the service gives receipts again', () => answers.length >= wanted, 60_000);
    };
    await more();
    const blows = planBlows(random);
    for (let done = 0; done < kills;) {
      const blow = blows.next().value;
      if (blow.roles.includes('job')) continue;
      done += (await strike(service, random, blow)).length;
      await (blow.nextAfterMs === undefined ? more() : pass(blow.nextAfterMs));
    }
    await Promise.all(loads.map((running) => running.stop()));
    await waitUntilWorkedOff(service);
    await service.stop();

    await balanceAccounts(dataDir, ledgers);
    const { lake, keys } = dataPaths(dataDir);
    const trusted = await findReceiptKeys(keys);
    const receipts = answers.map((answer) => parseReceipt(answer, trusted));
    const acknowledged = ledgers.reduce((sum, ledger) => sum + ledger.totals().acknowledged, 0);
    const wrong: unknown[] = [];
    for (const table of ['events', 'payments']) {
      const those = receipts.filter((receipt) => isPayment(receipt) === (table === 'payments'));
      const ids = those.flatMap((receipt) => receipt.events.map(({ eventId }) => eventId));
      const rows = await readAll(lake, table, ids);
      wrong.push(...those.flatMap((receipt) => findWrong(receipt, rows)));
    }
    expect(wrong).toEqual([]);
    const told = new Set(receipts.flatMap((receipt) => receipt.events.map(({ eventId }) => eventId)));
    expect(told.size, 'each acknowledged event has a receipt').toBe(acknowledged);
    const states = new Set<string>();
    for (let n = 0; n < verifiedByOne; n += 1)
      for (const { state, sinceVersion } of (await findReceiptInLake(lake, random.pick(receipts))).events)
        states.add(`${state} ${(sinceVersion ?? 0) > 0}`);
    expect([...states].filter((state) => state !== 'stored true' && state !== 'repeat true')).toEqual([]);
    recordFinding({
      promise: 'P1',
      what: 'receipts that were answered between kill -9 of ingest, nats-server, compactor, export and supervisor',
      wanted: 'each verifies, and its events are in the lake, value for value',
      figures: { kills, receipts: receipts.length, events: told.size, wrongEvents: wrong.length },
      reached: true,
      seed,
      again,
    });
  },
  180_000 + kills * 20_000,
);
