import { cpSync, existsSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { watchRecords, type CompositionContext } from '../../../src/composition/context.ts';
import { dataPaths, parseConfig } from '../../../src/config.ts';
import { findMissingRecords, listMissingRecords, markRecords } from '../../../src/runtime/store/marked-records.ts';
import { createClosers } from '../../../src/runtime/lifecycle.ts';
import { addSchedule, removeSchedule } from '../../../src/schedules/schedule-store.ts';
import { listSegmentIds, removeSegment } from '../../../src/segments/segment-store.ts';
import { findTitles } from '../../../src/titles/title-store.ts';
import { addWebhook, removeWebhook } from '../../../src/webhooks/webhook-store.ts';
import { backUp, restore } from '../../helpers/backup.ts';
import { testFolder } from '../../helpers/folder.ts';
import { addTestSegment, loadTestTitles } from '../../helpers/lists.ts';
import { silentLogger } from '../../helpers/nats.ts';
import { waitFor } from '../../helpers/wait.ts';

/** Fills a data folder with a record of each kind, as the commands do. */
async function fillFolder() {
  const dataDir = path.join(testFolder(), 'data');
  const paths = dataPaths(dataDir);
  const { idSchedule } = await addSchedule(paths.schedules, {
    idAccount: 1,
    idUser: '1',
    createdMs: 0,
    rule: { every: 'day', at: '00:00', timezone: 'UTC' },
    catchUp: 1,
    arguments: [],
    firstSlot: 1,
  });
  const { webhook } = await addWebhook(paths, { idAccount: 1, url: 'https://example.com/', createdMs: 0 });
  await addTestSegment(paths.segments, { idAccount: 1, idSegment: 5, kind: 'custom' }, ['ann']);
  await loadTestTitles(paths.titles, ['idCampaign,66,Spring']);
  const records = [
    `schedules/1/${idSchedule}.json`,
    'segments/1/5.json',
    'titles/titles.json',
    `webhooks/1/${webhook.idWebhook}.json`,
  ];
  return { dataDir, paths, records, idSchedule, idWebhook: webhook.idWebhook };
}

test('Records whose folders are missing are problems with their names until they are restored, also in a copied folder', async () => {
  const { dataDir, paths, records } = await fillFolder();
  const closers = createClosers(silentLogger);
  onTestFinished(() => closers.stop());
  const config = parseConfig({ TRIBUTARY_DATA_DIR: dataDir });
  const watch = (dir: string) =>
    watchRecords({
      config: { ...config, dataDir: dir },
      logger: silentLogger,
      closers,
    } as unknown as CompositionContext);
  expect((await watch(dataDir))()).toEqual([]);
  const copy = path.join(path.dirname(dataDir), 'copy');
  cpSync(dataDir, copy, { recursive: true });
  for (const kind of ['schedules', 'segments', 'titles', 'webhooks'] as const) {
    renameSync(paths[kind], `${paths[kind]}.away`);
    rmSync(path.join(copy, kind), { recursive: true });
  }
  const found = await watch(dataDir);
  expect(found()).toMatchObject(
    records.map((record) => ({
      code: 'record_missing',
      subject: path.dirname(record).split('/')[0],
      message: expect.stringContaining(record),
    })),
  );
  expect((await watch(copy))()).toHaveLength(4);
  for (const kind of ['schedules', 'segments', 'titles', 'webhooks'] as const)
    renameSync(`${paths[kind]}.away`, paths[kind]);
  await waitFor('the records are back', () => found().length === 0, 20_000);
});

test('A record that its command removes or adds again is not reported as missing', async () => {
  const { dataDir, paths, idSchedule, idWebhook } = await fillFolder();
  expect(await removeSchedule(paths.schedules, 1, idSchedule)).toBe(true);
  expect(await listMissingRecords(dataDir)).toEqual([]);
  for (const kind of ['segments', 'titles', 'webhooks'] as const) rmSync(paths[kind], { recursive: true });
  expect(await listMissingRecords(dataDir)).toHaveLength(3);
  expect(await removeWebhook(paths, 1, idWebhook)).toBe(true);
  expect(await removeWebhook(paths, 1, idWebhook)).toBe(false);
  await removeSegment(paths.segments, { idAccount: 1, idSegment: 5 });
  await expect(removeSegment(paths.segments, { idAccount: 1, idSegment: 5 })).rejects.toMatchObject({
    code: 'not_found',
  });
  await loadTestTitles(paths.titles, ['idCampaign,66,Spring']);
  expect(await findMissingRecords(dataDir)).toEqual([]);
});

test('A folder of an earlier version lacks nothing, and its records are known from the first start on', async () => {
  const { dataDir, paths, records } = await fillFolder();
  rmSync(paths.records, { recursive: true });
  expect(await listMissingRecords(dataDir)).toEqual([]);
  await markRecords(dataDir);
  for (const record of records) rmSync(path.join(dataDir, record));
  expect(await listMissingRecords(dataDir)).toEqual(records);
});

test('A restored folder lacks nothing, and a backup keeps missing records of the previous run', async () => {
  const { dataDir, paths, records } = await fillFolder();
  const dir = path.join(path.dirname(dataDir), 'backup');
  await backUp(dataDir, dir, undefined);
  for (const kind of ['schedules', 'segments', 'titles', 'webhooks'] as const) rmSync(paths[kind], { recursive: true });
  await backUp(dataDir, dir, undefined);
  const restored = path.join(path.dirname(dataDir), 'restored');
  await restore(dir, restored);
  expect(records.filter((record) => !existsSync(path.join(restored, record)))).toEqual([]);
  expect(await listMissingRecords(restored)).toEqual([]);
  expect(await listSegmentIds(dataPaths(restored).segments, 1)).toEqual([5]);
  expect((await findTitles(dataPaths(restored).titles))?.counts).toEqual({ idCampaign: 1 });
});
