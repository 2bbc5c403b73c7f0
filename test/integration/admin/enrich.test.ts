import path from 'node:path';
import { expect, test } from 'vitest';
import { openEnrichment } from '../../../src/enrichment/enrichment.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { enrichLake, type TableEnriched } from '../../../src/admin/enrich.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inTurn } from '../../helpers/in-turn.ts';
import { eventLine, query, readRows, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { writeMmdbFile } from '../../helpers/mmdb-file.ts';
import { waitFor } from '../../helpers/wait.ts';

const firefox = 'Mozilla/5.0 (X11; Ubuntu; Linux i686; rv:109.0) Gecko/20100101 Firefox/115.0';

async function enrich(
  folder: string,
  geoDatabase: string,
  crashPoint: CrashPoint = noCrashPoint,
): Promise<TableEnriched[]> {
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 2 });
  try {
    return await enrichLake({
      lakeDir: path.join(folder, 'lake'),
      duckdb,
      enricher: await openEnrichment({ geoDatabase }),
      clock: createClock(0),
      crashPoint,
      signal: new AbortController().signal,
      retentionMs: 86_400_000,
    });
  } finally {
    duckdb.close();
  }
}

/** Creates a lake of a sealed file with rows unordered by address, a young file, and one without an address. */
async function makeLake(folder: string): Promise<void> {
  const stream = createMemoryStream();
  const { table } = lakePaths(path.join(folder, 'lake'));
  const files = async (): Promise<number> => (await readSnapshot(table)).files.length;
  const sealer = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  const at = Math.floor(Date.UTC(2026, 0, 5, 12) / 1000);
  stream.publish(
    Array.from({ length: 4000 }, (_, index) =>
      eventLine({
        custom_user_id: `u${index}`,
        event_time: at + ((index * 7919) % 4000),
        ipv4: `${index % 3 === 0 ? 81 : 9}.0.${index % 250}.1`,
        ...(index % 2 === 0 ? { user_agent: firefox } : {}),
      }),
    ),
  );
  await waitFor('sealed', async () => (await readSnapshot(table)).files.some((file) => !file.young));
  await sealer.stop();
  for (const [index, line] of [{ ipv6: '2a02::7' }, { custom_user_id: 'nobody' }].entries()) {
    const compactor = await startTestCompact(folder, stream);
    stream.publish([eventLine(line)]);
    await waitFor('flushed', async () => (await files()) === index + 2);
    await compactor.stop();
  }
}

function writeDatabase(folder: string): string {
  const file = path.join(folder, 'own.mmdb');
  writeMmdbFile(file, [
    ['81.0.0.0/8', { country_code: 'DE' }],
    ['2a02::/16', { country_code: 'FR' }],
  ]);
  return file;
}

const counts = `count(*) FILTER (id_country = 202) AS germany, count(*) FILTER (id_country = 47) AS france,
  count(*) FILTER (geo_date = DATE '2023-11-14') AS dated, count(*) FILTER (browser = 'Firefox') AS firefox, count(*) AS n`;
const filled = { germany: 1334n, france: 1n, dated: 1335n, firefox: 2000n, n: 4002n };

test('Existing rows are enriched by their addresses and User-Agents, by commits that change nothing else', async () => {
  const folder = testFolder();
  await makeLake(folder);
  const lakeDir = path.join(folder, 'lake');
  const geoDatabase = writeDatabase(folder);
  const before = await readRows(folder, 'event_id, event_time, received_at, available_at, ipv4, user_agent');
  const { totals, availableAtMs } = (await readSnapshot(lakePaths(lakeDir).table)).lake ?? {};

  expect(await enrich(folder, geoDatabase)).toEqual([{ table: 'events', rows: 2668, filesRewritten: 2, files: 3 }]);
  expect(await readCounts(folder)).toEqual(filled);
  expect(await readRows(folder, 'event_id, event_time, received_at, available_at, ipv4, user_agent')).toEqual(before);
  const { lake, files } = await readSnapshot(lakePaths(lakeDir).table);
  expect(lake).toMatchObject({ totals, availableAtMs, cause: 'enrich' });
  const sealed = files.find((file) => !file.young)?.absolutePath ?? '';
  const [order] = await query(
    `SELECT bool_and(event_time >= before) AS sorted, count(*) AS n FROM (SELECT event_time, lag(event_time, 1, event_time) OVER (ORDER BY file_row_number) AS before FROM read_parquet('${sealed}'))`,
  );
  expect(order).toEqual({ sorted: true, n: 4000n });
  expect(await checkLake(lakeDir)).toMatchObject({ ok: true, problems: [] });

  expect(await enrich(folder, geoDatabase)).toEqual([{ table: 'events', rows: 0, filesRewritten: 0, files: 3 }]);
});

async function readCounts(folder: string): Promise<unknown> {
  const { files } = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
  const list = files.map((file) => `'${file.absolutePath}'`).join(', ');
  return (
    await query(`SELECT ${counts} FROM read_parquet([${list}], union_by_name = true, hive_partitioning = false)`)
  )[0];
}

const killedAt = ['change-written', 'file-linked', 'files-linked', 'commit-linked', 'change-committed', 'change-ended'];

test.each(inTurn(killedAt, 6))(
  'An enrichment that ends at the step %s is finished by the next one, and every row exists once',
  async (step) => {
    const folder = testFolder();
    await makeLake(folder);
    const geoDatabase = writeDatabase(folder);
    let steps = 0;
    const crash: CrashPoint = (at) => {
      if (at !== step) return Promise.resolve();
      steps += 1;
      return Promise.reject(new Error(`ended at ${step}`));
    };
    await expect(enrich(folder, geoDatabase, crash)).rejects.toThrow(`ended at ${step}`);
    expect(steps).toBe(1);
    await enrich(folder, geoDatabase);
    expect(await readCounts(folder)).toEqual(filled);
    expect(await checkLake(path.join(folder, 'lake'))).toMatchObject({ ok: true, problems: [] });
  },
);
