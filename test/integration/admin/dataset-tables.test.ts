import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { checkLake } from '../../../src/lake/check.ts';
import { lakePaths, listTables, tablePaths } from '../../../src/lake/lake.ts';
import { readFailedFile, failedRowsFolder, listFailedRows } from '../../../src/lake/files/failed-events.ts';
import { recoverChanges } from '../../../src/lake/files/change.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../../src/lake/sql/literals.ts';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import { dryRunErasure } from '../../../src/admin/erase/survey.ts';
import type { Dataset } from '../../../src/datasets/dataset.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { backUp, expectEvents, restore } from '../../helpers/backup.ts';
import { addRows, getDataset, type TestRow } from '../../helpers/dataset-rows.ts';
import { findFilesWith } from '../../helpers/find-bytes.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, query, startTestCompact } from '../../helpers/lake.ts';
import { openLoadArea } from '../../helpers/loads.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

const clock = createClock(0);
const payments = getDataset('payments');
const installs = getDataset('installs');
const skan = getDataset('appleSKANpostbacks');
const day = Date.parse('2026-01-31T10:00:00Z') / 1000;

const row = (id: string, user: string, more: Partial<TestRow> = {}): TestRow => ({
  event_id: id,
  id_app: 1,
  event_time: day,
  custom_user_id: user,
  ...more,
});

async function readIds(folder: string, dataset: Dataset): Promise<unknown[]> {
  const { emptyFile, files } = await readSnapshot(tablePaths(path.join(folder, 'lake'), dataset).table);
  const list = sqlList([emptyFile, ...files.map((file) => file.absolutePath)]);
  const rows = await query(`SELECT event_id FROM read_parquet(${list}, union_by_name = true) ORDER BY event_id`);
  return rows.map((one) => one['event_id']);
}

/** Opens a lake with events of `ann` and `bob`, and a running compactor. */
async function withEvents(options: Parameters<typeof startTestCompact>[2] = {}) {
  const root = testFolder();
  const data = path.join(root, 'data');
  const stream = createMemoryStream();
  const compactor = await startTestCompact(data, stream, options);
  onTestFinished(() => compactor.stop());
  const lines = [eventLine({ custom_user_id: 'ann' }), eventLine({ custom_user_id: 'bob' })];
  stream.publish(lines);
  await waitFor('the events are stored', () => compactor.facts()['stored'] === 2);
  return {
    root,
    data,
    lakeDir: path.join(data, 'lake'),
    stream,
    compact: compactor,
    lines,
    ids: lines.map((line) => String(line['event_id'])),
  };
}

test('A backup has every table of the lake, and a restore recreates each with its own log', async () => {
  const { root, data, lakeDir, stream, ids } = await withEvents();
  await addRows(lakeDir, payments, [row('p1', 'ann'), row('p2', 'bob')]);
  await addRows(lakeDir, installs, [row('i1', 'ann')]);
  const dir = path.join(root, 'backup');
  await backUp(data, dir, stream);
  const copy = path.join(root, 'copy');
  await restore(dir, copy);
  await expectEvents(copy, ids);
  expect(await readIds(copy, payments)).toEqual(['p1', 'p2']);
  expect(await readIds(copy, installs)).toEqual(['i1']);
  expect((await listTables(path.join(copy, 'lake'))).map(({ table }) => table)).toEqual([
    'events',
    'installs',
    'payments',
  ]);
  // a restored table is written as any other
  await addRows(path.join(copy, 'lake'), payments, [row('p3', 'ann')]);
  expect(await readIds(copy, payments)).toEqual(['p1', 'p2', 'p3']);
});

test('A table that is ahead of the events is backed up as far as the backup has the stream, and loses no older rows', async () => {
  const { root, data, lakeDir, stream, compact } = await withEvents();
  await compact.stop();
  const epoch = (await readSnapshot(lakePaths(lakeDir).table)).lake?.epoch;
  const appId = epoch?.appId ?? '';
  const { lastSequence } = await stream.state();
  await addRows(lakeDir, payments, [row('loaded', 'ann')]);
  await addRows(lakeDir, payments, [row('within', 'ann')], { appId, version: lastSequence });
  await addRows(lakeDir, payments, [row('beyond', 'ann')], { appId, version: lastSequence + 1 });
  await addRows(lakeDir, payments, [row('after', 'ann')]);
  const dir = path.join(root, 'backup');
  await backUp(data, dir, stream);
  const copy = path.join(root, 'copy');
  await restore(dir, copy);
  expect(await readIds(copy, payments)).toEqual(['loaded', 'within']);
  // the message is in the stream by now
  stream.publish([eventLine()]);
  await backUp(data, dir, stream);
  const newer = path.join(root, 'newer');
  await restore(dir, newer);
  expect(await readIds(newer, payments)).toEqual(['after', 'beyond', 'loaded', 'within']);
});

test('A table that no pipeline names is a problem, fails the check and an erasure, and stays in the backup with its staged work', async () => {
  const scene = await withEvents();
  const { root, data, lakeDir, stream, compact } = scene;
  const surveys = { ...installs, table: 'surveys' };
  await addRows(lakeDir, surveys, [row('s1', 'ann')]);
  const found = { code: 'table_without_pipeline', subject: 'surveys' };
  await waitFor('it is a problem', () =>
    JSON.stringify(compact.facts()['problems']).includes('table_without_pipeline'),
  );
  expect(compact.facts()['problems']).toMatchObject([found]);
  expect(await checkLake(lakeDir)).toMatchObject({
    ok: false,
    problems: [{ problem: 'unnamed_table', path: 'surveys' }],
    tables: { surveys: { rows: 1 } },
  });
  const refusal = { code: 'conflict', message: 'no pipeline names lake/surveys' };
  await expect(eraseFrom(scene, { users: ['ann'] })).rejects.toMatchObject(refusal);
  expect(await readIds(data, surveys)).toEqual(['s1']);

  // Leftovers of an erasure by a version that knew the table.
  const intent = path.join(lakeDir, 'staging', 'surveys', randomUUID(), 'intent.json');
  mkdirSync(path.dirname(intent), { recursive: true });
  writeFileSync(intent, '{}');
  const declared = path.join(data, 'datasets', 'pipelines', 'surveys.json');
  mkdirSync(path.dirname(declared), { recursive: true });
  writeFileSync(declared, '{"table":"surveys"}');
  await recoverChanges(
    await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint }),
    lakePaths(lakeDir).staging,
  );
  expect(existsSync(intent)).toBe(true);
  rmSync(path.dirname(intent), { recursive: true });

  const dir = path.join(root, 'backup');
  await backUp(data, dir, stream);
  rmSync(path.join(data, 'datasets'), { recursive: true });
  await backUp(data, dir, stream);
  const copy = path.join(root, 'copy');
  await restore(dir, copy);
  expect(await readIds(copy, surveys)).toEqual(['s1']);
  expect(readFileSync(path.join(copy, 'datasets', 'pipelines', 'surveys.json'), 'utf8')).toBe('{"table":"surveys"}');
});

async function eraseFrom(
  { lakeDir, stream }: Awaited<ReturnType<typeof withEvents>>,
  target: Parameters<typeof eraseEvents>[1],
  options: Partial<Parameters<typeof eraseEvents>[2]> = {},
  crashPoint: CrashPoint = noCrashPoint,
) {
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint });
    const { signal } = new AbortController();
    const dependencies = { table, lakeDir, duckdb, publisher: stream.publisher, clock, crashPoint, signal };
    const survey = await dryRunErasure(dependencies, target);
    return { survey, erased: await eraseEvents(dependencies, target, { retentionMs: 86_400_000, ...options }) };
  } finally {
    duckdb.close();
  }
}

test('An erasure removes a user from every table, counts by table, and leaves a table without such rows unchanged', async () => {
  const scene = await withEvents();
  const { data, lakeDir, ids } = scene;
  await addRows(lakeDir, payments, [row('p1', 'ann'), row('p2', 'bob'), row('p3', 'ann')]);
  await addRows(lakeDir, installs, [row('i1', 'bob')]);
  await addRows(lakeDir, skan, [{ event_id: 's1', id_app: 1, event_time: day }]);
  const { survey, erased } = await eraseFrom(scene, { users: ['ann'] });
  expect(survey).toMatchObject({ rows: 3, filesToRewrite: 2, tables: { payments: { rows: 2, filesToRewrite: 1 } } });
  expect(erased).toMatchObject({
    rows: 3,
    filesRewritten: 2,
    tables: { payments: { rows: 2, filesRewritten: 1, historyFrom: expect.any(Number) as number } },
  });
  expect(Object.keys(erased.tables ?? {})).toEqual(['payments']);
  expect(await readIds(data, payments)).toEqual(['p2']);
  expect(await readIds(data, installs)).toEqual(['i1']);
  expect(await readIds(data, skan)).toEqual(['s1']);
  await expectEvents(data, ids.slice(1));
});

test('An erasure of an app that is killed between two tables is finished by its repetition, with the history of each table', async () => {
  const scene = await withEvents();
  const { data, lakeDir, ids } = scene;
  await addRows(lakeDir, installs, [row('i1', 'ann', { id_app: 7 }), row('i2', 'ann')]);
  await addRows(lakeDir, payments, [row('p1', 'ann', { id_app: 7 }), row('p2', 'ann')]);
  let rewrites = 0;
  await expect(
    eraseFrom(scene, { apps: [7] }, {}, async (step) => {
      if (step === 'change-written' && (rewrites += 1) === 2) throw new Error('killed');
    }),
  ).rejects.toThrow('killed');
  const { erased } = await eraseFrom(scene, { apps: [7] });
  expect(Object.keys(erased.tables ?? {}).toSorted()).toEqual(['installs', 'payments']);
  expect(await readIds(data, installs)).toEqual(['i2']);
  expect(await readIds(data, payments)).toEqual(['p2']);
  await expectEvents(data, ids);
  expect(erased.historyFrom).toBeUndefined();
});

test('An erasure that waits for no readers returns when the history of each table is removed', async () => {
  const scene = await withEvents();
  const { lakeDir } = scene;
  await addRows(lakeDir, payments, [row('p1', 'ann'), row('p2', 'bob')]);
  const { erased } = await eraseFrom(scene, { users: ['ann'] }, { now: true });
  const before = erased.tables?.['payments']?.historyFrom ?? 0;
  expect(before).toBeGreaterThan(0);
  const report = await checkLake(lakeDir);
  expect(report.problems).toEqual([]);
  const first = (
    await query(`SELECT min(file) AS f FROM glob('${tablePaths(lakeDir, payments).table}/_delta_log/*.json')`)
  )[0];
  expect(Number(path.basename(String(first?.['f']), '.json'))).toBeGreaterThanOrEqual(before);
});

/** Reads the texts of the bad rows that a table's loads have kept. */
async function readKept(lakeDir: string, dataset: Dataset): Promise<string[]> {
  const { table } = tablePaths(lakeDir, dataset);
  const { txns } = await readSnapshot(table);
  const { files } = await listFailedRows(failedRowsFolder(lakePaths(lakeDir).failed, table), txns);
  return (await Promise.all(files.map(readFailedFile))).flat().map(({ line }) => line);
}

/** Payments whose amounts are bad, and two lines that are not rows. */
const badPayments = [
  'eventId,tsEvent,idApp,customUserId,total',
  'ok,1700000000,1,ann,5',
  'b1,1700000000,1,ann,x',
  'b2,1700000000,2,ann,x',
  'b3,1700000000,1,bob,x',
  'b4,1700000000,,ann,x',
  'b5,ann,torn',
  'b6,bob,torn',
].join('\n');

test('An erasure removes bad rows of loads, unreadable ones by their bytes, and the totals of their table follow', async () => {
  const scene = await withEvents();
  const { data, lakeDir } = scene;
  const area = await openLoadArea(data, 'payments');
  const file = area.write('bad.csv', badPayments);
  expect(await area.load(file, { maxBad: 9 })).toMatchObject({ stored: 1, failed: 6 });
  const { survey, erased } = await eraseFrom(scene, { users: ['ann'], apps: [1] });
  expect(survey).toMatchObject({ rows: 2, failedEvents: 3 });
  expect(erased).toMatchObject({ rows: 2, failedEvents: 3, tables: { payments: { rows: 1, failedRows: 3 } } });
  expect((await readKept(lakeDir, payments)).map((line) => /b\d/.exec(line)?.[0])).toEqual(['b2', 'b3', 'b6']);
  const totals = async () => (await readSnapshot(tablePaths(lakeDir, payments).table)).lake?.totals;
  expect(await totals()).toEqual({ streamed: 7, stored: 0, failed: 3, repeats: 0, erased: 4 });
  expect((await eraseFrom(scene, { users: ['ann', 'bob'] })).erased).toMatchObject({ rows: 1, failedEvents: 3 });
  expect(await totals()).toEqual({ streamed: 7, stored: 0, failed: 0, repeats: 0, erased: 7 });
  expect(await findFilesWith(path.join(lakeDir, 'failed'), 'ann', 'bob', 'torn')).toEqual([]);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
});

test('An erasure finds a person in bad rows by the map and the app of their load', async () => {
  const scene = await withEvents();
  const area = await openLoadArea(scene.data, 'payments');
  const texts = [
    '{"tsEvent":1,"total":"x","productId":"cleo","customUserId":"a"}',
    '{"tsEvent":1,"total":"x","productId":"dan","customUserId":"cleo"}',
  ];
  const map = { productId: 'customUserId', customUserId: 'productId' };
  const file = area.write('map.ndjson', `${texts.join('\n')}\n`);
  expect(await area.load(file, { map, idApp: 2, maxBad: 2 })).toMatchObject({ failed: 2 });
  expect((await eraseFrom(scene, { users: ['cleo'], apps: [1] })).erased).toMatchObject({ failedEvents: 0 });
  expect((await eraseFrom(scene, { users: ['cleo'], apps: [2] })).erased).toMatchObject({ failedEvents: 1 });
  expect(await readKept(scene.lakeDir, payments)).toEqual(texts.slice(1));
});

test('A killed erasure of bad rows is finished by the undo of their load, which removes the others', async () => {
  const scene = await withEvents();
  const { data, lakeDir } = scene;
  const area = await openLoadArea(data, 'payments');
  const file = area.write('bad.csv', 'tsEvent,idApp,customUserId,total\n1,1,cleo,x\n1,1,dan,x\n');
  const loaded = await area.load(file, { maxBad: 2 });
  const killed = eraseFrom(scene, { users: ['cleo'] }, {}, async (step) => {
    if (step === 'change-committed') throw new Error('killed');
  });
  await expect(killed).rejects.toThrow('killed');
  expect(await area.undo('load' in loaded ? loaded.load : '')).toMatchObject({ rows: 0, failedRows: 1 });
  expect((await eraseFrom(scene, { users: ['cleo'] })).erased).toMatchObject({ failedEvents: 0 });
  const { lake } = await readSnapshot(area.tableDir);
  expect(lake?.totals).toEqual({ streamed: 2, stored: 0, failed: 0, repeats: 0, erased: 2 });
  expect(await findFilesWith(path.join(lakeDir, 'failed'), 'cleo', 'dan')).toEqual([]);
});

test('A backup has the bad rows of its loads, with which a restored load is undone, and no longer those of an undone load', async () => {
  const { root, data, stream } = await withEvents();
  const area = await openLoadArea(data, 'payments');
  const loaded = await area.load(area.write('bad.csv', badPayments), { maxBad: 9 });
  const load = 'load' in loaded ? loaded.load : '';
  const dir = path.join(root, 'backup');
  await backUp(data, dir, stream);
  // A damaged file does not replace an intact one.
  const folder = failedRowsFolder(lakePaths(area.lakeDir).failed, area.tableDir);
  const file = path.join(folder, readdirSync(folder)[0] ?? '');
  const whole = readFileSync(file, 'utf8');
  writeFileSync(file, whole.replace('torn', 'worn'));
  await expect(backUp(data, dir, stream)).rejects.toMatchObject({ code: 'file_damaged' });
  writeFileSync(file, whole);
  await area.undo(load);
  const copy = path.join(root, 'copy');
  await restore(dir, copy);
  const restored = await openLoadArea(copy, 'payments');
  expect((await readKept(restored.lakeDir, payments)).length).toBe(6);
  expect(await restored.undo(load)).toMatchObject({ rows: 1, failedRows: 6 });
  const { lake } = await readSnapshot(restored.tableDir);
  expect(lake?.totals).toMatchObject({ streamed: 7, stored: 0, failed: 0, erased: 7 });
  await backUp(data, dir, stream);
  expect(await findFilesWith(dir, 'torn')).toEqual([]);
});

test('An erasure names the tables with concurrent loads until those have ended, and removes leftovers of a killed load', async () => {
  const scene = await withEvents();
  const { data, lakeDir } = scene;
  const area = await openLoadArea(data, 'payments');
  const erased: unknown[] = [];
  const file = area.write('bad.csv', badPayments);
  const halfway = async (): Promise<unknown> => (await eraseFrom(scene, { users: ['ann'] })).erased;
  const loading = area.load(
    file,
    { maxBad: 9 },
    {
      crashPoint: async (step) => {
        if (step !== 'load-failed-written') return;
        erased.push(await halfway());
        throw new Error('killed');
      },
    },
  );
  await expect(loading).rejects.toThrow('killed');
  expect(erased).toMatchObject([{ rows: 1, tablesToRepeat: ['payments'] }]);
  expect(await findFilesWith(path.join(lakeDir, 'failed'), 'torn')).toHaveLength(1);
  expect(await halfway()).not.toHaveProperty('tablesToRepeat');
  expect(await findFilesWith(path.join(lakeDir, 'failed'), 'torn')).toEqual([]);
});

test('An erasure names the table of a load that has ended meanwhile', async () => {
  const scene = await withEvents();
  const area = await openLoadArea(scene.data, 'payments');
  const file = area.write('one.csv', 'tsEvent,idApp,customUserId\n1,1,ann\n');
  await addRows(scene.lakeDir, payments, [row('p1', 'bob')]);
  const { erased } = await eraseFrom(scene, { users: ['ann'] }, {}, async (step) => {
    if (step === 'erase-rewritten') await area.load(file);
  });
  expect(erased).toMatchObject({ rows: 1, tablesToRepeat: ['payments'] });
});

test('An erased row is not stored again by later loads of any file, except by one that restores erased rows', async () => {
  const scene = await withEvents();
  const area = await openLoadArea(scene.data, 'payments');
  const rows = [
    { tsEvent: 1, idApp: 1, eventId: 'p1', customUserId: 'ann', total: '1.5' },
    { tsEvent: 2, idApp: 1, eventId: 'p2', customUserId: 'bob', total: '2' },
    { tsEvent: 3, idApp: 1, customUserId: 'ann', total: '3' },
  ];
  const names = ['tsEvent', 'idApp', 'eventId', 'customUserId', 'total'];
  const toCsv = (some: readonly Readonly<Record<string, string | number>>[]): string =>
    [names, ...some.map((one) => names.map((name) => String(one[name] ?? '')))]
      .map((cells) => `${cells.join()}\n`)
      .join('');
  const first = area.write('first.csv', toCsv(rows));
  const loaded = await area.load(first);
  expect(loaded).toMatchObject({ stored: 3 });
  expect((await eraseFrom(scene, { users: ['ann'] })).erased).toMatchObject({ tables: { payments: { rows: 2 } } });
  const later = { tsEvent: 4, idApp: 1, eventId: 'p4', customUserId: 'ann', total: '4' };
  const wider = area.write('wider.csv', toCsv([...rows, later]));
  expect(await area.load(wider)).toMatchObject({ rows: 4, stored: 1, repeats: 1, erased: 2 });
  const lines = area.write('rows.ndjson.gz', gzipSync(rows.map((one) => `${JSON.stringify(one)}\n`).join('')));
  expect(await area.load(lines)).toMatchObject({ rows: 3, stored: 0, repeats: 1, erased: 2 });
  await area.undo('load' in loaded ? loaded.load : '');
  expect(await area.load(first)).toMatchObject({ rows: 3, stored: 1, repeats: 0, erased: 2 });
  expect(await readIds(scene.data, payments)).toEqual(['p2', 'p4']);
  expect((await checkLake(scene.lakeDir)).problems).toEqual([]);
  const restored = await area.load(first, { restoreErased: true });
  expect(restored).toMatchObject({ rows: 3, stored: 2, repeats: 1 });
  expect(restored).not.toHaveProperty('erased');
  // Without the hashes, erased rows are unknown.
  rmSync(lakePaths(scene.lakeDir).erasedIds);
  const other = area.write('other.csv', toCsv([{ ...later, eventId: 'p5' }]));
  await expect(area.load(other)).rejects.toMatchObject({ code: 'file_damaged' });
  expect(await area.load(other, { restoreErased: true })).toMatchObject({ stored: 1 });
});
