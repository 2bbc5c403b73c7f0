import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { expireAll, dryRunExpire } from '../../../src/admin/expire.ts';
import { createAgeLimits } from '../../../src/compact/seal/age-limits.ts';
import { events } from '../../../src/datasets/dataset.ts';
import { checkpointWhenDue, trimLog } from '../../../src/lake/cleanup.ts';
import { erasureListFolder, removeFormerLists } from '../../../src/lake/event-index/erasure-list.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { dayOf, type AgeRules } from '../../../src/lake/expiry/age-rules.ts';
import { changeSteps } from '../../../src/lake/files/change.ts';
import { applyDueReplacements } from '../../../src/lake/files/deferred-replacement.ts';
import { rewriteFiles } from '../../../src/lake/files/rewrite.ts';
import { openLake, lakePaths } from '../../../src/lake/lake.ts';
import { nextCursor } from '../../../src/lake/log/change-feed.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable, type Table } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../../src/lake/sql/literals.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { exportHere } from '../../helpers/export-here.ts';
import { isSettled } from '../../helpers/first-seen.ts';
import { testFolder } from '../../helpers/folder.ts';
import { isWhole } from '../../helpers/in-turn.ts';
import { query, startTestCompact } from '../../helpers/lake.ts';
import { startLakeReaders } from '../../helpers/lake-readers.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { addMadeFile } from '../../helpers/sealed-file.ts';
import { waitFor } from '../../helpers/wait.ts';

/** Days of events, days that are kept by default, and rows of a day. */
const [days, keptDays, rowsOfDay] = isWhole ? [400, 30, 300] : [10, 5, 60];
/** Longest wait for the work on all days, and time limit of a test, ms. */
const [waitMs, testMs] = isWhole ? [600_000, 1_800_000] : [120_000, 120_000];
const dayMs = 86_400_000;
const clock = createClock(0);
const today = dayOf(clock.nowMs());
const dateOf = (age: number): string => dayOf(Date.parse(today) - age * dayMs);
/** App 2 keeps its rows, app 3 has a shorter limit, apps 1 and 4 that of the service. */
const rules: AgeRules = {
  defaultDays: keptDays,
  apps: [{ idApp: 1 }, { idApp: 2, days: 0 }, { idApp: 3, kinds: { custom_event: keptDays - 2 } }, { idApp: 4 }],
};
const readRules = async (): Promise<AgeRules> => rules;
const fail = async (): Promise<AgeRules> => Promise.reject(new Error('unreadable'));
const keptOf: Readonly<Record<number, number>> = { 1: keptDays, 2: Infinity, 3: keptDays - 2, 4: keptDays };
const firstKept = (idApp: number): string => (keptOf[idApp] === Infinity ? '1970-01-01' : dateOf(keptOf[idApp] ?? 0));
const keptSql = [1, 2, 3, 4].map((idApp) => `(id_app = ${idApp} AND date >= DATE '${firstKept(idApp)}')`).join(' OR ');

/** Adds the events of a date: of app 4 in a separate file, of the others in one. A user returns after some days. */
async function addDay(table: Table, age: number, behindMs = age * 1000): Promise<void> {
  const date = dateOf(age);
  for (const [part, idApp] of [
    ['mixed', '1 + i % 3'],
    ['alone', '4'],
  ]) {
    const time = `TIMESTAMPTZ '${date} 00:00:00+00' + to_milliseconds(i * 86000000 // ${rowsOfDay})`;
    await addMadeFile(table, clock, {
      path: `_sealed/kind=custom_event/date=${date}/${part}.parquet`,
      rows: rowsOfDay,
      values: {
        event_id: `format('{:08x}-0000-7000-8000-{:012x}', ${age * 2 + (part === 'mixed' ? 0 : 1)}, i)`,
        kind: `'custom_event'`,
        date: `DATE '${date}'`,
        id_app: idApp ?? '',
        event_time: time,
        received_at: time,
        available_at: `TIMESTAMPTZ '${new Date(clock.nowMs()).toISOString()}'`,
        custom_user_id: `'user-' || ((i * 7 + ${age} * 13) % ${rowsOfDay * 3})`,
        custom_event_name: `'level'`,
      },
      availableAtMs: clock.nowMs() - behindMs,
      orderBy: 'id_app, event_time',
    });
  }
}

async function openDays() {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const retentionMs = 60_000;
  const table = await openLake(lakeDir, { clock, crashPoint: noCrashPoint, retentionMs });
  for (let age = days - 1; age >= 0; age -= 1) await addDay(table, age);
  return { folder, lakeDir, tableDir: lakePaths(lakeDir).table, retentionMs };
}

/** Opens what the command needs. */
async function openWork() {
  const { lakeDir, tableDir, retentionMs } = await openDays();
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const table = await openTable(tableDir, { clock, crashPoint: noCrashPoint });
  const { signal } = new AbortController();
  const work = { table, lakeDir, duckdb, clock, crashPoint: noCrashPoint, retentionMs, signal };
  return { tableDir, work };
}

const rowsSql = async (tableDir: string): Promise<string> => {
  const { files } = await readSnapshot(tableDir);
  return `read_parquet(${sqlList(files.map((file) => file.absolutePath))}, hive_partitioning = false)`;
};

async function countRows(source: string): Promise<readonly number[]> {
  const [row] = await query(
    `SELECT count(*)::INT AS rows, count(DISTINCT event_id)::INT AS ids, (count(*) FILTER (WHERE ${keptSql}))::INT AS kept FROM ${source}`,
  );
  return [Number(row?.['rows']), Number(row?.['ids']), Number(row?.['kept'])];
}

const inOrder = (rows: readonly string[][]): string[][] => rows.toSorted((a, b) => (a.join() < b.join() ? -1 : 1));

/** Returns the first events of users among the events that are kept, since a date: app, user, time. */
async function listNewUsers(source: string, since: string): Promise<string[][]> {
  const rows = await query(
    `SELECT id_app::VARCHAR AS app, custom_user_id AS user, floor(epoch(first))::BIGINT::VARCHAR AS time FROM
     (SELECT id_app, custom_user_id, min(event_time) AS first FROM ${source} WHERE ${keptSql} GROUP BY ALL)
     WHERE first >= TIMESTAMPTZ '${since} 00:00:00+00'`,
  );
  return inOrder(rows.map(({ app, user, time }) => [String(app), String(user), String(time)]));
}

test(
  `Of ${days} days, the rows within the limits of their apps stay, also if each step fails once, and readers of folders miss and double none`,
  async () => {
    const { folder, lakeDir, tableDir } = await openDays();
    const all = await rowsSql(tableDir);
    const [, , kept = 0] = await countRows(all);
    const since = dateOf(keptDays - 2);
    const newUsers = await listNewUsers(all, since);
    const before = nextCursor(await readSnapshot(tableDir));
    // After the last step of a change, nothing is left to do.
    const left = new Set<string>(changeSteps.slice(0, -1));
    let isExpiring = false;
    const crashPoint = async (step: string): Promise<void> => {
      if (isExpiring && left.delete(step)) throw new Error(`ended at ${step}`);
    };
    const first = await startTestCompact(folder, createMemoryStream(), { sealAgeMs: 500, retentionMs: 1500 });
    await waitFor('first-seen parts', () => isSettled(lakeDir, days * rowsOfDay * 2), waitMs);
    await first.stop();
    const readers = startLakeReaders(folder, keptSql);
    const readAgeRules = async (): Promise<AgeRules> => {
      isExpiring = true;
      return rules;
    };
    const options = { sealAgeMs: 500, retentionMs: 1500, crashPoint, readAgeRules };
    const second = await startTestCompact(folder, createMemoryStream(), options);
    onTestFinished(() => second.stop());
    const glob = `read_parquet('${path.join(tableDir, 'kind=*', 'date=*', '*.parquet')}')`;
    const exact = JSON.stringify([kept, kept, kept]);
    await waitFor(
      'the log has the kept rows alone',
      async () => JSON.stringify(await countRows(await rowsSql(tableDir))) === exact,
      waitMs,
    );
    await waitFor(
      'readers of folders see them alone',
      async () => JSON.stringify(await countRows(glob).catch(() => [])) === exact,
      waitMs,
    );
    // With a limit, parts of months are not merged into those of years.
    await waitFor('first-seen parts follow', () => isSettled(lakeDir, kept, 'month'), waitMs);
    await readers.stop();
    expect(second.facts()['ageLimits']).toMatchObject({ day: today });
    await second.stop();
    expect([...left]).toEqual([]);
    expect((await checkLake(lakeDir)).problems).toEqual([]);
    const { lake } = await readSnapshot(tableDir);
    expect(lake).toMatchObject({ expiryDay: today, totals: { stored: kept, erased: days * rowsOfDay * 2 - kept } });

    const found = await exportHere(
      tableDir,
      {
        event: 'newUsers',
        selectors: ['idApp', 'customUserId', 'tsEvent'],
        eventTime: { fromSeconds: Date.parse(since) / 1000 },
      },
      { idApps: [1, 2, 3, 4] },
    );
    expect(inOrder(found)).toEqual(newUsers);
    expect(newUsers.length).toBeGreaterThan(0);
    const erasures = { selectors: ['idApp', 'eventId', 'kind', 'before'], erasures: true as const };
    const list = await exportHere(tableDir, { ...erasures, sinceVersion: before }, { idApps: [1, 2, 3, 4] });
    expect(list).toEqual([
      ['1', '', '', firstKept(1)],
      ['3', '', 'custom_event', firstKept(3)],
      ['3', '', 'login', firstKept(1)],
      ['3', '', 'registration', firstKept(1)],
      ['4', '', '', firstKept(4)],
    ]);
  },
  testMs,
);

test(
  'The command counts rows and files by app first, then removes exactly these, and repeats without effect; limits that cannot be read remove none',
  async () => {
    const { tableDir, work } = await openWork();
    const { table } = work;
    const [rows = 0, , kept = 0] = await countRows(await rowsSql(tableDir));
    const { events: found } = await dryRunExpire(work, rules, today);
    expect(found).toMatchObject({ rows: rows - kept, filesToRemove: days - keptDays - 1 });
    const oldest = dateOf(days - 1);
    expect(found?.apps.map(({ idApp, from, to }) => [idApp, from, to])).toEqual(
      [1, 3, 4].map((idApp) => [idApp, oldest, dateOf((keptOf[idApp] ?? 0) + 1)]),
    );
    const ageLimits = createAgeLimits({ primaryTable: table, clock }, () => readNow(), 0);
    let readNow = readRules;
    await ageLimits.refresh([{ dataset: events, table }]);
    const { key = '' } = ageLimits.find(events) ?? {};
    expect(await ageLimits.holds(events, key)).toBe(true);
    readNow = async () => ({ ...rules, defaultDays: keptDays + 1 });
    expect(await ageLimits.holds(events, key)).toBe(false);
    readNow = fail;
    await expect(ageLimits.holds(events, key)).rejects.toThrow('unreadable');
    expect(ageLimits.find(events)).toBeUndefined();
    await expect(expireAll(work, fail, today)).rejects.toThrow('unreadable');
    expect(await countRows(await rowsSql(tableDir))).toEqual([rows, rows, kept]);
    expect(await expireAll(work, readRules, today)).toEqual({
      events: {
        rows: rows - kept,
        failedEvents: 0,
        filesRemoved: found?.filesToRemove,
        filesRewritten: found?.filesToRewrite,
      },
    });
    expect(await countRows(await rowsSql(tableDir))).toEqual([kept, kept, kept]);
    expect(await expireAll(work, readRules, today)).toEqual({});
    expect(await dryRunExpire(work, rules, today)).toEqual({});
  },
  testMs,
);

test(
  'A rewrite that is not shown at its path yet stays, so that the erased rows do not stay there for longer',
  async () => {
    const { tableDir, work } = await openWork();
    const { table, lakeDir, duckdb, retentionMs } = work;
    const place = { retentionMs, stagingDir: lakePaths(lakeDir).staging, crashPoint: noCrashPoint };
    await applyDueReplacements(table, { ...place, nowMs: clock.nowMs() });
    const oldest = table.snapshot().files.filter(({ path: file }) => file.includes(dateOf(days - 1)));
    const file = oldest.find(({ path: name }) => name.includes('alone'));
    if (file === undefined) throw new Error('no file of the oldest day');
    const toQuery = (source: string): string => `SELECT * FROM ${source} LIMIT ${rowsOfDay - 1}`;
    await rewriteFiles(
      { table, duckdb, clock, crashPoint: noCrashPoint, stagingDir: place.stagingDir, rowGroup: { rows: 20_480 } },
      [{ file, rowsLeftOut: 1, toQuery }],
      () => ({ cause: 'erase', actions: [], totals: { stored: -1, erased: 1 } }),
    );
    const countOldest = async (): Promise<number> => {
      const [row] = await query(
        `SELECT count(*)::INT AS rows FROM ${await rowsSql(tableDir)} WHERE id_app = 4 AND date = DATE '${dateOf(days - 1)}'`,
      );
      return Number(row?.['rows']);
    };
    await expireAll(work, readRules, today);
    expect(await countOldest()).toBe(rowsOfDay - 1);
    await applyDueReplacements(table, { ...place, nowMs: clock.nowMs() + retentionMs + 1 });
    await expireAll(work, readRules, today);
    expect(await countOldest()).toBe(0);

    // A raised limit: late rows are removed up to an earlier date, and readers of copies learn it.
    await table.refresh();
    await addDay(table, days, 0);
    const sinceVersion = nextCursor(await readSnapshot(tableDir));
    await expireAll(work, async () => ({ ...rules, defaultDays: keptDays + 1 }), today);
    const list = { selectors: ['idApp', 'eventId', 'kind', 'before'], erasures: true as const, sinceVersion };
    expect(await exportHere(tableDir, list, { idApps: [4] })).toEqual([['4', '', '', dateOf(keptDays + 1)]]);

    // Exports of versions that the log has may be reading the former lists.
    const countLists = async (): Promise<number> => (await readdir(path.join(tableDir, erasureListFolder))).length;
    await table.refresh();
    expect(await countLists()).toBeGreaterThan(1);
    await removeFormerLists(table);
    expect(await countLists()).toBeGreaterThan(1);
    await checkpointWhenDue(duckdb, table, noCrashPoint, 1);
    await trimLog(table, undefined, { nowMs: clock.nowMs() + dayMs, retentionMs, crashPoint: noCrashPoint });
    await removeFormerLists(table);
    expect(await countLists()).toBe(1);
  },
  testMs,
);
