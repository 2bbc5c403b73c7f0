import { appendFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import type { ErasureTarget } from '../../../src/admin/erase/erase-target.ts';
import { readErasures } from '../../../src/cli/lake.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { nextCursor } from '../../../src/lake/log/change-feed.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { exportHere } from '../../helpers/export-here.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine, query, readRows, startTestCompact } from '../../helpers/lake.ts';
import { openLoadArea } from '../../helpers/loads.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

const killed: CrashPoint = async (step) => {
  if (step === 'erase-rewritten') throw new Error('killed');
};

const erasureList = { selectors: ['idApp', 'eventId', 'kind', 'before'], erasures: true } as const;

async function startErasable() {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table } = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  let stored = 0;
  return {
    table,
    lakeDir,
    async store(...events: readonly ReturnType<typeof eventLine>[]): Promise<void> {
      stream.publish([...events]);
      stored += events.length;
      await waitFor('all is stored', async () => {
        const { totals } = (await readSnapshot(table)).lake ?? {};
        return (totals?.stored ?? 0) + (totals?.erased ?? 0) === stored;
      });
    },
    cursor: async () => nextCursor(await readSnapshot(table)),
    rows: () => readRows(folder, 'event_id'),
    async erase(target: ErasureTarget, crashPoint: CrashPoint = noCrashPoint) {
      const clock = createClock(0);
      const opened = { table: await openTable(table, { clock, crashPoint }), lakeDir, duckdb, clock, crashPoint };
      const { publisher } = stream;
      const signal = new AbortController().signal;
      return await eraseEvents({ ...opened, publisher, signal }, target, { retentionMs: 86_400_000 });
    },
    list: (sinceVersion: string, idApps = [1]) => exportHere(table, { ...erasureList, sinceVersion }, { idApps }),
  };
}

const ofAlice = (idApp = 1) => eventLine({ custom_user_id: 'alice', id_app: idApp });
const idOf = (event: ReturnType<typeof eventLine>): string => String(event['event_id']);

test('A reader learns the ids of the rows that were erased since its cursor, of its apps alone', async () => {
  const lake = await startErasable();
  const [first, second, ofOther, bob] = [ofAlice(), ofAlice(), ofAlice(2), eventLine({ custom_user_id: 'bob' })];
  await lake.store(first, ofOther, bob);
  const before = await lake.cursor();
  expect(await lake.list('0')).toEqual([]);
  await lake.erase({ users: ['alice'] });
  const between = await lake.cursor();
  expect(await lake.list(before)).toEqual([['1', idOf(first), '', '']]);
  expect(await lake.list(before, [2])).toEqual([['2', idOf(ofOther), '', '']]);
  expect(await lake.list(before, [3])).toEqual([]);
  expect(await lake.list(between, [1, 2])).toEqual([]);
  await lake.store(second);
  const after = await lake.cursor();
  await lake.erase({ users: ['alice'] });
  expect(await lake.list(after)).toEqual([['1', idOf(second), '', '']]);
  const ids = [idOf(first), idOf(second)].toSorted();
  expect(await lake.list(before)).toEqual(ids.map((id) => ['1', id, '', '']));
  const { sql, erasures, next } = await readErasures(lake.table, between);
  expect(next).toBe(await lake.cursor());
  expect(erasures).toBe(1);
  expect(await query(sql)).toMatchObject([{ event_id: idOf(second) }]);
  expect((await checkLake(lake.lakeDir)).problems).toEqual([]);
});

test('An erasure that is killed between its list and its last commit stays listed for every cursor until its repetition', async () => {
  const lake = await startErasable();
  const event = ofAlice();
  await lake.store(event, eventLine({ custom_user_id: 'bob' }));
  const before = await lake.cursor();
  await expect(lake.erase({ users: ['alice'] }, killed)).rejects.toThrow('killed');
  const listed = [['1', idOf(event), '', '']];
  expect(await lake.list(before)).toEqual(listed);
  expect(await lake.list(await lake.cursor())).toEqual(listed);
  await lake.erase({ users: ['alice'] });
  expect(await lake.list(before)).toEqual(listed);
  expect(await lake.list(await lake.cursor())).toEqual([]);
});

test('A list that is lost does not prevent an erasure, and then rejects the cursors that it cannot serve', async () => {
  const lake = await startErasable();
  await lake.store(ofAlice(), eventLine({ custom_user_id: 'bob' }));
  const before = await lake.cursor();
  await lake.erase({ users: ['alice'] });
  const { erasures } = (await readSnapshot(lake.table)).lake ?? {};
  appendFileSync(path.join(lake.table, erasures?.file ?? ''), 'x');
  expect((await checkLake(lake.lakeDir)).problems).toMatchObject([{ problem: 'damaged_file' }]);
  await expect(lake.list(before)).rejects.toThrow('is damaged');
  const between = await lake.cursor();
  const event = ofAlice();
  await lake.store(event);
  await lake.erase({ users: ['alice'] });
  await expect(lake.list(before)).rejects.toThrow('sinceVersion: the list of erased rows begins at version');
  await expect(lake.list(between)).rejects.toThrow('read all rows without a cursor');
  expect((await checkLake(lake.lakeDir)).problems).toEqual([]);
});

test('The rows of an undone load are listed by the commit that removes them, and stay in the feed when they are loaded again', async () => {
  const area = await openLoadArea(testFolder(), 'payments');
  const csv = 'tsEvent,idApp,eventId,total,currency\n1700000000,1,a,1.5,EUR\n1700000001,2,b,12,USD\n';
  const outcome = await area.load(area.write('p.csv', csv));
  const before = nextCursor(await readSnapshot(area.tableDir));
  await area.undo('load' in outcome ? outcome.load : '');
  const undone = nextCursor(await readSnapshot(area.tableDir));
  await area.load(area.write('p.csv', csv));
  const { tableDir } = area;
  const request = { ...erasureList, event: 'payments' };
  expect(await exportHere(tableDir, { ...request, sinceVersion: before })).toEqual([['1', 'a', '', '']]);
  expect(await exportHere(tableDir, { ...request, sinceVersion: undone })).toEqual([]);
  expect(await exportHere(tableDir, { event: 'payments', sinceVersion: undone, selectors: ['eventId'] })).toEqual([
    ['a'],
  ]);
});
