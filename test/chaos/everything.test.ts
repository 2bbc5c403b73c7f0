import { existsSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as pass } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { balanceAccounts, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { createEverything, findProcessesOf } from '../helpers/everything.ts';
import { accountForExports, createExportClient, exportQuery } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { createLedger, describeReconciliation } from '../helpers/ledger.ts';
import { sendLoad, startLoad } from '../helpers/load.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { runCommand, startTestService } from '../helpers/service.ts';
import { mountSmallDisk } from '../helpers/small-disk.ts';
import { waitFor } from '../helpers/wait.ts';

/*
 * All hazards together, chosen by the seed; each also has its own test. Kills, suspended processes, full disks, clock
 * steps, wide events, reused keys, replays, erasures, exports and cancels. Then the faults end, and every event must be
 * accounted for.
 */
const minutes = chaosFigure('TRIBUTARY_TEST_MINUTES', { short: 0.25, long: 40 });
const seed = chaosSeed();
const stopMs = isLongRun ? 30_000 : 1500;
const fullMs = isLongRun ? 5000 : 1000;
const recoveryMs = 120_000;
const exportedEvents = 2000;
const mebibyte = 1024 * 1024;
const again = `make chaos PART=everything SEED=${seed} MINUTES=${minutes}`;

const say = (text: string): void => void process.stderr.write(`everything: ${text}\n`);

/** Lists leftovers that no run may have: non-empty work files, temporary files, attempts of exports. */
function findLeftovers(dataDir: string): string[] {
  const folders = ['lake/staging', 'spool'].filter((name) => existsSync(path.join(dataDir, name)));
  const inside = folders.flatMap((folder) =>
    readdirSync(path.join(dataDir, folder), { recursive: true, withFileTypes: true })
      .map((entry) => path.join(entry.parentPath, entry.name))
      .filter((file) => statSync(file).isFile() && statSync(file).size > 0),
  );
  const temporaries = readdirSync(dataDir, { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.tmp') || /\/attempt-\d+$/.test(name),
  );
  return [...inside, ...temporaries];
}

/** Too long for every run of the tests; its parts have their own short forms. */
const isAsked = isLongRun || (process.env['TRIBUTARY_TEST_MINUTES'] ?? '') !== '';

test.runIf(isAsked)(
  `Every event is accounted for after ${minutes} minutes of all disturbances at once`,
  { timeout: minutes * 60_000 + 900_000 },
  async () => {
    say(`seed ${seed}; again: ${again}`);
    const begun = performance.now();
    const random = createRandom(seed);
    const dataDir = path.join(testFolder(), 'data');
    const disks = ['nats', 'lake']
      .map((store) => mountSmallDisk(path.join(dataDir, store), (store === 'nats' ? 256 : 1536) * mebibyte))
      .filter((disk) => disk !== undefined);
    if (disks.length === 0) say('no disk is filled: a small file system can only be mounted by root');
    const token = await addTestApp(dataDir);
    const otherToken = await addTestApp(dataDir, '2');
    const user = await addTestUser(dataDir);
    const settings = {
      TRIBUTARY_INGEST_WORKERS: '2',
      TRIBUTARY_QUOTA_USER: 'off',
      TRIBUTARY_QUOTA_IP: 'off',
      TRIBUTARY_MAX_EXPORTS: '1000',
      TRIBUTARY_SEAL_AGE_MS: '5000',
      TRIBUTARY_RETENTION_MS: '60000',
      TRIBUTARY_STREAM_MAX_BYTES: String(64 * mebibyte),
      TRIBUTARY_DISK_RESERVE_BYTES: String(4 * mebibyte),
      TRIBUTARY_LOG_LEVEL: 'warn',
    };
    const service = await startTestService({ dataDir, settings });
    onTestFinished(() => service.destroy());
    const client = createExportClient(service, user);
    const refusals: string[] = [];
    const onProblem = (status: number, text: string): void =>
      void (status >= 400 && status < 500 && refusals.push(`${status} ${text}`));
    const load = {
      s2s: () => service.s2s,
      idApp: 1,
      token,
      random: createRandom(seed + 1),
      clients: 2,
      batchShare: 0.8,
      pauseMs: isLongRun ? 100 : 20,
      onProblem,
    };

    const exported = createLedger('exported');
    await sendLoad(exported, exportedEvents, {
      ...load,
      idApp: 2,
      token: otherToken,
      batchShare: 1,
      idempotencyKeys: true,
    });
    expect(exported.totals().acknowledged).toBe(exportedEvents);
    await waitUntilWorkedOff(service);
    const query = exportQuery('eventId,eventName,customUserId,lvid', { idApp: '2' });
    const rightRows = await client.download(await client.waitForEnd((await client.create(query)) ?? ''));
    expect(new Set(rightRows).size).toBe(exportedEvents + 1);

    const [once, keyed, wide, reused] = [
      createLedger('once'),
      createLedger('keyed'),
      createLedger('wide'),
      createLedger('reused'),
    ];
    const text = 'the quick brown fox jumps over the lazy dog. '.repeat(6).slice(0, 250);
    const params = Object.fromEntries(Array.from({ length: 36 }, (_, index) => [`p${index}`, text]));
    const loads = [
      startLoad(once, load),
      startLoad(keyed, { ...load, idempotencyKeys: true, repeatShare: 0.05 }),
      startLoad(wide, { ...load, batchShare: 0, params }),
    ];
    const acknowledged = (): number =>
      [once, keyed, wide].reduce((sum, ledger) => sum + ledger.totals().acknowledged, 0);
    const recovered = async (): Promise<void> => {
      const enough = acknowledged() + random.integer(5, isLongRun ? 500 : 50);
      await waitFor('the service acknowledges again', () => acknowledged() >= enough, recoveryMs);
    };
    const everything = createEverything({
      service,
      client,
      random,
      token: load.token,
      reused,
      exportQuery: query,
      disks,
      stopMs,
      fullMs,
      recovered,
    });

    const until = performance.now() + minutes * 60_000;
    while (performance.now() < until) {
      await everything.act().catch((error: unknown) => {
        // Its folder is removed with the test: the service's log is the only trace of the cause.
        throw new Error(`${String(error)}; the service's log ends:\n${service.lastLog(80)}`, { cause: error });
      });
      await pass(random.integer(0, 300));
    }
    say(
      `quiet after ${Object.entries(everything.counts)
        .map(([what, times]) => `${what} ${times}`)
        .join(', ')}`,
    );
    await recovered();
    await Promise.all(loads.map((running) => running.stop()));
    await everything.eraseAll();
    const exports = await accountForExports(service, client, everything.requests, rightRows, everything.mayBeCanceled);
    await waitUntilWorkedOff(service, recoveryMs);
    // A start sweeps the leftovers of the last faults.
    await service.stop();
    await service.startAgain();
    await waitUntilWorkedOff(service, recoveryMs);
    await service.stop();

    const ledgers = [once, keyed, wide, reused, exported];
    const { results, totals } = await balanceAccounts(dataDir, ledgers);
    for (const [index, result] of results.entries())
      say(`${ledgers[index]?.name ?? ''}: ${describeReconciliation(result)}`);
    expect(await runCommand(['lake', 'check', '--data', dataDir])).toMatchObject({ problems: [] });
    expect(results[1]?.unknown).toBe(0);
    expect(refusals).toEqual([]);
    expect(findLeftovers(dataDir)).toEqual([]);
    expect(findProcessesOf(dataDir)).toEqual([]);
    const sum = (pick: (result: (typeof results)[number]) => number): number =>
      results.reduce((total, result) => total + pick(result), 0);
    recordFinding({
      promise: 'P9',
      what: 'everything at once',
      wanted: `${minutes} minutes of kills, stops, full disks, clock steps, wide events, keys used again, replays, erasures, exports and cancels: books balanced to the event`,
      figures: {
        minutes: Math.round((performance.now() - begun) / 6000) / 10,
        ...everything.counts,
        acknowledgedEvents: sum((result) => result.acknowledged),
        unknownEvents: sum((result) => result.unknown),
        unknownStoredEvents: sum((result) => result.unknownStored),
        lostEvents: sum((result) => result.lost.length),
        doubledEvents: sum((result) => result.doubled.length),
        inventedEvents: sum((result) => result.invented.length),
        failedEvents: totals.failed,
        repeatedEvents: totals.repeats,
        erasedEvents: totals.erased,
        exportsWithRightRows: exports.finished,
        exportsCanceled: exports.canceled,
        exportsFailedAfterAllAttempts: exports.failed,
      },
      reached: true,
      seed,
      again,
    });
  },
);
