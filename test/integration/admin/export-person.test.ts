import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { exportPerson } from '../../../src/admin/erase/export-person.ts';
import type { ErasureTarget } from '../../../src/admin/erase/erase-target.ts';
import { dryRunErasure } from '../../../src/admin/erase/survey.ts';
import { assertUnambiguousIds, type AccountOfApp } from '../../../src/cli/erase.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { addRows, getDataset } from '../../helpers/dataset-rows.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

const apps: readonly AccountOfApp[] = [
  { idApp: '1', idAccount: '1' },
  { idApp: '3', idAccount: '2' },
];
const lvid = 'd'.repeat(32);

const row = (id: string, user: string) => ({
  event_id: id,
  id_app: 1,
  event_time: 1_700_000_000,
  custom_user_id: user,
});

/** A lake with events, failed events, payments and a file in quarantine, of ann, of ben and of another account. */
async function openScene() {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const lines = {
    e1: eventLine({ custom_user_id: 'ann' }),
    e2: eventLine({ custom_user_id: 'ann', lvid }),
    e3: eventLine({ custom_user_id: 'ben' }),
    e4: eventLine({ custom_user_id: 'of both' }),
    e5: eventLine({ custom_user_id: 'of both', id_app: 3 }),
    f1: eventLine({ custom_user_id: 'ann', age: 'many' }),
    f2: eventLine({ custom_user_id: 'ben', age: 'many' }),
  };
  stream.publish(Object.values(lines));
  await waitFor('all is stored', async () => (await readRows(folder, 'event_id')).length === 5);
  await addRows(lakeDir, getDataset('payments'), [row('p1', 'ann'), row('p2', 'ben')]);
  await addRows(lakeDir, getDataset('installs'), [row('i1', 'ben')]);
  const { table, quarantine } = lakePaths(lakeDir);
  mkdirSync(quarantine, { recursive: true });
  const [file] = (await readSnapshot(table)).files;
  copyFileSync(file?.absolutePath ?? '', path.join(quarantine, 'aside.parquet'));
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const clock = createClock(0);
  const open = async (signal: AbortSignal) => ({
    table: await openTable(table, { clock, crashPoint: noCrashPoint }),
    lakeDir,
    duckdb,
    clock,
    signal,
  });
  const stopped = new AbortController();
  const names = new Map(Object.entries(lines).map(([name, line]) => [line['event_id'], name]));
  return {
    nameOf: ({ event_id: id }: Readonly<Record<string, unknown>>) => names.get(id) ?? id,
    output: path.join(folder, 'out'),
    stop: () => stopped.abort(),
    survey: async (target: ErasureTarget) => dryRunErasure(await open(stopped.signal), target),
    export: async (target: ErasureTarget, output: string) =>
      exportPerson(await open(stopped.signal), target, {
        folder: output,
        assertMeant: (found) => assertUnambiguousIds(found, target, () => apps, 'nothing was written'),
      }),
  };
}

const readLines = (file: string): Record<string, unknown>[] =>
  readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);

test('An export of a person has what an erasure would remove of each table, failed events and quarantine, and no one else', async () => {
  const scene = await openScene();
  const { output, nameOf } = scene;
  const counts = await scene.survey({ users: ['ann'] });
  expect(counts).toMatchObject({
    rows: 3,
    failedEvents: 1,
    quarantinedRows: 2,
    tables: { events: { rows: 2 }, payments: { rows: 1 } },
  });
  const exported = await scene.export({ users: ['ann'] }, output);
  const { rows, failedEvents, quarantinedRows } = counts;
  expect(exported).toMatchObject({ folder: output, rows, failedEvents, quarantinedRows });
  expect(readdirSync(output).toSorted()).toEqual([
    'events.jsonl',
    'failed.jsonl',
    'manifest.json',
    'payments.jsonl',
    'quarantined-aside.jsonl',
  ]);
  const idsOf = (name: string): string[] =>
    readLines(path.join(output, name))
      .map((line) => String(nameOf(line)))
      .toSorted();
  expect([idsOf('events.jsonl'), idsOf('payments.jsonl')]).toEqual([['e1', 'e2'], ['p1']]);
  const ofDevice = readLines(path.join(output, 'events.jsonl')).find((line) => nameOf(line) === 'e2');
  expect(ofDevice).toMatchObject({ custom_user_id: 'ann', lvid, id_app: 1 });
  expect(idsOf('quarantined-aside.jsonl')).toEqual(['e1', 'e2']);
  const [failed] = readLines(path.join(output, 'failed.jsonl'));
  expect(nameOf(JSON.parse(String(failed?.['line'])) as Record<string, unknown>)).toBe('f1');
  const manifest = JSON.parse(readFileSync(path.join(output, 'manifest.json'), 'utf8')) as object;
  const { folder: _folder, ...counted } = exported;
  expect(manifest).toMatchObject({ target: { users: ['ann'] }, backlog: 'not included', ...counted });
  for (const name of ['', ...readdirSync(output)]) expect(statSync(path.join(output, name)).mode & 0o077).toBe(0);
  expect(existsSync(`${output}.partial`)).toBe(false);
});

test('An export of a device, of an app and of an unknown user has their rows only', async () => {
  const { output, ...scene } = await openScene();
  expect(await scene.export({ devices: [lvid] }, `${output}1`)).toMatchObject({ rows: 1, failedEvents: 0 });
  expect(await scene.export({ users: ['of both'], apps: [3] }, `${output}2`)).toMatchObject({ rows: 1 });
  expect(readLines(path.join(`${output}2`, 'events.jsonl')).map(scene.nameOf)).toEqual(['e5']);
  expect(await scene.export({ users: ['unknown'] }, `${output}3`)).toMatchObject({ rows: 0, files: [] });
});

test('An id of two accounts, an existing folder and a stop write nothing', async () => {
  const { output, ...scene } = await openScene();
  await expect(scene.export({ users: ['of both'] }, output)).rejects.toThrow('several accounts; nothing was written');
  expect(existsSync(output)).toBe(false);
  mkdirSync(output);
  await expect(scene.export({ users: ['ann'] }, output)).rejects.toThrow('exists already; nothing was written');
  expect(readdirSync(output)).toEqual([]);
  // What a killed export has left.
  mkdirSync(path.join(`${output}2.partial`, 'files', 'old'), { recursive: true });
  scene.stop();
  await expect(scene.export({ users: ['ann'] }, `${output}2`)).rejects.toMatchObject({ code: 'stopping' });
  expect([existsSync(`${output}2`), existsSync(`${output}2.partial`)]).toEqual([false, false]);
});
