import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { events } from '../../../src/datasets/dataset.ts';
import { keyedEventIds, timeOrderedEventIds, requestKeyOf } from '../../../src/datasets/event-id.ts';
import { findRows, type LookupTarget } from '../../../src/lake/event-index/find-rows.ts';
import { openIdIndex } from '../../../src/lake/event-index/id-index.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { testFolder } from '../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';

const receivedAtMs = 1_700_000_000_123;

const rowOf = (eventId: string, idApp: number, seconds = receivedAtMs / 1000): FixtureEvent => ({
  event_id: eventId,
  kind: 'login',
  id_app: idApp,
  event_time: 1_700_000_000,
  received_at: seconds,
  available_at: 1_700_000_005,
});

/** Writes the rows into one file. Returns a function that finds ids of apps. */
async function openRows(rows: readonly FixtureEvent[]) {
  const folder = testFolder();
  const tableDir = path.join(folder, 'events');
  await writeLake(tableDir, [rows]);
  const table = { dataset: events, snapshot: await readSnapshot(tableDir) };
  const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
  onTestFinished(() => duckdb.close());
  const index = openIdIndex(path.join(folder, 'index'));
  return async (
    lookupTarget: LookupTarget,
    idApps: readonly number[] = [lookupTarget.idApp ?? 0],
  ): Promise<string[]> => {
    const use = { index, idApps, deadlineMs: performance.now() + 20_000 };
    return (await findRows(duckdb, table, lookupTarget, use)).map(({ eventId }) => eventId);
  };
}

test('A row is found by its id only for its own app, also if its file has rows of both', async () => {
  const [ofSeven, ofEight] = [timeOrderedEventIds(receivedAtMs)(0), timeOrderedEventIds(receivedAtMs)(0)];
  const find = await openRows([rowOf(ofSeven, 7), rowOf(ofEight, 8), rowOf(timeOrderedEventIds(receivedAtMs)(0), 9)]);
  expect(await find({ eventId: ofSeven, idApp: 7 })).toEqual([ofSeven]);
  expect(await find({ eventId: ofSeven, idApp: 8 })).toEqual([]);
  expect(await find({ eventId: ofEight, idApp: 8 })).toEqual([ofEight]);
  expect(await find({ eventId: ofEight, idApp: 7 })).toEqual([]);
  // A caller with access to all apps names none.
  expect(await find({ eventId: ofSeven })).toEqual([ofSeven]);
});

test('The rows of a request are found by its key only for its app', async () => {
  const keyed = keyedEventIds({ idApp: 7, key: 'k', method: 'loginBatch', eventTexts: ['x', 'y'] });
  const ids = [keyed(0), keyed(1)];
  // Rows of another app have the same ids: only the row shows the app.
  const find = await openRows([...ids.map((id) => rowOf(id, 7)), rowOf(ids[0] ?? '', 8), rowOf('other', 9)]);
  const requestKey = requestKeyOf(ids[0] ?? '');
  expect(await find({ requestKey, idApp: 7 })).toEqual(ids.toSorted());
  expect(await find({ requestKey, idApp: 9 })).toEqual([]);
  expect(await find({ eventId: ids[1] ?? '', idApp: 7 })).toEqual([ids[1]]);
  expect(await find({ eventId: ids[1] ?? '', idApp: 8 })).toEqual([]);
});
