import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { generateGameSessions } from '../../src/demo/game-sessions.ts';
import { readCatalogue } from '../../src/lake/catalogue/read-catalogue.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { openDuckdb, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../src/lake/sql/literals.ts';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { addRows, getDataset } from '../helpers/dataset-rows.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { eventLine, readRows, startTestCompact } from '../helpers/lake.ts';
import { createMemoryStream } from '../helpers/memory-stream.ts';
import { waitFor } from '../helpers/wait.ts';

const read = (file: string): string => readFileSync(path.join(packageRoot, file), 'utf8');
const page = read('docs/lake.md');
/** Returns the first block of SQL below a heading, or of a page. */
const blockBelow = (text: string, heading = ''): string =>
  /```sql\n([\s\S]*?)```/.exec(text.slice(text.indexOf(heading)))?.[1] ?? '';
const queries = blockBelow(page, '\n## Query examples')
  .split(/\n(?=-- \d+\. )/)
  .map((text) => text.trim());
/** The block for DuckDB's shell: its command `.read`, then statements. */
const shellBlock = blockBelow(page, '\n## DuckDB');

const folder = temporaryFolder();
let duckdb: Duckdb;

beforeAll(async () => {
  const stream = createMemoryStream();
  // The glob needs sealed rows.
  const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  const sessions = [...generateGameSessions({ seed: 7, events: 3000, until: 1_714_600_000, days: 3 })];
  stream.publish([
    eventLine({ kind: 'registration' }),
    eventLine({ kind: 'login' }),
    ...sessions.map((event) =>
      eventLine({
        kind: 'custom_event',
        event_time: event.eventTimestamp,
        custom_user_id: event.customUserId,
        custom_event_name: event.customEventName,
        custom_event_params: event.customEventParams,
      }),
    ),
  ]);
  await waitFor(
    'the lake has the events',
    async () => (await readRows(folder, 'event_id')).length === sessions.length + 2,
  );
  await waitFor('some are sealed', async () =>
    (await readSnapshot(lakePaths(path.join(folder, 'lake')).table)).files.some((file) => !file.young),
  );
  await waitFor('they are in the catalogue', async () => {
    const { customEvents, missingFiles } = await readCatalogue(path.join(folder, 'lake'), 1);
    return missingFiles === 0 && customEvents.length > 0;
  });
  await compactor.stop();
  await addRows(path.join(folder, 'lake'), getDataset('payments'), [
    {
      event_id: 'p1',
      id_app: 1,
      event_time: 1_714_500_000,
      id_country_iso_alpha2: 'DE',
      currency: 'EUR',
      total: '9.99',
    },
    {
      event_id: 'p2',
      id_app: 1,
      event_time: 1_714_500_000,
      id_country_iso_alpha2: 'DE',
      currency: 'EUR',
      total: '5',
      is_test: 1,
    },
  ]);
  duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  await duckdb.run(readFileSync(path.join(folder, 'lake', 'snapshot.sql'), 'utf8'));
});

afterAll(() => duckdb.close());

describe('the block for the shell of DuckDB in docs/lake.md', () => {
  const [first, ...rest] = shellBlock.split('\n');
  const statements = rest
    .join('\n')
    .split(';')
    .map((text) => text.trim())
    .filter((text) => text !== '');

  it('The block for the DuckDB shell begins with the views', () => {
    expect(first).toBe('.read data/lake/snapshot.sql');
  });

  it.each(statements)('A query of the block for the DuckDB shell finds rows: %s', async (sql) => {
    const [row] = await duckdb.rows(sql.replaceAll("'data/lake/", `'${path.join(folder, 'lake')}/`));
    expect(Object.values(row ?? { nothing: 0n })).not.toContain(0n);
  });
});

describe('docs/lake.md', () => {
  it('The page docs/lake.md has ten queries', () => {
    expect(queries).toHaveLength(10);
  });

  it.each(queries.map((sql) => [sql.split('\n')[0] ?? '', sql]))('A query returns rows: %s', async (_title, sql) => {
    const rows = await duckdb.rows(sql.replace("'day.parquet'", sqlText(path.join(folder, 'day.parquet'))));
    expect(rows.length).toBeGreaterThan(0);
    // A COPY returns the number of rows.
    expect(Object.values(rows[0] ?? {})).not.toEqual([0n]);
  });

  it('The query of typed parameters on docs/lake.md finds levels and their coins', async () => {
    const block = blockBelow(page, '\n### views.sql');
    expect(block.split('\n').slice(0, 2)).toEqual(['.read data/lake/snapshot.sql', '.read data/lake/views.sql']);
    await duckdb.run(readFileSync(path.join(folder, 'lake', 'views.sql'), 'utf8'));
    const [row] = await duckdb.rows(block.split('\n').slice(2).join('\n'));
    expect([typeof row?.['level'], typeof row?.['coins']]).toEqual(['bigint', 'number']);
  });

  it('The query of payments by country on docs/lake.md counts real payments only', async () => {
    const [row] = await duckdb.rows(
      blockBelow(page, '\n## The other tables').replace('sum(total)', 'sum(total)::VARCHAR'),
    );
    expect(row).toEqual({ country: 'DE', currency: 'EUR', payments: 1n, total: '9.9900' });
  });
});
