import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { datasets, events } from '../../src/datasets/dataset.ts';
import type { Random } from '../../src/demo/random.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { listLog } from '../../src/lake/log/log-files.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { openTable } from '../../src/lake/log/table.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { eraseEvents } from '../../src/admin/erase/erase.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { addRows, type TestRow } from './dataset-rows.ts';
import { hostileTexts } from './export-events.ts';
import { testFolder } from './folder.ts';
import { eventLine, startTestCompact } from './lake.ts';
import { addTestSegment, loadTestTitles } from './lists.ts';
import { loadableDatasets, makeLoadedRows } from './loaded-rows.ts';
import { createMemoryStream } from './memory-stream.ts';
import { addMadeFile } from './sealed-file.ts';
import { waitFor } from './wait.ts';

const hourMs = 3_600_000;
export const retentionMs = 48 * hourMs;
/** Time of a lake's first events. */
export const beginMs = Date.UTC(2026, 0, 1);
const users = 12;

/** A lake with every kind of file, and the lists that its exports may read. */
export interface EstimateLake {
  readonly lakeDir: string;
  readonly segmentsDir: string;
  readonly titlesDir: string;
  readonly versions: number;
  readonly endMs: number;
}

function line(random: Random, nowMs: number): Record<string, unknown> {
  const kind = random.pick(['custom_event', 'custom_event', 'registration', 'login']);
  const text = (): string => random.pick([...hostileTexts, 'plain', `t${random.integer(0, 500)}`]);
  const late = random.pick([0, 0, 0, random.integer(0, 20_000), 90_000, 40_000_000]);
  return eventLine({
    kind,
    id_app: random.integer(11, 15),
    event_time: Math.floor(nowMs / 1000) - late,
    received_at: nowMs,
    custom_user_id: random.chance(0.8) || kind !== 'custom_event' ? `user ${random.integer(1, users)}` : undefined,
    ...(random.chance(0.6) ? { lvid: random.hex(32) } : {}),
    ...(random.chance(0.3) ? { idfa: random.hex(36), user_agent: text(), age: random.integer(1, 99) } : {}),
    ...(random.chance(0.3) ? { id_country: random.pick([188, 38, 16]) } : {}),
    ...(kind === 'custom_event'
      ? {
          custom_event_name: random.pick(['level_up', 'purchase', 'a,b', text()]),
          ...(random.chance(0.6)
            ? { custom_event_params: { level: String(random.integer(1, 9)), [text()]: text() } }
            : {}),
        }
      : {}),
  });
}

/** Adds one sealed file of many row groups, sorted as by a seal. */
async function addGroupedFile(lakeDir: string, random: Random): Promise<void> {
  const clock = { nowMs: () => beginMs + 40 * hourMs };
  const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
  const rows = random.integer(5000, 12_000);
  const date = random.pick(['2026-01-01', '2026-01-02']);
  const time = `TIMESTAMPTZ '${date} 00:00:00+00' + to_milliseconds(i % 700 * 120000)`;
  const values: Readonly<Record<string, string>> = {
    event_id: `format('{:08x}-0000-7000-8000-{:012x}', i, hash(i) % 1000000)`,
    kind: `'custom_event'`,
    date: `DATE '${date}'`,
    id_app: `i * 5 // ${rows} + 11`,
    event_time: time,
    received_at: time,
    available_at: `make_timestamptz(${(table.lake()?.availableAtMs ?? 0) * 1000})`,
    custom_user_id: `CASE WHEN i % 3 > 0 THEN 'user ' || hash(i) % 40 END`,
    lvid: `CASE WHEN i < ${rows} // 2 THEN md5(i::VARCHAR) END`,
    custom_event_name: `CASE WHEN i % 2 = 0 THEN 'level_up' ELSE 'other ' || i % 40 END`,
    custom_event_params: `CASE WHEN i % 4 > 0 THEN MAP {'level': (i % 7)::VARCHAR, 'say "' || i % 9: '''' || i} END`,
  };
  await addMadeFile(table, clock, {
    path: `kind=custom_event/date=${date}/${randomUUID()}.parquet`,
    rows,
    values,
    orderBy: 'id_app, event_time',
    rowGroupRows: 2048,
  });
}

/** Adds rows of some datasets in separate files, including those of a segment's devices. */
async function addLoaded(lakeDir: string, random: Random): Promise<void> {
  for (const dataset of loadableDatasets.filter(({ table }) => table === 'hits' || random.chance(0.2))) {
    for (let file = random.integer(1, 2); file > 0; file -= 1) {
      const loaded = makeLoadedRows(dataset, random.integer(1, 12), random.integer(1, 1e9));
      const rows = loaded.map((row, index): TestRow => {
        const ofFields = dataset.fields.flatMap(({ name, schema }) =>
          row[name] === undefined || typeof row[name] === 'object' ? [] : [[schema['x-column'], row[name]]],
        );
        const own = { event_id: `${dataset.table}-${file}-${index}`, id_app: Number(row['idApp']) };
        return { ...Object.fromEntries(ofFields), ...own, event_time: beginMs / 1000 + random.integer(0, 200_000) };
      });
      await addRows(lakeDir, dataset, rows);
    }
  }
}

/** Creates a lake from a seed through flushes, seals, an erasure and late events. */
export async function makeEstimateLake(random: Random): Promise<EstimateLake> {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table } = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const clock = { now: beginMs, nowMs: () => clock.now };
  const compactor = await startTestCompact(folder, stream, { clock, retentionMs, sealAgeMs: hourMs });
  let published = 0;
  async function publish(): Promise<void> {
    const lines = Array.from({ length: random.integer(1, 150) }, () => line(random, clock.now));
    published += lines.length;
    stream.publish(lines);
    await waitFor('the events are stored', async () => {
      const totals = (await readSnapshot(table)).lake?.totals;
      return (totals?.stored ?? 0) + (totals?.erased ?? 0) === published;
    });
    clock.now += random.integer(1, 2 * hourMs);
  }
  for (let n = random.integer(3, 8); n > 0; n -= 1) await publish();
  if (random.chance(0.8)) {
    clock.now += 2 * hourMs;
    await publish();
    clock.now += 30 * hourMs;
    const { version } = await readSnapshot(table);
    await waitFor('rows are sealed', async () => (await readSnapshot(table)).version > version);
    for (let n = random.integer(0, 4); n > 0; n -= 1) await publish();
  }
  if (random.chance(0.5)) {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    const options = { clock, crashPoint: noCrashPoint };
    const { publisher } = stream;
    const { signal } = new AbortController();
    const dependencies = { table: await openTable(table, options), lakeDir, duckdb, ...options, publisher, signal };
    await eraseEvents(dependencies, { users: [`user ${random.integer(1, users)}`] }, { retentionMs });
    duckdb.close();
  }
  await compactor.stop();
  await addGroupedFile(lakeDir, random);
  await addLoaded(lakeDir, random);
  const lists = { segmentsDir: path.join(folder, 'segments'), titlesDir: path.join(folder, 'titles') };
  await addTestSegment(lists.segmentsDir, { idAccount: 1, idSegment: 7, kind: 'device' }, ['t1', 't2', 't3', 't4']);
  await loadTestTitles(lists.titlesDir, [
    'field,id,title',
    ...[0, 1, 2, 3].map((id) => `idCampaign,${id},"a ""title"" ${id}"`),
  ]);
  return { lakeDir, ...lists, versions: (await listLog(table)).commits.at(-1) ?? 0, endMs: clock.now };
}

/** The export events of all datasets. */
export const exportEvents: readonly string[] = [events, ...datasets.values()].flatMap(({ exports }) => [
  ...exports.keys(),
]);
