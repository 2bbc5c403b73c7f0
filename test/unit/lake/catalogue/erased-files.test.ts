import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import {
  cataloguePaths,
  readFoundNotices,
  writeNotices,
  type Notice,
} from '../../../../src/lake/catalogue/catalogue-files.ts';
import { readCurrentCatalogue } from '../../../../src/lake/catalogue/current-catalogue.ts';
import { openPacks } from '../../../../src/lake/catalogue/packs.ts';
import { listSources } from '../../../../src/lake/catalogue/file-summaries.ts';
import { isCatalogueCurrent, refreshCatalogue } from '../../../../src/lake/catalogue/refresh.ts';
import { ensureLake, lakePaths } from '../../../../src/lake/lake.ts';
import { openTable } from '../../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../../../src/lake/sql/literals.ts';
import { noCrashPoint } from '../../../../src/runtime/crash-point.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { addMadeFile } from '../../../helpers/sealed-file.ts';

const clock = { nowMs: () => Date.parse('2026-02-01T00:00:00Z') };
const folder = 'kind=custom_event/date=2026-01-31';

const valuesOf = (event: string, age: number): Readonly<Record<string, string>> => {
  const time = `TIMESTAMPTZ '2026-01-31 12:00:00+00'`;
  return {
    event_id: `'${event} ' || i`,
    kind: `'custom_event'`,
    date: `DATE '2026-01-31'`,
    id_app: '1',
    event_time: time,
    received_at: time,
    available_at: time,
    custom_user_id: `'user ' || i`,
    custom_event_name: `'${event}'`,
    custom_event_params: `MAP {'of ${event}': 'x'}`,
    age: String(age),
  };
};

const noticeOf = (customEventName: string, parameter?: string): Notice => ({
  id: `${customEventName} ${parameter}`,
  kind: 'parameter_new',
  idApp: 1,
  customEventName,
  ...(parameter === undefined ? {} : { parameter }),
  date: '2026-01-31',
  foundAt: '2026-02-01T00:00:00.000Z',
  what: '',
});

/** Creates a lake of two sealed files with two rows each, and its catalogue. */
async function openCatalogue() {
  const lakeDir = path.join(testFolder(), 'lake');
  await ensureLake(lakeDir, { clock, retentionMs: 86_400_000 });
  const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
  for (const event of ['kept', 'erased'])
    await addMadeFile(table, clock, { path: `${folder}/${event}.parquet`, rows: 2, values: valuesOf(event, 1) });
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const packs = await openPacks(cataloguePaths(lakeDir).packs, duckdb);

  /** Updates the catalogue as the compactor does. Returns whether parts were removed. */
  async function follow(): Promise<boolean> {
    const { files, emptyFile, version } = table.snapshot();
    const sources = listSources(files);
    const removed = await packs.keep(duckdb, new Set(sources.map(({ key }) => key)));
    const missing = sources.filter(({ key }) => !packs.keys().has(key));
    if (missing.length > 0) await packs.add(duckdb, missing, emptyFile);
    await refreshCatalogue(lakeDir, duckdb, packs, { tableVersion: version, missingFiles: 0 });
    return removed;
  }
  await follow();
  return {
    lakeDir,
    table,
    follow,
    read: async (): Promise<Readonly<Record<string, number>>> => {
      const { customEvents } = await readCurrentCatalogue(lakeDir, { idApp: 1 });
      return Object.fromEntries(customEvents.map(({ customEventName, events }) => [customEventName, events]));
    },
    readPacks: async (): Promise<string[]> => {
      const rows = await duckdb.rows(
        `SELECT DISTINCT event FROM read_parquet(${sqlList(packs.files())}) WHERE event IS NOT NULL ORDER BY ALL`,
      );
      return rows.map(({ event }) => String(event));
    },
    remove: async (name: string): Promise<void> => {
      await table.commit(() => ({
        cause: 'erase',
        actions: [{ remove: { path: `${folder}/${name}.parquet`, deletionTimestamp: 0, dataChange: true } }],
        totals: { stored: -2, erased: 2 },
      }));
    },
  };
}

test('An updated catalogue has no data of an erased file in its packs, views and notices', async () => {
  const { lakeDir, table, follow, read, readPacks, remove } = await openCatalogue();
  const { viewsSql } = cataloguePaths(lakeDir);
  expect([await read(), await readPacks()]).toEqual([{ erased: 2, kept: 2 }, ['erased', 'kept']]);
  expect(readFileSync(viewsSql, 'utf8')).toContain('erased');
  const notices = [
    noticeOf('kept', 'of kept'),
    noticeOf('kept', 'of erased'),
    noticeOf('erased'),
    noticeOf('erased', 'of erased'),
  ];
  await writeNotices(lakeDir, notices);
  expect(await isCatalogueCurrent(lakeDir, table.state().version)).toBe(true);

  await remove('erased');
  expect(await isCatalogueCurrent(lakeDir, table.state().version)).toBe(false);
  expect(await follow()).toBe(true);
  expect(await isCatalogueCurrent(lakeDir, table.state().version)).toBe(true);
  expect([await read(), await readPacks()]).toEqual([{ kept: 2 }, ['kept']]);
  expect(readFileSync(viewsSql, 'utf8')).not.toContain('erased');
  expect(await readFoundNotices(lakeDir)).toEqual(notices.slice(0, 1));
});

test('Rows of a rewritten file are counted once, before and after the catalogue is updated', async () => {
  const { table, follow, read, remove } = await openCatalogue();
  await addMadeFile(table, clock, { path: `${folder}/again.parquet`, rows: 2, values: valuesOf('kept', 2) });
  await remove('kept');
  expect(await read()).toEqual({ erased: 2, kept: 2 });
  await follow();
  expect(await read()).toEqual({ erased: 2, kept: 2 });
});
