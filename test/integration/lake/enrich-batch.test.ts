import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { events } from '../../../src/datasets/dataset.ts';
import { openEnrichment, type Enrichment } from '../../../src/enrichment/enrichment.ts';
import { writeEnriched } from '../../../src/lake/batch/enrich-batch.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import { testFolder } from '../../helpers/folder.ts';
import { writeMmdbFile } from '../../helpers/mmdb-file.ts';

describe('a batch that is written with what is known of it', () => {
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

  /** Writes the batch, the first time with an error; says how often it was tried, and with what. */
  async function writeWith(fault: Error): Promise<{ readonly tries: boolean[]; readonly outcome: unknown }> {
    const tries: boolean[] = [];
    const write = async (select: unknown): Promise<object> => {
      tries.push(select !== undefined);
      if (tries.length === 1) throw fault;
      return {};
    };
    const outcome: unknown = await writeEnriched(duckdb, enricher, events, write).catch((thrown: unknown) => thrown);
    return { tries, outcome };
  }

  it('An error of the disk fails the write, and is not blamed on the enrichment', async () => {
    const error = Object.assign(new Error('EIO: i/o error, fsync'), { code: 'EIO' });
    expect(await writeWith(error)).toEqual({ tries: [true], outcome: error });
    expect(enricher.problems()).toEqual([]);
  });

  it('An error of the engine has the rows written without what is known of them, and is a problem', async () => {
    expect(await writeWith(new AppError('memory', 'out of memory'))).toEqual({
      tries: [true, false],
      outcome: {},
    });
    expect(enricher.problems()).toMatchObject([{ code: 'enrichment_failing' }]);
  });
});
