import { randomInt } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { datasets } from '../../../src/datasets/dataset.ts';
import { writeDataFile } from '../../../src/lake/files/data-file.ts';
import { ensureLake, lakePaths, openDatasetTable } from '../../../src/lake/lake.ts';
import { readCommit } from '../../../src/lake/log/log-files.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { isAppError } from '../../../src/runtime/errors.ts';
import { isLongRun } from '../../helpers/chaos.ts';
import { testFolder } from '../../helpers/folder.ts';

const options = { clock: createClock(0), crashPoint: noCrashPoint, retentionMs: 86_400_000 };

async function newLake(): Promise<{ lakeDir: string; table: string; log: string }> {
  const lakeDir = path.join(testFolder(), 'lake');
  await ensureLake(lakeDir, options);
  const { table } = lakePaths(lakeDir);
  return { lakeDir, table, log: path.join(table, '_delta_log') };
}

test(
  'A damaged commit is an error, and never counts as foreign: any bit flipped, alone or with an unreadable name',
  { timeout: 240_000 },
  async () => {
    const { table, log } = await newLake();
    const writer = await openTable(table, options);
    await writer.commit(() => ({ cause: 'flush', actions: [{ txn: { appId: 's', version: 7 } }] }));
    const file = path.join(log, '00000000000000000001.json');
    const whole = await readFile(file);
    const believed: string[] = [];
    // The short form flips every seventh bit with a changing start: all bits in seven runs, and every byte in each.
    const stride = isLongRun ? 1 : 7;
    for (const bytes of [whole, Buffer.from(whole.toString().replace('commitInfo', 'commitInfn'))]) {
      for (let bit = randomInt(stride); bit < bytes.length * 8; bit += stride) {
        const damaged = Buffer.from(bytes);
        damaged[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
        if (damaged.equals(whole)) continue;
        await writeFile(file, damaged);
        const outcome = await readCommit(table, 1).then(
          () => 'believed',
          (error: unknown) => (isAppError(error, 'log_damaged') ? 'refused' : String(error)),
        );
        if (outcome !== 'refused') believed.push(`bit ${bit}: ${outcome}`);
      }
    }
    expect(believed).toEqual([]);
  },
);

test('Each table names its columns with statistics, and a table of 0.3 does after its next start', async () => {
  const { lakeDir } = await newLake();
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  const property = 'delta.dataSkippingStatsColumns';
  for (const dataset of datasets.values()) {
    const table = await openDatasetTable(lakeDir, dataset, options);
    const written = await writeDataFile(
      duckdb,
      `SELECT * FROM read_parquet('${table.snapshot().emptyFile}') UNION ALL BY NAME SELECT 1 AS id_app`,
      path.join(table.dir, '_young', 'a.parquet'),
    );
    const named = table.state().metaData?.configuration[property] ?? '';
    expect(named.split(',').toSorted()).toEqual(Object.keys(written.stats.nullCount ?? {}).toSorted());

    const configuration = { 'delta.deletedFileRetentionDuration': 'interval 7 milliseconds' };
    await table.commit(({ metaData }) => ({
      cause: 'schema',
      actions: metaData === undefined ? [] : [{ metaData: { ...metaData, configuration } }],
    }));
    const { version } = table.state();
    const upgraded = (await openDatasetTable(lakeDir, dataset, options)).state();
    expect(upgraded.metaData?.configuration).toEqual({ ...configuration, [property]: named });
    expect(upgraded.version).toBe(version + 1);
    expect((await openDatasetTable(lakeDir, dataset, options)).state().version).toBe(version + 1);
  }
  duckdb.close();
});
