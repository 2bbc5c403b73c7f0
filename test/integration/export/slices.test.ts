import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { ExportApp, ExportSpec } from '../../../src/export/jobs/export-spec.ts';
import type { WorkerLimits, WorkerOutcome } from '../../../src/export/jobs/worker-messages.ts';
import { runExport } from '../../../src/export/worker/run-export.ts';
import { planSlices } from '../../../src/export/worker/copy-slices.ts';
import { sqlList } from '../../../src/lake/sql/literals.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { readSnapshot, type DataFile } from '../../../src/lake/log/snapshot.ts';
import { openBenchLake } from '../../bench/bench-lake.ts';
import { addDays, appCount } from '../../bench/export-lake.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import { inTurn, oneTestIn } from '../../helpers/in-turn.ts';

beforeEach(oneTestIn(3));

/*
 * Results in slices, on several engines: a lake of one file with three row groups and of many small files, so that each
 * result has some slices, and some of them end in the middle of a file.
 */
const root = temporaryFolder();
const tableDir = path.join(root, 'lake', 'events');
let files: readonly DataFile[];

const allApps: readonly ExportApp[] = Array.from({ length: appCount }, (_, index) => ({
  idApp: index + 1,
  sdkKey: `key ${index}`,
  title: `Game ${index}`,
  platform: 'web',
  idAccount: 1,
  idProject: 1,
}));

interface Ordered {
  readonly request?: Partial<ExportSpec>;
  readonly limits?: Partial<WorkerLimits>;
  /** The apps whose rows the caller may read; all by default. */
  readonly apps?: readonly ExportApp[];
  /** A folder that has files already. */
  readonly folder?: string;
}

/** Runs an export of the complete lake in this process. */
async function order({ request, limits, apps = allApps, folder = testFolder() }: Ordered): Promise<{
  readonly outcome: WorkerOutcome;
  readonly folder: string;
  readonly text: string;
}> {
  mkdirSync(folder, { recursive: true });
  const outcome = await runExport(
    {
      request: {
        event: 'customEvents',
        selectors: ['eventId', 'tsEvent', 'params.name', 'params.value'],
        timezone: 'UTC',
        eventTime: {},
        availableAt: {},
        eventNameInvert: false,
        filters: {},
        ...request,
      },
      apps,
      tableDir,
      folder,
      stem: 'r',
      retentionMs: 0,
      begunMs: 0,
      limits: {
        maxRows: 1e9,
        maxBytes: 1e10,
        singleFileMaxBytes: 1e10,
        partMaxBytes: 1e10,
        memoryMb: 1024,
        threads: 2,
        ...limits,
      },
    },
    () => undefined,
  );
  const made = outcome.kind === 'done' ? outcome.files : [];
  const text = made
    .map(({ name }) => {
      const bytes = readFileSync(path.join(folder, name));
      return (name.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
    })
    .join('');
  return { outcome, folder, text };
}

const contentOf = (outcome: WorkerOutcome): unknown =>
  outcome.kind === 'done' ? outcome.files.map(({ rows, bytes, sha256 }) => [rows, bytes, sha256]) : outcome;

beforeAll(async () => {
  const table = await openBenchLake(root);
  await addDays(table, 0, 1, 250_000);
  await addDays(table, 1, 6, 25_000);
  ({ files } = await readSnapshot(tableDir));
}, 60_000);

describe('an export in slices', () => {
  it('The rows have the order of the lake, each once, under one header', async () => {
    expect(planSlices(files).length).toBeGreaterThan(4);
    const { text, outcome } = await order({ request: { selectors: ['eventId'] } });
    const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
    const ids = await duckdb.rows(
      `SELECT event_id FROM read_parquet(${sqlList(files.map((file) => file.absolutePath))})`,
    );
    duckdb.close();
    expect(text).toBe(`eventId\n${ids.map((row) => `${String(row['event_id'])}\n`).join('')}`);
    expect(outcome).toMatchObject({ kind: 'done', files: [{ name: 'r.csv', rows: 375_000 }], filesRead: 6 });
  });

  it.each(
    inTurn(
      [
        ['one .csv', 1, {}, {}],
        ['plain parts', 4, { compression: 'none' }, { partMaxBytes: 15_000_000 }],
        ['compressed parts', 4, {}, { singleFileMaxBytes: 0, partMaxBytes: 15_000_000 }],
        ['compressed JSON lines', 5, { format: 'jsonl' }, { singleFileMaxBytes: 1_000_000, partMaxBytes: 15_000_000 }],
      ] as const,
      4,
    ),
  )(
    'However many slices are written at a time, and in one piece, the bytes are the same: %s',
    async (_name, count, request, limits) => {
      const two = contentOf((await order({ request, limits })).outcome);
      for (const threads of inTurn([1, 4], 2))
        expect(contentOf((await order({ request, limits: { ...limits, threads } })).outcome)).toEqual(two);
      // A filter that selects all apps: a filtered request is one statement.
      const whole = { ...request, eventName: ['none of them'], eventNameInvert: true };
      const inOnePiece = contentOf((await order({ request: whole, limits })).outcome);
      expect(inOnePiece).toEqual(two);
      expect(two).toHaveLength(count);
    },
  );

  it.each(
    inTurn(
      [
        ['in the order of the lake', {}],
        ['in the order of time', { order: 'time' }],
      ] as const,
      2,
    ),
  )('A Parquet file has the same bytes again, by however many threads: %s', async (_name, request) => {
    const selectors = ['eventId', 'tsEvent', 'params.value'];
    const parquet = { selectors, format: 'parquet', compression: 'none', ...request } as const;
    const apps = allApps.filter(({ idApp }) => idApp !== 2);
    const made = new Set<string>();
    for (const threads of [4, ...inTurn([2, 1], 2), 4])
      made.add(JSON.stringify(contentOf((await order({ request: parquet, apps, limits: { threads } })).outcome)));
    expect([...made]).toEqual([expect.stringMatching(/^\[\[281250,\d+,"[0-9a-f]{64}"\]\]$/)]);
  });

  it('Rows whose groups do not fit into memory become a Parquet file of smaller groups', async () => {
    const request = { format: 'parquet', selectors: ['eventId'] } as const;
    const { outcome, folder } = await order({ request: { format: 'parquet' }, limits: { memoryMb: 40 } });
    expect(outcome).toMatchObject({ kind: 'done', files: [{ name: 'r.parquet', rows: 375_000 }] });
    const whole = await order({ request });
    const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
    const idsOf = (of: string): Promise<unknown> =>
      duckdb.rows(`SELECT md5(string_agg(eventId, ',')) AS ids FROM read_parquet('${path.join(of, 'r.parquet')}')`);
    expect(await idsOf(folder)).toEqual(await idsOf(whole.folder));
    duckdb.close();
  });

  it.each(inTurn(['csv', 'jsonl'] as const, 2))(
    'Slices without any row add nothing to a %s at any position',
    async (format) => {
      const request = { selectors: ['idApp'], format };
      for (const app of inTurn([1, 2, 4], 3)) {
        const { text, outcome } = await order({ request, apps: allApps.filter(({ idApp }) => idApp === app) });
        expect(outcome, `app ${app}`).toMatchObject({ kind: 'done', files: [{ rows: 93_750 }] });
        const line = format === 'csv' ? `${app}\n` : `{"idApp":${app}}\n`;
        expect(text).toBe(`${format === 'csv' ? 'idApp\n' : ''}${line.repeat(93_750)}`);
      }
      const { text } = await order({ request, apps: [{ ...(allApps[0] as ExportApp), idApp: 99 }] });
      expect(text).toBe(format === 'csv' ? 'idApp\n' : '');
    },
  );

  it('A result of more bytes than allowed is refused, and its slices are removed', async () => {
    const { outcome, folder } = await order({ limits: { maxBytes: 5_000_000 } });
    expect(outcome).toMatchObject({ kind: 'failed', reason: 'user' });
    expect(readdirSync(path.join(folder, 'work')).filter((name) => name.startsWith('result'))).toEqual([]);
  });

  it('Files that cannot be written end the slices, and nothing of the result is left', async () => {
    const folder = testFolder();
    writeFileSync(path.join(folder, 'r.1.csv.gz'), 'in the way');
    const { outcome } = await order({ folder, limits: { singleFileMaxBytes: 0 } });
    expect(outcome).toMatchObject({ kind: 'failed', reason: 'error', error: expect.stringContaining('EEXIST') });
    expect(readdirSync(folder, { recursive: true, encoding: 'utf8' }).toSorted()).toEqual(['r.1.csv.gz', 'work']);
  });

  it('A damaged file fails the export at once, during another slice', async () => {
    const [first = ''] = files.map(({ absolutePath }) => absolutePath);
    const whole = readFileSync(first);
    writeFileSync(first, Buffer.concat([whole, whole]));
    try {
      const { outcome, folder } = await order({ limits: { threads: 4 } });
      expect(outcome).toMatchObject({ kind: 'failed', reason: 'damage', error: expect.stringContaining(first) });
      expect(readdirSync(folder)).toEqual(['work']);
    } finally {
      writeFileSync(first, whole);
    }
  });

  it('A damaged file of the last slice fails the export, and leaves no part of the earlier slices', async () => {
    const last = files.at(-1)?.absolutePath ?? '';
    const whole = readFileSync(last);
    const damaged = Buffer.from(whole);
    const at = Math.floor(damaged.length / 3);
    damaged.writeUInt8(damaged.readUInt8(at) ^ 1, at);
    writeFileSync(last, damaged);
    try {
      const { outcome, folder } = await order({ limits: { singleFileMaxBytes: 0, partMaxBytes: 5_000_000 } });
      expect(outcome).toMatchObject({ kind: 'failed', reason: 'damage' });
      expect(readdirSync(folder)).toEqual(['work']);
    } finally {
      writeFileSync(last, whole);
    }
  });
});
