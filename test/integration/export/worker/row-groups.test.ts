import { readFileSync, writeFileSync } from 'node:fs';
import { rename } from 'node:fs/promises';
import { beforeEach, expect, test } from 'vitest';
import type { ExportSpec } from '../../../../src/export/jobs/export-spec.ts';
import { openFirstSeenParts } from '../../../../src/lake/first-seen/first-seen-parts.ts';
import { listUncovered } from '../../../../src/lake/first-seen/plan-parts.ts';
import { lakePaths, openLake } from '../../../../src/lake/lake.ts';
import { openDuckdb } from '../../../../src/lake/sql/duckdb.ts';
import { createClock } from '../../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../../src/runtime/crash-point.ts';
import { exportHere } from '../../../helpers/export-here.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { oneTestIn } from '../../../helpers/in-turn.ts';
import { query } from '../../../helpers/lake.ts';
import { addMadeFile, sealedValues } from '../../../helpers/sealed-file.ts';

beforeEach(oneTestIn(2));

const rows = 50_000;

/** A row group, bytes from the first to after the last, and its apps; in first-seen parts, the subject of its rows. */
interface Group {
  readonly from: number;
  readonly to: number;
  readonly apps: readonly [number, number];
  readonly subject: string | undefined;
}

/** Lists the row groups of a Parquet file. */
async function listGroups(file: string): Promise<Group[]> {
  const found = await query(
    `SELECT min(coalesce(dictionary_page_offset, data_page_offset)) AS first,
       max(coalesce(dictionary_page_offset, data_page_offset) + total_compressed_size) AS last,
       min(TRY_CAST(stats_min_value AS INT)) FILTER (path_in_schema = 'id_app') AS low, max(TRY_CAST(stats_max_value AS INT)) FILTER (path_in_schema = 'id_app') AS high,
       any_value(stats_min_value) FILTER (path_in_schema = 'subject' AND stats_min_value = stats_max_value) AS subject
     FROM parquet_metadata('${file}') GROUP BY row_group_id ORDER BY row_group_id`,
  );
  return found.map(({ first, last, low, high, subject }) => ({
    from: Number(first),
    to: Number(last),
    apps: [Number(low), Number(high)],
    subject: typeof subject === 'string' ? subject : undefined,
  }));
}

/** Creates a table with one file of 20 apps in row groups of 2,048 rows. */
async function openHashedTable(values = sealedValues(rows, 50)) {
  const clock = createClock(0);
  const lakeDir = testFolder();
  const table = await openLake(lakeDir, { clock, crashPoint: noCrashPoint, retentionMs: 60_000 });
  const made = { path: '_sealed/kind=custom_event/date=2026-01-31/a-merged-0.parquet', rows, rowGroupRows: 2048 };
  await addMadeFile(table, clock, { ...made, values, hashed: true });
  const file = table.snapshot().files[0]?.absolutePath ?? '';
  return { tableDir: lakePaths(lakeDir).table, file, groups: await listGroups(file) };
}

const holds = ({ apps: [low, high] }: Group, idApps: readonly number[]): boolean =>
  idApps.some((app) => app >= low && app <= high);

/** Overwrites parts of a file, so that the engine cannot read them. */
function ruin(file: string, parts: readonly Group[]): void {
  const bytes = readFileSync(file);
  for (const { from, to } of parts) bytes.fill(0xa5, from, to);
  writeFileSync(file, bytes);
}

const requests: readonly Partial<ExportSpec>[] = [
  {},
  { eventName: ['level_3', 'level_5'] },
  { eventName: ['level_3'], eventNameInvert: true },
  { eventTime: { fromSeconds: Date.UTC(2026, 0, 31, 6) / 1000, beforeSeconds: Date.UTC(2026, 0, 31, 9) / 1000 } },
];

test.each([[[7]], [[1, 12, 20]]])(
  'An export of apps %j reads only their row groups of a merged file',
  async (idApps) => {
    const { tableDir, file, groups } = await openHashedTable();
    expect(groups.length).toBeGreaterThan(20);
    const exportAll = async (): Promise<string[][][]> => {
      const results: string[][][] = [];
      for (const [index, request] of requests.entries())
        results.push(await exportHere(tableDir, request, { idApps, inOrderOfFiles: index % 2 === 1 }));
      return results;
    };
    const before = await exportAll();
    expect(before[0]).toHaveLength((rows / 20) * idApps.length);
    ruin(
      file,
      groups.filter((group) => !holds(group, idApps)),
    );
    expect(await exportAll()).toEqual(before);
    await expect(exportHere(tableDir, {}, { idApps: [4] })).rejects.toThrow('checksum mismatch');
    await expect(exportHere(tableDir, { event: 'newUsers' }, { idApps })).rejects.toThrow('checksum mismatch');
  },
);

test('Damage in the row groups of an app, in their hashes and in the footer ends its exports', async () => {
  const { tableDir, file, groups } = await openHashedTable();
  const bytes = readFileSync(file);
  const own = groups.filter((group) => holds(group, [7]));
  const end = Math.max(...groups.map(({ to }) => to));
  const places = [
    own[0]?.from ?? 0,
    (own.at(-1)?.to ?? 0) - 1,
    end,
    Math.floor((end + bytes.length) / 2),
    bytes.length - 9,
  ];
  for (const place of places) {
    const damaged = Buffer.from(bytes);
    damaged[place] = (bytes[place] ?? 0) ^ 1;
    writeFileSync(file, damaged);
    await expect(exportHere(tableDir, {}, { idApps: [7] }), String(place)).rejects.toThrow('checksum mismatch');
  }
  writeFileSync(file, bytes.subarray(0, -1));
  await expect(exportHere(tableDir, {}, { idApps: [7] })).rejects.toThrow('bytes instead of');
  writeFileSync(file, bytes);
  expect(await exportHere(tableDir, {}, { idApps: [7] })).toHaveLength(rows / 20);
});

test('A row group without the apps of its rows is verified for each app', async () => {
  const values = sealedValues(rows, 50);
  const { tableDir, file, groups } = await openHashedTable({
    ...values,
    id_app: `CASE WHEN i >= 5000 THEN ${values['id_app']} END`,
  });
  expect(await exportHere(tableDir, {}, { idApps: [7] })).toHaveLength(rows / 20);
  ruin(file, groups.slice(0, 1));
  for (const idApp of [4, 7])
    await expect(exportHere(tableDir, {}, { idApps: [idApp] }), String(idApp)).rejects.toThrow('checksum mismatch');
});

test('An export of the new users or devices of an app reads only their row groups of a first-seen part, and damage in them makes it read the events', async () => {
  const clock = createClock(0);
  const lakeDir = testFolder();
  const table = await openLake(lakeDir, { clock, crashPoint: noCrashPoint, retentionMs: 60_000 });
  const day = (date: string, count: number, user: string) =>
    addMadeFile(table, clock, {
      path: `_sealed/kind=login/date=${date}/a.parquet`,
      rows: count,
      values: {
        ...sealedValues(count, 50),
        kind: "'login'",
        date: `DATE '${date}'`,
        event_time: `TIMESTAMPTZ '${date} 12:00:00+00'`,
        custom_user_id: user,
        lvid: user,
      },
    });
  // Five row groups: devices, then users.
  await day('2026-01-01', 150_000, "'user-' || i");
  await day('2026-01-02', 40, "CASE WHEN i % 2 = 0 THEN 'new-' || i ELSE 'user-' || (i // 2 * 7500) END");
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  const parts = await openFirstSeenParts(lakeDir);
  const { files, emptyFile } = table.snapshot();
  await parts.add(duckdb, listUncovered([], files), emptyFile, '2026-01-03');
  duckdb.close();
  const [part] = await parts.list();
  const groups = await listGroups(part?.absolutePath ?? '');
  expect(groups.map(({ subject }) => subject)).toEqual(['device', 'device', undefined, 'user', 'user']);
  const from = Date.UTC(2026, 0, 2) / 1000;
  const exportOf = (event: 'newUsers' | 'newDevices', idApp: number) =>
    exportHere(
      lakePaths(lakeDir).table,
      { event, eventTime: { fromSeconds: from, beforeSeconds: from + 86_400 } },
      { idApps: [idApp] },
    );
  const users = [await exportOf('newUsers', 12), await exportOf('newUsers', 20)];
  expect(users.map(({ length }) => length)).toEqual([1, 1]);
  const devices = await exportOf('newDevices', 12);
  expect(devices).toHaveLength(1);

  const file = part?.absolutePath ?? '';
  const intact = readFileSync(file);
  const earlier = files.find((each) => each.path.includes('2026-01-01'))?.absolutePath ?? '';
  await rename(earlier, `${earlier}.away`);
  const ofSubjects = [
    { subject: 'user', event: 'newUsers', other: 'newDevices', expected: users[0], ruined: 20 },
    { subject: 'device', event: 'newDevices', other: 'newUsers', expected: devices, ruined: 2 },
  ] as const;
  for (const { subject, event, other, expected, ruined } of ofSubjects) {
    writeFileSync(file, intact);
    ruin(
      file,
      groups.filter((group) => !holds(group, [12]) || (group.subject ?? subject) !== subject),
    );
    expect(await exportOf(event, 12)).toEqual(expected);
    await expect(exportOf(event, ruined)).rejects.toThrow('is missing');
    await expect(exportOf(other, 12)).rejects.toThrow('is missing');
  }
  await rename(`${earlier}.away`, earlier);
  expect(await exportOf('newUsers', 20)).toEqual(users[1]);
});
