import { rm, stat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { formatCount } from '../../src/demo/demo-report.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../src/lake/sql/literals.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { openLoadArea } from '../helpers/loads.ts';
import { median, reportBench } from './bench-report.ts';
import { benchRows, formatMb, rounds } from './bench-size.ts';
import { runDuckdbCopy } from './duckdb-copy.ts';

/*
 * Cost of a load: rows of a file of payments are validated, compared with stored ones and committed. DuckDB's COPY of
 * the same file to one Parquet file runs alternately. Only ratios of one run count.
 */
const rows = benchRows(1_000_000, 10_000_000);
const longestMs = 3_600_000;
const folder = temporaryFolder();
const threads = availableParallelism();

const payments = `SELECT 1700000000 + i // 20 AS "tsEvent", 1 + i % 2 AS "idApp", 'pay-' || lpad(CAST(i AS VARCHAR), 12, '0') AS "eventId",
  'GPA.' || CAST(hash(i) % 100000000000 AS VARCHAR) AS "idTransaction", CAST((hash(i + 7) % 100000) / 100 AS DECIMAL(18, 2)) AS total,
  ['EUR', 'USD', 'RUB', 'GBP'][1 + CAST(hash(i + 1) % 4 AS INTEGER)] AS currency, CAST(hash(i + 2) % 2 AS INTEGER) AS "isTest",
  'product.' || CAST(hash(i + 3) % 500 AS VARCHAR) AS "productId", CAST(1 + hash(i + 4) % 3 AS INTEGER) AS quantity,
  md5(CAST(i // 7 AS VARCHAR)) AS "idDevice", CAST(hash(i + 5) % 5000 AS INTEGER) AS "idCampaign"
  FROM range(${rows}) AS r(i)`;

interface Contest {
  readonly name: string;
  readonly file: string;
  /** Options of DuckDB's COPY and reader for the format. */
  readonly options: string;
  readonly reader: string;
}

const contests: readonly Contest[] = [
  { name: 'CSV', file: 'payments.csv', options: 'FORMAT csv, HEADER true', reader: 'read_csv' },
  { name: 'JSON lines', file: 'payments.ndjson', options: 'FORMAT json', reader: 'read_json' },
  { name: 'Parquet', file: 'payments.parquet', options: 'FORMAT parquet, COMPRESSION zstd', reader: 'read_parquet' },
];

/** Returns the seconds of one load of a file into an empty table. */
async function loadOnce(file: string): Promise<number> {
  const target = path.join(folder, 'loaded');
  await rm(target, { recursive: true, force: true });
  const area = await openLoadArea(target, 'payments');
  const startedAt = performance.now();
  const outcome = await area.load(file, {}, { limits: { memoryMb: 2048, threads } });
  const seconds = (performance.now() - startedAt) / 1000;
  expect(outcome).toMatchObject({ rows, stored: rows, repeats: 0, failed: 0 });
  return seconds;
}

describe('benchmark: load', () => {
  it(
    'A file of payments is loaded, measured next to one COPY of the same file',
    async () => {
      const figures = [];
      for (const { name, file: base, options, reader } of contests) {
        const file = path.join(folder, base);
        const duckdb = await openDuckdb({ memoryMb: 2048, threads, tempDir: path.join(folder, 'spill') });
        await duckdb.run(`COPY (${payments}) TO ${sqlText(file)} (${options})`);
        duckdb.close();
        const copies: number[] = [];
        const loads: number[] = [];
        for (let round = 0; round < rounds; round += 1) {
          const copy = await runDuckdbCopy(
            `COPY (SELECT * FROM ${reader}(${sqlText(file)})) TO ${sqlText(path.join(folder, 'copy.parquet'))} (FORMAT parquet, COMPRESSION zstd)`,
          );
          expect(copy.rows).toBe(rows);
          copies.push(copy.seconds);
          loads.push(await loadOnce(file));
        }
        const { size } = await stat(file);
        await rm(file);
        figures.push({ name, bytes: size, copy: median(copies), load: median(loads) });
      }
      const table = figures.map(({ name, bytes, copy, load }) => [
        `${name}, ${formatMb(bytes)} MB`,
        copy.toFixed(2),
        load.toFixed(2),
        formatCount(Math.round(rows / load)),
        (load / copy).toFixed(2),
        (copy / load).toFixed(2),
      ]);
      const head = [
        `load ${formatCount(rows)} payments`,
        'COPY, s',
        'load, s',
        'rows/s',
        'time of COPY',
        "of COPY's rate",
      ];
      reportBench('load', head, table, { rows, threads, figures });
    },
    longestMs,
  );
});
