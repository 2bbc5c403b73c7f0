import { open } from 'node:fs/promises';
import { Agent } from 'node:http';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { checkLake } from '../../src/lake/check.ts';
import { listFailedFiles, readFailedFile } from '../../src/lake/files/failed-events.ts';
import { changeSteps } from '../../src/lake/files/change.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { commitSteps } from '../../src/lake/log/table.ts';
import { balanceAccounts, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { prepareCompactProcesses } from '../helpers/compact-process.ts';
import { testFolder } from '../helpers/folder.ts';
import { sendRaw } from '../helpers/http.ts';
import { linesOf, type TestRequest } from '../helpers/keyed-requests.ts';
import { readRows, readTotals } from '../helpers/lake.ts';
import { createLedger, idParam } from '../helpers/ledger.ts';
import type { ProcessRole } from '../helpers/processes.ts';
import { startWithApp } from '../helpers/service-access.ts';
import type { TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

const seed = chaosSeed();
const again = `make chaos PART=keys-reused SEED=${seed}`;
const keys = chaosFigure('TRIBUTARY_TEST_KEYS', { short: 60, long: 5000 });
const sweeps = chaosFigure('TRIBUTARY_TEST_SWEEPS', { short: 1, long: 4 });
const clients = 20;

/** Imports a batch under a key, and retries until it is acknowledged, as the contract requires of clients. */
async function importBatch(
  service: TestService,
  token: string,
  key: string,
  names: readonly string[],
  agent: Agent,
): Promise<void> {
  const body = Buffer.from(
    JSON.stringify(
      names.map((name) => ({ customUserId: 'u', customEventName: name, customEventParams: { [idParam]: name } })),
    ),
  );
  const headers = { authorization: token, 'idempotency-key': key };
  const send = (): Promise<boolean> =>
    sendRaw(Number(new URL(service.s2s).port), {
      verb: 'POST',
      path: '/v1/customEventBatch/?idApp=1',
      headers,
      body,
      agent,
    }).then(
      (answer) => answer.status === 200,
      () => false,
    );
  await waitFor(`the batch under ${key} is acknowledged`, send, 180_000);
}

/**
 * Offset of the service's clock, and the flush age. The stream holds the retries; the lake commits them more than a day
 * after the first requests, which were received hours before them.
 */
const passes = [
  { hours: 0, flushAgeMs: 300, victim: 'compact' },
  { hours: 23, flushAgeMs: 3_600_000, victim: 'ingest' },
  { hours: 47, flushAgeMs: 300, victim: 'compact' },
] as const satisfies readonly { hours: number; flushAgeMs: number; victim: ProcessRole }[];

test(
  `${keys} keys store only their first requests, regardless of later requests within a day, which are flushed a day late, through kills (seed ${seed})`,
  { timeout: 240_000 + keys * 60 },
  async ({ skip }) => {
    inLongForm(skip);
    const random = createRandom(seed);
    const dataDir = path.join(testFolder(), 'data');
    const { service, token } = await startWithApp({
      dataDir,
      settings: {
        TRIBUTARY_INGEST_WORKERS: '2',
        TRIBUTARY_LOG_LEVEL: 'warn',
        TRIBUTARY_FLUSH_AGE_MS: String(passes[0].flushAgeMs),
      },
    });
    const agent = new Agent({ keepAlive: true, maxSockets: clients });
    onTestFinished(() => agent.destroy());
    const ledger = createLedger('key');
    const firsts = Array.from({ length: keys }, (_, key) => ({
      key: `k${key}`,
      names: Array.from({ length: random.integer(1, 3) }, () => ledger.nextId()),
    }));
    let [kills, others] = [0, 0];

    /** A later request under a used key: the same again, or by mistake another one. */
    const drawAgain = (names: readonly string[]): readonly string[] => {
      if (random.chance(0.5)) return names;
      const changed = random.pick([
        [...names, 'longer'],
        ['other'],
        names.toReversed().concat('x'),
        names.length > 1 ? names.slice(0, -1) : ['other', ...names],
      ]);
      others += changed.length;
      return changed;
    };

    for (const [pass, { hours, flushAgeMs, victim }] of passes.entries()) {
      if (pass > 0) {
        await service.stop();
        await service.startAgain({
          TRIBUTARY_CLOCK_OFFSET_SECONDS: String(hours * 3600),
          TRIBUTARY_FLUSH_AGE_MS: String(flushAgeMs),
        });
      }
      // in the last pass the day has passed: the held messages are flushed
      const left = pass === passes.length - 1 ? [] : firsts.values();
      let sent = 0;
      let killing: Promise<unknown> = Promise.resolve();
      const client = async (): Promise<void> => {
        for (const { key, names } of left) {
          await importBatch(service, token, key, pass === 0 ? names : drawAgain(names), agent);
          if (pass === 0) ledger.record(names, 'acknowledged');
          sent += 1;
          if (sent === Math.floor(keys / 2))
            killing = service.kill9(victim, random).then((pid) => (kills += pid === undefined ? 0 : 1));
        }
      };
      await Promise.all(Array.from({ length: clients }, client));
      if (pass === passes.length - 1) kills += (await service.kill9(victim, random)) === undefined ? 0 : 1;
      await killing;
      if (flushAgeMs < 1000) await waitUntilWorkedOff(service);
    }
    await service.stop();

    const { totals } = await balanceAccounts(dataDir, [ledger]);
    const events = ledger.totals().sent;
    expect(totals.stored).toBe(events);
    expect(others).toBeGreaterThan(0);
    // a repeat without a response is kept again
    expect(totals.failed).toBeGreaterThanOrEqual(others);
    expect(totals.repeats).toBeGreaterThan(0);
    recordFinding({
      promise: 'P8',
      what: 'keys that come again for longer, shorter and other batches, and retries that are read a day after the first',
      wanted: 'the first request stored once, nothing of another stored and all of it kept, the books balanced',
      figures: {
        keys,
        events,
        otherRequestsEvents: others,
        keptAsFailed: totals.failed,
        repeatsDropped: totals.repeats,
        kills,
        lostEvents: 0,
        doubledEvents: 0,
        inventedEvents: 0,
      },
      reached: true,
      seed,
      again,
    });
  },
);

const processes = prepareCompactProcesses();
const steps = [...changeSteps, ...commitSteps];
const perSweep = isLongRun ? steps.length : 2;

test(
  `A replay killed at any step, next to a compactor and retrying clients, stores each event once (seed ${seed})`,
  { timeout: 120_000 + sweeps * 60_000 },
  async ({ skip }) => {
    inLongForm(skip);
    const random = createRandom(seed);
    const place = await processes.makePlace('replay');
    const { folder, publisher } = place;
    const lakeDir = path.join(folder, 'lake');
    const paths = lakePaths(lakeDir);
    const compactor = processes.start(place);
    await compactor.ready;
    let [sent, kills, key] = [0, 0, 0];
    const publish = async (...requests: TestRequest[]): Promise<void> => {
      for (const request of requests) {
        await publisher.publish(
          Buffer.from(
            linesOf(request)
              .map((line) => `${JSON.stringify(line)}\n`)
              .join(''),
          ),
          5000,
        );
        sent += request.names.length;
      }
    };
    const waitUntilTaken = (): Promise<void> =>
      waitFor(
        `${sent} events are committed`,
        async () => (await readTotals(path.join(folder, 'lake')))?.streamed === sent,
        180_000,
      );
    /**
     * Corrects the failed events, as if a defect of the service were fixed. A file that disappears meanwhile was
     * completed by a killed replay.
     */
    const mend = async (): Promise<void> => {
      await waitFor(
        'no failed event is without its place',
        async () => (await listFailedFiles(paths.failed, paths.table)).every((file) => !file.includes('pending-')),
        60_000,
      );
      for (const file of await listFailedFiles(paths.failed, paths.table)) {
        const handle = await open(file, 'r+').catch(() => undefined);
        const text = await handle?.readFile('utf8');
        await handle?.truncate(0);
        // Without their checksums, which earlier versions did not write either.
        const unchecked = (text ?? '').replaceAll(/^\{"check":"[0-9a-f]{16}",/gm, '{');
        await handle?.write(unchecked.replaceAll(String.raw`\"age\":\"old\"`, String.raw`\"age\":7`), 0);
        await handle?.close();
      }
    };

    for (let sweep = 0; sweep < sweeps; sweep += 1) {
      for (const crashAt of steps.toSorted(() => random.next() - 0.5).slice(0, perSweep)) {
        const fresh = Array.from({ length: 3 }, (): TestRequest => ({ key: String((key += 1)), names: ['a', 'b'] }));
        const bad = fresh.map((request): TestRequest => ({ ...request, members: { age: 'old' } }));
        await publish(...bad, ...bad);
        await waitUntilTaken();
        await mend();
        const replay = processes.start(place, { replay: true, crashAt });
        // the clients of the first two do not wait for it; one sends another request
        await publish(...fresh.slice(0, 2), { key: String(key), names: ['a', 'b', 'other'] });
        if ((await replay.exited) === 'SIGKILL') kills += 1;
        await waitUntilTaken();
      }
    }
    // renames of a killed replay may have replaced a corrected file
    await mend();
    expect(await processes.start(place, { replay: true }).exited).toBe('0');
    compactor.child.kill('SIGTERM');
    expect(await compactor.exited).toBe('0');

    const rows = await readRows(folder, 'event_id, custom_event_name');
    const totals = await readTotals(path.join(folder, 'lake'));
    const failed = (await Promise.all((await listFailedFiles(paths.failed, paths.table)).map(readFailedFile))).flat();
    expect(new Set(rows.map((row) => row['event_id'])).size).toBe(rows.length);
    expect(rows.filter((row) => row['custom_event_name'] === 'other')).toEqual([]);
    expect(rows).toHaveLength(key * 2);
    expect(totals).toEqual({
      streamed: sent,
      stored: rows.length,
      failed: failed.length,
      repeats: sent - rows.length - failed.length,
      erased: 0,
    });
    expect(new Set(failed.map(({ reason }) => reason))).toEqual(new Set(['key_reused']));
    expect((await checkLake(lakeDir)).problems).toEqual([]);
    expect(kills).toBeGreaterThan(0);
    recordFinding({
      promise: 'P8',
      what: 'replays of failed events killed at each step, next to a compactor and retrying clients',
      wanted: 'each event under a key stored once, the books balanced',
      figures: { keys: key, kills, storedOnce: rows.length, repeatsDropped: totals?.repeats ?? 0, doubledEvents: 0 },
      reached: true,
      seed,
      again,
    });
  },
);
