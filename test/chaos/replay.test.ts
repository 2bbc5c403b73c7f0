import { Agent } from 'node:http';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { totalsOf, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { importEvent } from '../helpers/every-place.ts';
import { testFolder } from '../helpers/folder.ts';
import { createLedger, reconcileLake } from '../helpers/ledger.ts';
import type { ProcessRole } from '../helpers/processes.ts';
import { startWithApp } from '../helpers/service-access.ts';

const requests = chaosFigure('TRIBUTARY_TEST_REPLAYS', { short: 400, long: 30_000 });
const replays = 3;
const reused = 25;
const clients = 40;
const seed = chaosSeed();
/** Killed during a pass; the short form kills one of them in each pass, the long form all in every pass. */
const victims = ['nats-server', 'ingest', 'compact', 'supervisor'] as const satisfies readonly ProcessRole[];
/** Offset of the service's clock at each pass, hours: a key is remembered for 24 hours. */
const clockHours = [0, 0, 23, 23] as const;
const again = `make chaos PART=replay SEED=${seed}`;

describe('an Idempotency-Key', () => {
  it(
    `${requests} requests with an Idempotency-Key, each sent ${replays + 1} times through kills and restarts within 24 hours, are stored once (seed ${seed})`,
    { timeout: 300_000 + requests * 60 },
    async ({ skip }) => {
      inLongForm(skip);
      const random = createRandom(seed);
      const dataDir = path.join(testFolder(), 'data');
      const { service, token } = await startWithApp({
        dataDir,
        settings: { TRIBUTARY_INGEST_WORKERS: '2', TRIBUTARY_LOG_LEVEL: 'warn' },
      });
      const agent = new Agent({ keepAlive: true, maxSockets: clients });
      onTestFinished(() => agent.destroy());

      const ledger = createLedger('request');
      const names = Array.from({ length: requests }, () => ledger.nextId());
      /** Sends each request repeatedly until it is acknowledged; `onSent` receives the number of acknowledged ones. */
      const sendAll = async (
        all: readonly string[],
        nameOf: (key: string) => string,
        onSent: (sent: number) => void,
      ): Promise<void> => {
        const left = all.values();
        let sent = 0;
        const client = async (): Promise<void> => {
          // the clients share one iterator, so that one of them sends each request
          for (const key of left) {
            await importEvent(service, token, { key, name: nameOf(key), user: 'u', agent });
            sent += 1;
            onSent(sent);
          }
        };
        await Promise.all(Array.from({ length: clients }, client));
      };
      const kill = async (role: ProcessRole): Promise<number> => {
        const pid = await service.kill9(role, random);
        if (role === 'supervisor') await service.startAgain();
        return pid === undefined ? 0 : 1;
      };

      let kills = 0;
      let hours: number = clockHours[0];
      for (const [pass, passHours] of clockHours.entries()) {
        if (passHours !== hours) {
          await service.stop();
          await service.startAgain({ TRIBUTARY_CLOCK_OFFSET_SECONDS: String(passHours * 3600) });
          hours = passHours;
        }
        const killed = isLongRun ? victims : victims.slice(pass, pass + 1);
        // one after the other: a kill may come while the previously killed process restarts
        let killing: Promise<void> = Promise.resolve();
        await sendAll(
          names,
          (key) => key,
          (sent) => {
            const role = killed[(sent * (killed.length + 1)) / requests - 1];
            if (role !== undefined) killing = killing.then(async () => void (kills += await kill(role)));
          },
        );
        await killing;
      }
      ledger.record(names, 'acknowledged');
      // The import processes would reject the keys that they have passed on.
      await service.stop();
      await service.startAgain({ TRIBUTARY_CLOCK_OFFSET_SECONDS: String(hours * 3600) });
      await sendAll(
        names.slice(0, reused),
        (key) => `another body under ${key}`,
        () => undefined,
      );
      await waitUntilWorkedOff(service);
      await service.stop();

      const [result] = await reconcileLake(dataDir, [ledger]);
      const totals = await totalsOf(dataDir);
      expect(result).toMatchObject({ stored: requests, lost: [], doubled: [], invented: [], damaged: [] });
      expect(totals).toMatchObject({ stored: requests });
      // one whose response was lost is sent again, and kept again
      expect(totals.failed).toBeGreaterThanOrEqual(reused);
      expect(totals.streamed).toBe(totals.stored + totals.failed + totals.repeats + totals.erased);
      expect(totals.repeats).toBeGreaterThanOrEqual(requests * replays);
      recordFinding({
        promise: 'P8',
        what: `requests under a key sent ${replays + 1} times, over restarts, kills and 23 hours; keys that come again with another body`,
        wanted:
          '100 % stored once within 24 hours; a repeat with another body is never stored, and kept as a failed event',
        figures: {
          requests,
          storedOnce: totals.stored,
          repeatsDropped: totals.repeats,
          kills,
          lostEvents: result?.lost.length ?? 0,
          doubledEvents: result?.doubled.length ?? 0,
          inventedEvents: result?.invented.length ?? 0,
          otherBodies: reused,
          otherBodiesKeptAsFailed: totals.failed,
        },
        reached: true,
        seed,
        again,
      });
    },
  );
});
