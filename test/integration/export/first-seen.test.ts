import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import { subjectKeySql } from '../../../src/datasets/subject.ts';
import {
  areFirstSeenPartsCurrent,
  firstSeenFolder,
  firstSeenSteps,
  openFirstSeenParts,
  type FirstSeenParts,
} from '../../../src/lake/first-seen/first-seen-parts.ts';
import { listUncovered } from '../../../src/lake/first-seen/plan-parts.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { zones } from '../../helpers/derived-oracle.ts';
import { createExportArea, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { createRandom, oracleApps, type ImportedEvent } from '../../helpers/export-events.ts';
import { expectedRows, parseCsv, type OracleRequest } from '../../helpers/export-oracle.ts';
import {
  countFiles,
  drawHistories,
  isSettled,
  listParts,
  namesOf,
  readFound,
  toEventLine,
} from '../../helpers/first-seen.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import { query, startTestCompact } from '../../helpers/lake.ts';
import { inTurn, isWhole } from '../../helpers/in-turn.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';
import { runHere } from '../../helpers/worker-here.ts';

const daySeconds = 86_400;
const days = 400;
/** Time to seal some dates and create their parts, and that of a test, ms. */
const [sealMs, longestMs] = [120_000, 400_000];
const now = Math.floor(Date.now() / 1000);
const random = createRandom(77);
const pick = <T>(values: readonly T[]): T => values[random(values.length)] as T;
const toDay = (seconds: number): string => new Date(seconds * 1000).toISOString().slice(0, 10);

/** A request over a day of a zone, or over seconds that begin at an event or next to it. */
function drawRequest(index: number, events: readonly ImportedEvent[]): OracleRequest {
  const from = pick(events).eventTimestamp + pick([0, 1, -1, -3600]);
  const to = Math.min(now, from + pick([0, 3600, daySeconds, 30 * daySeconds]));
  // The current date of some zones is the previous one of UTC.
  const date = toDay(Math.min(from, now - daySeconds));
  return {
    event: index % 2 === 0 ? 'newUsers' : 'newDevices',
    selectors: ['eventId', 'idApp', 'tsEvent', 'customUserId', 'lvid', 'gaid'],
    timezone: zones[index % zones.length],
    ...(index % 3 === 0 ? { tsFrom: String(from), tsTo: String(to) } : { dateFrom: date, dateTo: date }),
    ...(index % 4 === 0 ? { idApp: ['11', '14', '91'] } : {}),
  };
}

function encode(request: OracleRequest): string {
  return Object.entries(request)
    .flatMap(([name, value]) =>
      value === undefined ? [] : `${name}=${[value].flat().map(encodeURIComponent).join(',')}`,
    )
    .join('&');
}

/** What happens to the parts; `make test` selects one. */
const selected = new Set(inTurn(['erased', 'damaged', 'removed'], 3));

describe('exports of new users and devices with first-seen parts', () => {
  const folder = temporaryFolder();
  const area = createExportArea(folder);
  const lakeDir = path.join(folder, 'lake');
  const partsDir = firstSeenFolder(lakeDir);
  const stream = createMemoryStream();
  const sent: ImportedEvent[] = [];
  let running: RunningArea;
  let user: Credentials;
  let asked = 0;

  beforeAll(async () => {
    for (const app of oracleApps) await area.addApp(app);
    user = await area.addUser({});
    running = await area.start({ runAttempt: runHere, maxExports: 1000 });
    return () => running.stop();
  });

  async function startSealer() {
    const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10 });
    onTestFinished(() => compactor.stop());
    return compactor;
  }

  async function sealMore(events: readonly ImportedEvent[]): Promise<void> {
    stream.publish(events.map(toEventLine));
    sent.push(...events);
    await waitFor('sealed and in parts', () => isSettled(lakeDir, sent.length), sealMs);
  }

  /** Returns the number of rows of a user in all parts. */
  async function countKeys(id: string): Promise<number> {
    const [row] = await query(
      `SELECT count(*) AS n FROM read_parquet('${partsDir}/*.parquet') WHERE key = ${subjectKeySql(`'${id}'`)}`,
    );
    return Number(row?.['n']);
  }

  /** Compares exports with the oracle; returns the number of rows. A third of `count`, except in the nightly run. */
  async function compare(count: number): Promise<number> {
    let rows = 0;
    for (let index = 0; index < (isWhole ? count : count / 3); index += 1) {
      const request = drawRequest(asked, sent);
      asked += 1;
      const parts = await running.export(user, encode(request));
      const expected = expectedRows(request, sent);
      expect({ request, rows: parseCsv(parts.join('')) }).toEqual({ request, rows: expected });
      rows += expected.length - 1;
    }
    return rows;
  }

  it(
    'They equal the oracle in ten zones, while late events lower first times and parts are merged',
    async () => {
      const sealer = await startSealer();
      const events = drawHistories(31, now - 3600, days);
      const third = Math.ceil(events.length / 3);
      let rows = 0;
      let earlier: { readonly asOf: string; readonly events: readonly ImportedEvent[] } | undefined;
      for (let from = 0; from < events.length; from += third) {
        await sealMore(events.slice(from, from + third));
        rows += await compare(15);
        const found = await readFound(lakeDir);
        expect(await countFiles(found, now)).toMatchObject({ read: 0 });
        earlier ??= { asOf: String(found.snapshot.version), events: [...sent] };
      }
      expect(rows).toBeGreaterThan(isWhole ? 30 : 5);
      await sealer.stop();
      // An older version has fewer files than most parts cover.
      for (let index = 0; index < (isWhole ? 10 : 3); index += 1) {
        const request = drawRequest(index, earlier?.events ?? []);
        const parts = await running.export(user, `${encode(request)}&asOf=${earlier?.asOf}`);
        expect(parseCsv(parts.join(''))).toEqual(expectedRows(request, earlier?.events ?? []));
      }
    },
    longestMs,
  );

  it.runIf(selected.has('erased'))(
    'An erased user is in no part, and a part from before the erasure is not used',
    async () => {
      const before = path.join(testFolder(), 'before');
      await cp(partsDir, before, { recursive: true });
      const kept = sent.filter(({ fields }) => fields['customUserId'] !== 'user 3');
      expect(sent.length - kept.length).toBeGreaterThan(5);
      expect(await countKeys('user 3')).toBeGreaterThan(0);
      const sealer = await startSealer();
      const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
      onTestFinished(() => duckdb.close());
      const [clock, crashPoint] = [createClock(0), noCrashPoint];
      const table = await openTable(path.join(lakeDir, 'events'), { clock, crashPoint });
      const { signal } = new AbortController();
      const dependencies = { table, lakeDir, duckdb, publisher: stream.publisher, clock, crashPoint, signal };
      await eraseEvents(dependencies, { users: ['user 3'] }, { retentionMs: 86_400_000, now: true });
      sent.splice(0, Infinity, ...kept);
      // The sealer may be writing the next part.
      await sealer.stop();
      const { snapshot } = await readFound(lakeDir);
      expect(await areFirstSeenPartsCurrent(lakeDir, snapshot.files)).toBe(true);
      expect(await countKeys('user 3')).toBe(0);
      const second = await startSealer();
      await waitFor('in parts', () => isSettled(lakeDir, sent.length), sealMs);
      await second.stop();
      await compare(10);

      await rm(partsDir, { recursive: true });
      await cp(before, partsDir, { recursive: true });
      expect(await areFirstSeenPartsCurrent(lakeDir, snapshot.files)).toBe(false);
      expect((await countFiles(await readFound(lakeDir), now)).read).toBeGreaterThan(0);
      await compare(10);
    },
    longestMs,
  );

  it.runIf(selected.has('damaged'))(
    'The files of damaged and missing parts are read, and the next compactor recreates these parts',
    async () => {
      const names = await listParts(lakeDir);
      const [first, second, ...others] = names;
      expect(others.length).toBeGreaterThan(1);
      for (const name of names) {
        const file = path.join(partsDir, name);
        const bytes = await readFile(file);
        bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 1;
        if (name === first || name === second) await rm(file);
        else await writeFile(file, bytes);
      }
      await writeFile(path.join(partsDir, 'left-over.tmp'), 'x');
      expect(await countFiles(await readFound(lakeDir), now)).toMatchObject({ left: 0 });
      await compare(10);
      const sealer = await startSealer();
      await waitFor('in parts', () => isSettled(lakeDir, sent.length), sealMs);
      await sealer.stop();
      const found = await readFound(lakeDir);
      expect(await countFiles(found, now)).toMatchObject({ read: 0 });
      expect(await listParts(lakeDir)).toEqual(namesOf(found));
      await compare(10);
    },
    longestMs,
  );

  it.runIf(selected.has('removed'))(
    'They equal the oracle while parts are removed, added and merged, and after a failure at each step',
    async () => {
      const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
      onTestFinished(() => duckdb.close());
      const { snapshot } = await readFound(lakeDir);
      const today = toDay(now);
      /** Removes all parts, adds one per file, and merges them. */
      async function rebuild(rebuilt: FirstSeenParts): Promise<void> {
        await rebuilt.remove(await rebuilt.list());
        for (const each of listUncovered([], snapshot.files))
          await rebuilt.add(duckdb, [each], snapshot.emptyFile, today);
        await rebuilt.merge(duckdb, await rebuilt.list(), today);
      }
      for (const step of firstSeenSteps) {
        const failing = await openFirstSeenParts(lakeDir, (at) =>
          at === step ? Promise.reject(new Error(`failed at ${step}`)) : Promise.resolve(),
        );
        await expect(rebuild(failing)).rejects.toThrow(step);
        await compare(4);
      }
      const parts = await openFirstSeenParts(lakeDir);
      const done = new AbortController();
      const rebuilding = (async () => {
        while (!done.signal.aborted) await rebuild(parts);
      })();
      try {
        await compare(20);
      } finally {
        done.abort();
        await rebuilding;
      }
      expect(await countFiles(await readFound(lakeDir), now)).toMatchObject({ read: 0 });
    },
    longestMs,
  );
});
