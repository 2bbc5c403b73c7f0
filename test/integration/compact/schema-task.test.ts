import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { datasets, events, type Dataset } from '../../../src/datasets/dataset.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { openDatasetTable, openLake, tablePaths } from '../../../src/lake/lake.ts';
import { readSnapshot, type DataFile } from '../../../src/lake/log/snapshot.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import type { Problem } from '../../../src/runtime/problems/problem.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { createRandom } from '../../../src/demo/random.ts';
import { damageFile } from '../../helpers/damage.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { query, readRows, startTestCompact } from '../../helpers/lake.ts';
import { startLakeReaders } from '../../helpers/lake-readers.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { addMadeFile, sealedValues } from '../../helpers/sealed-file.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

const clock = createClock(0);
const payments = datasets.get('payments') ?? events;
const rowsOfFile = 5000;
const filesOfTable = 3;

/** Creates a lake of an earlier version: its tables and their sealed files lack columns of the present datasets. */
async function withOldTables(missing: readonly string[]): Promise<{ folder: string; lakeDir: string }> {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  for (const dataset of [events, payments]) {
    const columns = dataset.columns.filter(({ name }) => !missing.includes(name));
    const options = { clock, crashPoint: noCrashPoint, retentionMs: 86_400_000, columns };
    const table = await (dataset === events ? openLake(lakeDir, options) : openDatasetTable(lakeDir, dataset, options));
    const place = dataset === events ? 'kind=custom_event/date=2026-01-31' : 'date=2026-01-31';
    for (let n = 0; n < filesOfTable; n += 1) {
      const availableAtMs = Date.UTC(2026, 1, 1 + n);
      const sealed = sealedValues(rowsOfFile, 7);
      const values = {
        ...sealed,
        event_id: `'${n}-' || ${sealed['event_id']}`,
        available_at: `TIMESTAMPTZ '${new Date(availableAtMs).toISOString()}'`,
      };
      await addMadeFile(table, clock, {
        path: `${place}/${n}.parquet`,
        rows: rowsOfFile,
        values,
        columns,
        availableAtMs,
      });
    }
  }
  return { folder, lakeDir };
}

/** Lists the distinct schemas of the sealed files that readers of a folder find. */
async function listSchemas(lakeDir: string, dataset: Dataset): Promise<unknown[]> {
  const glob = path.join(lakeDir, dataset.table, dataset === events ? 'kind=*' : '', 'date=*/*.parquet');
  const rows = await query(
    `SELECT DISTINCT list(name ORDER BY column_id) AS names FROM parquet_schema('${glob}') WHERE column_id IS NOT NULL AND name NOT IN ('key_value', 'key', 'value', 'duckdb_schema') GROUP BY file_name`,
  );
  return rows.map(({ names }) => names);
}

const namesOf = ({ columns }: Dataset): string[] => columns.map(({ name }) => name);
const schemaNotices = (facts: Readonly<Record<string, unknown>>): Problem[] =>
  (facts['warnings'] as Problem[]).filter(({ code }) => code === 'sealed_columns_missing');
const isRewritten = async (lakeDir: string, dataset: Dataset): Promise<boolean> => {
  const schemas = await listSchemas(lakeDir, dataset);
  return schemas.length === 1 && (schemas[0] as string[]).length === dataset.columns.length;
};

test('Sealed files from before a column was added get it in the background, even if a step fails, and readers see each row once', async () => {
  const missing = ['hwid', 'browser', 'id_country_iso_alpha2', 'product_id'];
  const { folder, lakeDir } = await withOldTables(missing);
  const kept = namesOf(events)
    .filter((name) => !missing.includes(name))
    .join(', ');
  const before = await readRows(folder, kept);
  const readers = startLakeReaders(folder);
  onTestFinished(() => readers.stop());
  const left = new Set(['change-written', 'file-linked', 'change-committed', 'place-taken']);
  const crashPoint = async (step: string): Promise<void> => {
    if (left.delete(step)) throw new Error(`ended at ${step}`);
  };
  const options = { retentionMs: 400, crashPoint };
  const first = await startTestCompact(folder, createMemoryStream(), options);
  await waitFor('the operator sees it', () => schemaNotices(first.facts()).length === 2, 30_000);
  expect(schemaNotices(first.facts())[0]).toMatchObject({
    subject: 'events',
    message: expect.stringContaining('sealed files of the lake lack columns that were added later'),
  });
  await first.stop();
  const second = await startTestCompact(folder, createMemoryStream(), options);
  for (const dataset of [events, payments])
    await waitFor(`${dataset.table} has one schema`, () => isRewritten(lakeDir, dataset), 60_000);
  await waitFor('nothing is left to say', () => schemaNotices(second.facts()).length === 0, 30_000);
  await second.stop();
  await readers.stop();
  expect([...left]).toEqual([]);
  expect((await listSchemas(lakeDir, payments))[0]).toEqual(expect.arrayContaining(namesOf(payments)));
  expect(await readRows(folder, kept)).toEqual(before);
  const [order] = await query(
    `SELECT count(*) FILTER (WHERE event_id < previous)::INT AS wrong FROM (SELECT event_id, lag(event_id) OVER (PARTITION BY filename ORDER BY file_row_number) AS previous FROM read_parquet('${lakeDir}/*/**/date=*/*.parquet', filename = true, file_row_number = true, union_by_name = true))`,
  );
  expect(order).toEqual({ wrong: 0 });
  expect((await checkLake(lakeDir)).problems).toEqual([]);

  // The table records the end: another start reads no file, and commits only its claim.
  const { version } = await readSnapshot(tablePaths(lakeDir, payments).table);
  const third = await startTestCompact(folder, createMemoryStream(), options);
  await waitFor('the tables are open', () => third.facts()['tables'] !== undefined, 30_000);
  expect(schemaNotices(third.facts())).toEqual([]);
  await third.stop();
  const after = await readSnapshot(tablePaths(lakeDir, payments).table);
  expect([after.version, after.lake?.cause]).toEqual([version + 1, 'start']);
}, 180_000);

test('A damaged sealed file keeps its columns and is named, and all others get the new ones', async () => {
  const { folder, lakeDir } = await withOldTables(['browser']);
  const { files } = await readSnapshot(tablePaths(lakeDir, events).table);
  const damaged = files[1] as DataFile;
  damageFile(damaged.absolutePath, 'flip', createRandom(1));
  const compactor = await startTestCompact(folder, createMemoryStream(), { retentionMs: 400 });
  onTestFinished(() => compactor.stop());
  const problem = (): Problem | undefined =>
    schemaNotices(compactor.facts()).find(({ subject }) => subject === 'events');
  const notice = (): string => problem()?.message ?? '';
  await waitFor(
    'the others are in place',
    () => notice().includes('0 rewritten files wait') && notice().includes('1 cannot be rewritten'),
    60_000,
  );
  expect(notice()).toContain(damaged.path);
  expect(problem()?.action).toContain("run 'tributary lake check', restore damaged ones from a backup");
  expect(compactor.facts()['problems']).toEqual([]);
  await waitFor('so are those of the other table', () => isRewritten(lakeDir, payments), 60_000);
}, 120_000);
