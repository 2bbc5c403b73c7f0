import { createWriteStream } from 'node:fs';
import path from 'node:path';
import { once } from 'node:events';
import { setTimeout as pass } from 'node:timers/promises';
import { describe, expect, it, type TestContext } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { openLakeReader } from '../../src/demo/demo-report.ts';
import { checkLake } from '../../src/lake/check.ts';
import { totalsOf, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { strike } from '../helpers/blows.ts';
import { testFolder } from '../helpers/folder.ts';
import { createImportProcess, startFrontAddress } from '../helpers/import-process.ts';
import type { ProcessRole } from '../helpers/processes.ts';
import { startWithApp } from '../helpers/service-access.ts';
import { mountSmallDisk } from '../helpers/small-disk.ts';
import { waitFor } from '../helpers/wait.ts';

const mebibyte = 1024 * 1024;
const events = chaosFigure('TRIBUTARY_TEST_IMPORT_EVENTS', { short: 6000, long: 1_000_000 });
const blows = chaosFigure('TRIBUTARY_TEST_IMPORT_BLOWS', { short: 2, long: 36 });
const seed = chaosSeed();
const again = `TRIBUTARY_TEST_IMPORT_EVENTS=${events} TRIBUTARY_TEST_IMPORT_BLOWS=${blows} make chaos PART=import-file SEED=${seed}`;
const fullMs = isLongRun ? 4000 : 1000;
const patienceMs = 180_000;

/** Disturbances of a running import, one after the other. */
const kinds = [
  'Ctrl-C',
  'kill of the import',
  'full disk of the service',
  'kill of the service',
  'full disk of the import',
  'kill of a process',
] as const;
const victims: readonly ProcessRole[] = ['ingest', 'nats-server', 'compact'];

async function writeEvents(file: string): Promise<void> {
  const stream = createWriteStream(file);
  for (let index = 0; index < events; index += 1) {
    const line = `{"eventTimestamp":${1_780_000_000 + index},"customUserId":"u-${index}","customEventName":"imported","customEventParams":{"n":"${index}"}}\n`;
    if (!stream.write(line)) await once(stream, 'drain');
  }
  stream.end();
  await once(stream, 'finish');
}

describe('the import of a file', () => {
  it(
    `An import of ${events} events that is stopped and killed, into a service that is killed, on disks that fill up, ends with each event in the lake once`,
    async (ctx: TestContext) => {
      inLongForm(ctx.skip);
      const random = createRandom(seed);
      const folder = testFolder();
      const dataDir = path.join(folder, 'data');
      const streamDisk = mountSmallDisk(path.join(dataDir, 'nats'), 128 * mebibyte);
      const stateDisk = mountSmallDisk(path.join(folder, 'state'), mebibyte);
      if (streamDisk === undefined || stateDisk === undefined)
        ctx.skip('a small file system can only be mounted by root');
      const file = path.join(folder, 'events.ndjson');
      await writeEvents(file);
      const settings = { TRIBUTARY_STREAM_MAX_BYTES: String(64 * mebibyte), TRIBUTARY_DISK_RESERVE_BYTES: '0' };
      const { service, token } = await startWithApp({ dataDir, settings });
      const begunAt = performance.now();
      const url = await startFrontAddress(() => service.s2s);
      const state = path.join(folder, 'state', 'import.json');
      const words = ['--url', url, '--app', '1', '--parallel', isLongRun ? '8' : '2'];
      const running = createImportProcess(file, state, words, { TRIBUTARY_TOKEN: token });

      const done = new Map<string, number>();
      const act: Record<(typeof kinds)[number], () => Promise<unknown>> = {
        'Ctrl-C': async () => expect([0, 130]).toContain(await running.end('SIGINT')),
        'kill of the import': () => running.end('SIGKILL'),
        'kill of the service': () =>
          strike(service, random, { roles: ['supervisor'], stoppedMs: 0, nextAfterMs: 0, whileStarting: undefined }),
        'kill of a process': () =>
          strike(service, random, {
            roles: [random.pick(victims)],
            stoppedMs: random.chance(0.3) ? random.integer(50, 1000) : 0,
            nextAfterMs: 0,
            whileStarting: undefined,
          }),
        'full disk of the service': async () => {
          streamDisk.fill(0);
          await pass(fullMs);
          streamDisk.empty();
        },
        'full disk of the import': async () => {
          stateDisk.fill(0);
          await pass(fullMs);
          stateDisk.empty();
        },
      };
      running.ensureRunning();
      for (let turn = 0; turn < blows; turn += 1) {
        const wanted = (events * (turn + random.next())) / (blows + 1);
        await waitFor(
          `${Math.floor(wanted)} events are settled`,
          () => !running.isRunning() || running.settled() >= wanted,
          patienceMs,
        );
        const kind = kinds[turn % kinds.length] ?? 'Ctrl-C';
        await act[kind]();
        done.set(kind, (done.get(kind) ?? 0) + 1);
        running.ensureRunning();
      }
      expect(await running.ended(), running.notes()).toBe(0);
      const runs = running.ensureRunning();
      expect(await running.ended(), running.notes()).toBe(0);
      expect(running.notes()).toContain('already imported');

      await waitUntilWorkedOff(service, patienceMs);
      await service.stop();
      const totals = await totalsOf(dataDir);
      const lake = await openLakeReader(dataDir);
      const [row] = await lake
        .query(
          'SELECT count(*) AS n, count(DISTINCT custom_user_id) AS users, count(DISTINCT event_id) AS ids FROM events',
        )
        .finally(() => lake.close());
      const [rows, users, ids] = [Number(row?.['n']), Number(row?.['users']), Number(row?.['ids'])];
      const { problems } = await checkLake(path.join(dataDir, 'lake'));
      recordFinding({
        promise: 'P8',
        what: 'tributary import, stopped and killed, into a service that is killed, with both disks full in between',
        wanted: `${events.toLocaleString('en-US')} events in the file, as many in the lake, each once`,
        figures: {
          events,
          storedEvents: rows,
          distinctEvents: users,
          repeatedEvents: totals.repeats,
          blows: [...done.values()].reduce((a, b) => a + b, 0),
          runs,
          minutes: Math.round((performance.now() - begunAt) / 6000) / 10,
        },
        reached: rows === events && users === events,
        seed,
        again,
      });
      expect({ rows, users, ids, failed: totals.failed, problems }).toEqual({
        rows: events,
        users: events,
        ids: events,
        failed: 0,
        problems: [],
      });
    },
    120_000 + blows * 60_000,
  );
});
