import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openQueryEngine } from '../../../../src/export/worker/query-engine.ts';
import { buildQuery } from '../../../../src/export/worker/query.ts';
import { readSnapshot } from '../../../../src/lake/log/snapshot.ts';
import { findSegment } from '../../../../src/segments/segment-store.ts';
import { exportHere } from '../../../helpers/export-here.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { formatRequest } from '../../../helpers/format-request.ts';
import { writeLake, type FixtureEvent } from '../../../helpers/lake-fixture.ts';
import { addTestSegment } from '../../../helpers/lists.ts';

const seconds = 1_700_000_000;

const event = (id: string, idApp: number, more: Partial<FixtureEvent> = {}): FixtureEvent => ({
  event_id: id,
  kind: 'custom_event',
  id_app: idApp,
  event_time: seconds,
  available_at: seconds,
  custom_event_name: 'n',
  ...more,
});

async function lakeOf(events: readonly FixtureEvent[]): Promise<string> {
  const tableDir = path.join(testFolder(), 'events');
  await writeLake(tableDir, [events]);
  return tableDir;
}

const ids = (rows: readonly (readonly string[])[]): string[] => rows.flat().toSorted();

test('An export has exactly the rows of the apps of its caller, for few and for many apps', async () => {
  const tableDir = await lakeOf([event('of 1', 1), event('of 2', 2), event('of 3', 3)]);
  expect(ids(await exportHere(tableDir, {}, { idApps: [1, 3] }))).toEqual(['of 1', 'of 3']);
  // More than are compared one by one, so that they are joined.
  const many = Array.from({ length: 100 }, (_, index) => index + 3);
  expect(ids(await exportHere(tableDir, {}, { idApps: many }))).toEqual(['of 3']);
});

test('A segment keeps only rows of its ids in the apps of the caller', async () => {
  const lvid = 'd'.repeat(32);
  const tableDir = await lakeOf([
    event('in it', 1, { custom_user_id: 'ann', lvid }),
    event('not in it', 1, { custom_user_id: 'ben' }),
    event('without a user', 1),
    event('of a foreign app', 2, { custom_user_id: 'ann', lvid }),
  ]);
  const segmentsDir = path.join(testFolder(), 'segments');
  const [users, devices] = [
    { idAccount: 1, idSegment: 1 },
    { idAccount: 1, idSegment: 2 },
  ];
  await addTestSegment(segmentsDir, { ...users, kind: 'custom' }, ['ann']);
  await addTestSegment(segmentsDir, { ...devices, kind: 'device' }, [lvid]);
  for (const id of [users, devices]) {
    const segment = await findSegment(segmentsDir, id);
    if (segment === undefined) throw new Error('the segment is missing');
    const request = { idSegment: String(id.idSegment) };
    expect(ids(await exportHere(tableDir, request, { segment }))).toEqual(['in it']);
  }
  expect(await findSegment(segmentsDir, { ...users, idAccount: 2 })).toBeUndefined();
});

test('An export since a cursor has the rows that became available after its time, to the millisecond', async () => {
  const at = (milliseconds: number): Partial<FixtureEvent> => ({ available_at: seconds + milliseconds / 1000 });
  const tableDir = await lakeOf([event('before', 1, at(4)), event('then', 1, at(5)), event('after', 1, at(6))]);
  const { emptyFile, files } = await readSnapshot(tableDir);
  const apps = [{ idApp: 1, sdkKey: '', title: '', platform: 'web', idAccount: 1, idProject: undefined }] as const;
  const folder = testFolder();
  const engine = await openQueryEngine({
    apps,
    inline: true,
    folders: [tableDir, folder],
    tempDir: folder,
    tempMaxBytes: 1024 ** 3,
    memoryMb: 128,
    threads: 1,
  });
  onTestFinished(() => engine.close());
  const { select } = buildQuery(formatRequest(), apps, { sinceMs: seconds * 1000 + 5 });
  const rows = await engine.rows(select, [emptyFile, ...files.map(({ absolutePath }) => absolutePath)]);
  expect(rows.map((row) => Object.values(row)[0])).toEqual(['after']);
});
