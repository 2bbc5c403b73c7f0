import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { replayFailedEvents, type Replayed } from '../../../src/admin/replay.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { listFailedFiles, readFailedFile, type FailedEvent } from '../../../src/lake/files/failed-events.ts';
import { changeSteps } from '../../../src/lake/files/change.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import type { Totals } from '../../../src/lake/log/lake-state.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { commitSteps, openTable } from '../../../src/lake/log/table.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { inTurn, oneTestIn } from '../../helpers/in-turn.ts';
import { linesOf, type TestRequest } from '../../helpers/keyed-requests.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, readRows, startTestCompact, type TestCompactOptions } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

/** Opens a lake with a compactor, and the actions of a test on them. */
async function openPlace(options: TestCompactOptions = {}) {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const paths = lakePaths(lakeDir);
  const stream = createMemoryStream();
  let compactor = await startTestCompact(folder, stream, options);
  let sent = 0;
  const totals = async (): Promise<Totals | undefined> => (await readSnapshot(paths.table)).lake?.totals;
  const readFailed = async (): Promise<FailedEvent[]> =>
    (await Promise.all((await listFailedFiles(paths.failed, paths.table)).map(readFailedFile))).flat();
  const waitUntilTaken = (): Promise<void> =>
    waitFor(`${sent} events are committed`, async () => (await totals())?.streamed === sent);
  return {
    folder,
    stream,
    readFailed,
    waitUntilTaken,
    publishRaw(payload: string | Buffer): void {
      stream.publishRaw(payload);
      sent += payload.toString('latin1').split('\n').length - 1;
    },
    publish(...requests: readonly TestRequest[]): void {
      for (const request of requests) sent += stream.publish(linesOf(request)) > 0 ? request.names.length : 0;
    },
    /** Repairs the failed events, as if a defect of the service were fixed. */
    async mend(): Promise<void> {
      await waitFor('no failed event is without its place', async () =>
        (await listFailedFiles(paths.failed, paths.table)).every((file) => !file.includes('pending-')),
      );
      for (const file of await listFailedFiles(paths.failed, paths.table)) {
        const events = (await readFailedFile(file)).map((event) => ({
          ...event,
          line: event.line.replace('"age":"old"', '"age":7'),
        }));
        await writeFile(file, events.map((event) => `${JSON.stringify(event)}\n`).join(''));
      }
    },
    async replay(crashPoint: CrashPoint = noCrashPoint, clockOffsetSeconds = 0): Promise<Replayed> {
      const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
      try {
        const clock = createClock(clockOffsetSeconds);
        const table = await openTable(paths.table, { clock, crashPoint });
        return await replayFailedEvents({ table, lakeDir, duckdb, clock, crashPoint });
      } finally {
        duckdb.close();
      }
    },
    async restart(): Promise<void> {
      await compactor.stop();
      compactor = await startTestCompact(folder, stream, options);
    },
    /** Stops the compactor and checks the totals. Returns the names of the stored events, and the totals. */
    async close(): Promise<{ readonly stored: string; readonly failed: number; readonly repeats: number }> {
      await waitUntilTaken();
      await compactor.stop();
      const rows = await readRows(folder, 'event_id, custom_event_name, available_at');
      const found = await totals();
      const failed = (await readFailed()).length;
      expect(found).toEqual({
        streamed: sent,
        stored: rows.length,
        failed,
        repeats: sent - rows.length - failed,
        erased: 0,
      });
      expect((await checkLake(lakeDir)).problems).toEqual([]);
      return {
        stored: rows
          .map((row) => String(row['custom_event_name']))
          .toSorted()
          .join(''),
        failed,
        repeats: found?.repeats ?? 0,
      };
    },
  };
}

const bad = { age: 'old' };
const ago = (hours: number): number => Date.now() - hours * 3_600_000;
const line = (members: object): string => JSON.stringify(eventLine({ custom_event_name: 'n', ...members }));
const ask = (key: string, names: string, members: TestRequest['members'] = {}): TestRequest => ({
  key,
  names: names.split(''),
  members,
});

test('An event that failed twice under one key is stored once, also when clients retry after the replay', async () => {
  const place = await openPlace();
  for (const key of ['1', '2', '3']) {
    place.publish(ask(key, 'a', bad), ask(key, 'a', bad));
    await place.waitUntilTaken();
  }
  await place.mend();
  expect(await place.replay()).toEqual({ stored: 3, repeats: 3, stillFailed: 0 });
  place.publish(ask('1', 'a'), ask('2', 'a'));
  await place.waitUntilTaken();
  await place.restart();
  place.publish(ask('3', 'a'), ask('1', 'ab'));
  expect(await place.close()).toEqual({ stored: 'aaa', failed: 2, repeats: 6 });
});

test('A key that was used for another request meanwhile keeps the failed event failed, with that reason', async () => {
  const place = await openPlace();
  place.publish(ask('1', 'a', bad), ask('2', 'b', bad));
  await place.waitUntilTaken();
  const before = await place.readFailed();
  // a compactor without the failure in its memory
  await place.restart();
  place.publish(ask('1', 'xy'));
  await place.waitUntilTaken();
  await place.mend();
  expect(await place.replay()).toEqual({ stored: 1, repeats: 0, stillFailed: 1 });
  expect(await place.readFailed()).toEqual([
    {
      ...before.find(({ line: text }) => text.includes('"a"')),
      line: expect.stringContaining('"age":7'),
      reason: 'key_reused',
    },
  ]);
  expect(await place.replay()).toEqual({ stored: 0, repeats: 0, stillFailed: 1 });
  expect(await place.close()).toEqual({ stored: 'bxy', failed: 1, repeats: 0 });
});

test('An old failed event differs from one that arrived under its key days later', async () => {
  const place = await openPlace();
  place.publish({ ...ask('1', 'a', bad), receivedMs: ago(100) }, { ...ask('2', 'b', bad), receivedMs: ago(23) });
  await place.waitUntilTaken();
  place.publish({ ...ask('1', 'a'), receivedMs: ago(1) }, { ...ask('2', 'b'), receivedMs: ago(1) });
  await place.waitUntilTaken();
  await place.mend();
  expect(await place.replay()).toEqual({ stored: 1, repeats: 1, stillFailed: 0 });
  expect(await place.close()).toEqual({ stored: 'aab', failed: 0, repeats: 1 });
});

test('A flush between the check of a replay and its commit is detected', async () => {
  const place = await openPlace();
  place.publish(ask('1', 'a', bad), ask('2', 'b', bad));
  await place.waitUntilTaken();
  await place.mend();
  let passes = 0;
  const replayed = await place.replay(async (step) => {
    if (step !== 'files-linked' || (passes += 1) > 2) return;
    place.publish(passes === 1 ? ask('1', 'a') : ask('3', 'c'));
    await place.waitUntilTaken();
    // the clock is ahead: available_at does not show the flush
  }, 3600);
  expect(replayed).toEqual({ stored: 1, repeats: 1, stillFailed: 0 });
  expect(passes).toBeGreaterThan(2);
  expect(await place.close()).toEqual({ stored: 'abc', failed: 0, repeats: 1 });
});

test.each(inTurn(['flush-converted', 'flush-written', 'flush-failed-kept', 'commit-written'], 4))(
  'A replay between the check of a flush and its commit is noticed: at %s',
  async (where) => {
    let pause: (() => Promise<void>) | undefined;
    const crashPoint: CrashPoint = async (step) => {
      if (step !== where) return;
      const task = pause;
      pause = undefined;
      await task?.();
    };
    const place = await openPlace({ crashPoint });
    place.publish(ask('1', 'a', bad), ask('2', 'b', bad), ask('3', 'c', bad));
    await place.waitUntilTaken();
    await place.mend();
    let replayed: Replayed | undefined;
    pause = async () => {
      // the clock is behind: available_at does not show the replay
      replayed = await place.replay(noCrashPoint, -3600);
    };
    // the same event again, the key of another for a longer request, and an event that fails anyway
    place.publish(ask('1', 'a'), ask('2', 'bx'), ask('4', 'd', bad), ask('5', 'e'));
    await place.waitUntilTaken();
    expect(replayed).toEqual({ stored: 3, repeats: 0, stillFailed: 0 });
    expect(await place.close()).toEqual({ stored: 'abce', failed: 3, repeats: 1 });
  },
);

test('A concurrent flush and replay, over many keys and files, store each event once', async () => {
  const place = await openPlace();
  const keys = Array.from({ length: 60 }, (_, index) => String(index));
  for (let from = 0; from < keys.length; from += 10) {
    place.publish(...keys.slice(from, from + 10).flatMap((key) => [ask(key, 'a', bad), ask(key, 'a', bad)]));
    await place.waitUntilTaken();
  }
  await place.mend();
  let done = false;
  const retries = (async () => {
    for (const key of keys.toReversed()) {
      if (done) break;
      place.publish(ask(key, 'a'), ask(`other ${key}`, 'z'));
      await place.waitUntilTaken();
    }
  })();
  const replayed = await place.replay();
  done = true;
  await retries;
  place.publish(...keys.map((key) => ask(key, 'a')));
  await place.waitUntilTaken();
  expect(replayed).toMatchObject({ stillFailed: 0 });
  const { stored } = await place.close();
  expect(stored.replaceAll('z', '')).toBe('a'.repeat(keys.length));
});

test.each(inTurn([...changeSteps, ...commitSteps], 12))(
  'A replay that ends at %s is finished by the next, and nothing is stored twice',
  async (where) => {
    const place = await openPlace();
    place.publish(ask('1', 'ab', bad), ask('1', 'ab', bad));
    place.publishRaw('no json\n');
    await place.waitUntilTaken();
    await place.mend();
    const failing = place.replay((step) =>
      step === where ? Promise.reject(new Error(`stopped at ${where}`)) : Promise.resolve(),
    );
    await expect(failing).rejects.toThrow(where);
    expect(await place.replay()).toMatchObject({ stillFailed: 1 });
    place.publish(ask('1', 'ab'));
    expect(await place.close()).toEqual({ stored: 'ab', failed: 1, repeats: 4 });
  },
);

test('A replay does not change events that stay failed', async () => {
  const place = await openPlace();
  const odd = [
    Buffer.concat([
      Buffer.from(line({}).slice(0, -1)),
      Buffer.from(',"os_version":"'),
      Buffer.from([0xff, 0xc3]),
      Buffer.from('"}'),
    ]),
    Buffer.from(`\u{feff}${line({})}`),
    Buffer.from(line({}).replace('"n"', '"\\ud800"')),
    Buffer.from(line({}).replace('"id_app":1', '"id_app":9007199254740993')),
    Buffer.from(line({}).replace('"id_app":1', '"id_app": 1.5, "unknown": [1]')),
    Buffer.from('{"event_id":'),
  ];
  place.publishRaw(Buffer.concat([...odd, Buffer.from(line(bad))].flatMap((part) => [part, Buffer.from('\n')])));
  await place.waitUntilTaken();
  const before = await place.readFailed();
  await place.mend();
  expect(await place.replay()).toEqual({ stored: 1, repeats: 0, stillFailed: odd.length });
  const after = await place.readFailed();
  expect(after.toSorted((a, b) => (a.line < b.line ? -1 : 1))).toEqual(
    before.filter(({ line: text }) => !text.includes('"old"')).toSorted((a, b) => (a.line < b.line ? -1 : 1)),
  );
  const kept = after.map((event) =>
    (event.lineBase64 === undefined ? Buffer.from(event.line) : Buffer.from(event.lineBase64, 'base64')).toString(
      'latin1',
    ),
  );
  expect(kept.toSorted()).toEqual(odd.map((part) => part.toString('latin1')).toSorted());
  expect(await place.close()).toMatchObject({ stored: 'n', failed: odd.length });
});
