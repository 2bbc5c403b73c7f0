import { findFreePort } from '../helpers/free-ports.ts';
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { balanceAccounts, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, inLongForm } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { createExportClient } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { createLedger, describeReconciliation, reconcileLake } from '../helpers/ledger.ts';
import { sendLoad, startLoad } from '../helpers/load.ts';
import { natsBinary } from '../helpers/nats.ts';
import { createMoments } from '../helpers/moments.ts';
import { missingForPowerCuts, openDisk, type Disk } from '../helpers/power.ts';
import { signalProcess } from '../helpers/processes.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { addTestApp, startWithUser } from '../helpers/service-access.ts';
import { within } from '../helpers/wait.ts';

const cuts = chaosFigure('TRIBUTARY_TEST_POWER_CUTS', { short: 1, long: 200 });
const seed = chaosSeed();
const diskMb = 512;
const eventsAtRisk = 2000;
const again = `make chaos PART=power-cut SEED=${seed}`;
const settings = {
  TRIBUTARY_QUOTA_USER: 'off',
  TRIBUTARY_QUOTA_IP: 'off',
  TRIBUTARY_MAX_EXPORTS: '1000',
  TRIBUTARY_FLUSH_AGE_MS: '200',
  TRIBUTARY_SEAL_AGE_MS: '1500',
  TRIBUTARY_RETENTION_MS: '20000',
  TRIBUTARY_STREAM_MAX_BYTES: String(64 * 1024 * 1024),
  TRIBUTARY_DISK_RESERVE_BYTES: String(16 * 1024 * 1024),
  TRIBUTARY_LOG_LEVEL: 'warn',
};

const say = (text: string): void => void process.stderr.write(`power cuts: ${text}\n`);

/** Cuts the power: everything stops at once, and unsynced data is lost. Reports whether an unsynced file was lost. */
async function cutPower(service: TestService, disk: Disk, cut: number): Promise<boolean> {
  const marker = path.join(disk.folder, `marker-${cut}`);
  writeFileSync(marker, 'written, and not synced');
  await service.freeze();
  await disk.takeImage();
  await service.killAll();
  await disk.restoreImage();
  return !existsSync(marker) || readFileSync(marker, 'utf8') === '';
}

describe('a power cut', () => {
  it(
    `After each of ${cuts} power cuts every acknowledged event still exists`,
    async (context) => {
      inLongForm(context.skip);
      const missing = missingForPowerCuts();
      if (missing !== undefined) context.skip(`power cuts are not played: ${missing}`);
      say(`seed ${seed}; again: ${again}`);
      const random = createRandom(seed);
      const disk = await openDisk(testFolder(), diskMb);
      onTestFinished(() => disk.close());
      const dataDir = path.join(disk.folder, 'data');
      const { service, token, user } = await startWithUser({ dataDir, settings });
      const client = createExportClient(service, user);
      const begun = performance.now();

      const ledgers = [createLedger('once'), createLedger('keyed')] as const;
      const [unkeyed, keyed] = ledgers;
      const load = { s2s: () => service.s2s, idApp: 1, token, random, clients: 2, pauseMs: 15 };
      const startLoads = () => [
        startLoad(unkeyed, load),
        startLoad(keyed, { ...load, idempotencyKeys: true, repeatShare: 0.05 }),
      ];
      const acknowledged = (): number => unkeyed.totals().acknowledged + keyed.totals().acknowledged;

      const requests: string[] = [];
      const moments = createMoments({ service, client, random, acknowledged, requests });

      const played = new Map<string, number>();
      let unsyncedLost = 0;
      let loads = startLoads();
      const balance = async () => {
        await Promise.all(loads.map((running) => running.stop()));
        await waitUntilWorkedOff(service);
        return balanceAccounts(dataDir, ledgers);
      };
      for (let cut = 0; cut < cuts; cut += 1) {
        // all of them in turn, beginning with a random one, so that short runs differ
        const moment = moments[(cut + seed) % moments.length] ?? moments[0];
        played.set(moment.name, (played.get(moment.name) ?? 0) + 1);
        const stillHolds = await moment.reach(cut);
        if (await cutPower(service, disk, cut)) unsyncedLost += 1;
        await service.startAgain();
        await stillHolds();
        // sometimes the next cut comes while the service is still catching up
        if (random.chance(0.25)) continue;
        await balance();
        loads = startLoads();
      }
      await balance();
      for (const id of await client.list())
        expect((await client.waitForEnd(id)).status, `export ${id}`).toBe('Success!');
      expect(await client.list()).toEqual(expect.arrayContaining(requests));
      await service.stop();
      const { results, totals } = await balanceAccounts(dataDir, ledgers);

      for (const [index, result] of results.entries())
        say(`${ledgers[index]?.name ?? ''}: ${describeReconciliation(result)}`);
      say(`moments: ${[...played].map(([name, times]) => `${name} ${times}`).join(', ')}`);
      // a cut that kept all unsynced data would show nothing
      expect(unsyncedLost).toBeGreaterThan(cuts / 2);
      recordFinding({
        promise: 'P2',
        what: 'power cuts by a copy of the disk that nothing was synced for',
        wanted: `${cuts.toLocaleString('en-US')} cuts: 0 acknowledged lost`,
        figures: {
          cuts,
          acknowledgedEvents: acknowledged(),
          unknownEvents: unkeyed.totals().unknown,
          lostEvents: 0,
          doubledEvents: 0,
          inventedEvents: 0,
          exportsFinished: requests.length,
          repeatedEvents: totals.repeats,
          cutsThatLostAnUnsyncedFile: unsyncedLost,
          minutes: Math.round((performance.now() - begun) / 6000) / 10,
        },
        reached: true,
        seed,
        again,
      });
    },
    120_000 + cuts * 60_000,
  );

  it('A broker that acknowledges events before it syncs them loses them, so this test would detect such a loss', async (context) => {
    inLongForm(context.skip);
    const missing = missingForPowerCuts();
    if (missing !== undefined) context.skip(`power cuts are not played: ${missing}`);
    const disk = await openDisk(testFolder(), diskMb);
    onTestFinished(() => disk.close());
    const dataDir = path.join(disk.folder, 'data');
    const token = await addTestApp(dataDir);
    const port = await findFreePort();
    const startBroker = async () =>
      spawn(
        await natsBinary(),
        ['-js', '-a', '127.0.0.1', '-p', String(port), '-sd', path.join(disk.folder, 'broker')],
        { stdio: 'ignore' },
      );
    let broker = await startBroker();
    onTestFinished(() => void broker.kill('SIGKILL'));
    const service = await startTestService({
      dataDir,
      settings: { ...settings, TRIBUTARY_NATS_URL: `nats://127.0.0.1:${port}` },
      words: ['--role', 'ingest'],
    });
    onTestFinished(() => service.destroy());

    const ledger = createLedger('risked');
    await sendLoad(ledger, eventsAtRisk, {
      s2s: () => service.s2s,
      idApp: 1,
      token,
      random: createRandom(seed),
      clients: 4,
      batchShare: 1,
    });
    expect(ledger.totals().acknowledged).toBe(eventsAtRisk);
    await service.freeze();
    signalProcess(broker.pid ?? 0, 'SIGSTOP');
    await disk.takeImage();
    await service.killAll();
    broker.kill('SIGKILL');
    await within('the broker has exited', once(broker, 'exit'));
    await disk.restoreImage();

    broker = await startBroker();
    const whole = await startTestService({
      dataDir,
      settings: { ...settings, TRIBUTARY_NATS_URL: `nats://127.0.0.1:${port}` },
    });
    onTestFinished(() => whole.destroy());
    await waitUntilWorkedOff(whole);
    const [result] = await reconcileLake(dataDir, [ledger]);
    say(`a broker that syncs later: ${result === undefined ? '' : describeReconciliation(result)}`);
    expect(result?.lost.length).toBeGreaterThan(0);
    await whole.stop();
  }, 120_000);
});
