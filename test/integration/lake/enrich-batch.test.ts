import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { events } from '../../../src/datasets/dataset.ts';
import { openEnrichment, type Enrichment } from '../../../src/enrichment/enrichment.ts';
import { createBatchEnrichment } from '../../../src/lake/batch/enrich-batch.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import { testFolder } from '../../helpers/folder.ts';
import { writeMmdbFile } from '../../helpers/mmdb-file.ts';
import { waitFor } from '../../helpers/wait.ts';

describe('enrichment of a batch', () => {
  let duckdb: Duckdb;
  let enricher: Enrichment;
  beforeEach(async () => {
    const geoDatabase = path.join(testFolder(), 'own.mmdb');
    writeMmdbFile(geoDatabase, [['81.0.0.0/8', { country_code: 'DE' }]]);
    enricher = await openEnrichment({ geoDatabase });
    duckdb = await openDuckdb({ memoryMb: 64, threads: 1 });
    onTestFinished(() => duckdb.close());
    await duckdb.run(
      `CREATE TEMP TABLE batch AS SELECT false AS bad, 'login' AS kind, '81.2.3.4' AS ipv4, NULL::VARCHAR AS ipv6, NULL::VARCHAR AS user_agent`,
    );
  });

  it('Lookups are cached between batches, and dropped after ten minutes without a batch', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const listTables = async (): Promise<string[]> => {
      const rows = await duckdb.rows("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'enrich%'");
      return rows.map((row) => String(row['table_name'])).toSorted();
    };
    await createBatchEnrichment(duckdb, enricher).write(events, () => Promise.resolve({}));
    const remembered = ['agents', 'places'].flatMap((name) => [
      `enrich_events_${name}_results`,
      `enrich_events_${name}_cached`,
    ]);
    expect(await listTables()).toEqual([...remembered, 'enrich_events_places_joined'].toSorted());
    vi.advanceTimersByTime(599_000);
    expect(await listTables()).toHaveLength(5);
    vi.advanceTimersByTime(1000);
    await waitFor('the tables are dropped', async () => (await listTables()).length === 0);
  });

  /** Writes the batch, the first time with an error. Returns the attempts and their sources. */
  async function writeWith(fault: Error): Promise<{ readonly tries: boolean[]; readonly outcome: unknown }> {
    const tries: boolean[] = [];
    const write = async (select: unknown): Promise<object> => {
      tries.push(select !== undefined);
      if (tries.length === 1) throw fault;
      return {};
    };
    const outcome: unknown = await createBatchEnrichment(duckdb, enricher)
      .write(events, write)
      .catch((thrown: unknown) => thrown);
    return { tries, outcome };
  }

  it('A disk error fails the write, and is not attributed to the enrichment', async () => {
    const error = Object.assign(new Error('EIO: i/o error, fsync'), { code: 'EIO' });
    expect(await writeWith(error)).toEqual({ tries: [true], outcome: error });
    expect(enricher.problems()).toEqual([]);
  });

  it('After an engine error the rows are written without enrichment, and a problem is reported', async () => {
    expect(await writeWith(new AppError('memory', 'out of memory'))).toEqual({
      tries: [true, false],
      outcome: {},
    });
    expect(enricher.problems()).toMatchObject([{ code: 'enrichment_failing' }]);
  });
});
