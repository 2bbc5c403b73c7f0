import { appendFile, copyFile, link, mkdir, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { checkLake } from '../../../src/lake/check.ts';
import { checkVersionLedger } from '../../../src/lake/check-log.ts';
import { readHistory, readLakeStats } from '../../../src/lake/history.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { commitName, tableStore } from '../../../src/lake/log/log-files.ts';
import { appendLines, ledgerFile, type LedgerLine } from '../../../src/lake/log/version-ledger.ts';
import { renderSteps } from '../../../src/lake/log/version-points.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

async function flip(file: string): Promise<void> {
  const bytes = await readFile(file);
  const at = Math.floor(bytes.length / 2);
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  await writeFile(file, bytes);
}

/** Creates a lake of one sealed and two young files, with a stopped compactor. */
async function writeLake(): Promise<{ lakeDir: string; table: string; sealed: string; log: string }> {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table } = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const sealer = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  stream.publish([eventLine(), eventLine()]);
  await waitFor('sealed', async () => (await readSnapshot(table)).files.some((file) => !file.young));
  await sealer.stop();
  const compactor = await startTestCompact(folder, stream);
  for (const count of [1, 2]) {
    stream.publish([eventLine(), eventLine({ age: 'x' })]);
    await waitFor(
      'flushed',
      async () => (await readSnapshot(table)).files.filter((file) => file.young).length === count,
    );
  }
  await compactor.stop();
  const sealed = (await readSnapshot(table)).files.find((file) => !file.young)?.absolutePath ?? '';
  return { lakeDir, table, sealed, log: path.join(table, '_delta_log') };
}

function lineOf(version: number): LedgerLine {
  return { version, point: { version, availableAtMs: 1000 + version, tag: undefined } };
}

test('An intact lake passes, and its history and statistics add up', async () => {
  const { lakeDir } = await writeLake();
  expect(await checkLake(lakeDir)).toMatchObject({ ok: true, files: 3, rows: 4, problems: [] });
  const stats = await readLakeStats(lakeDir);
  expect(stats).toMatchObject({ files: 3, youngFiles: 2, totals: { streamed: 6, stored: 4, failed: 2 } });
  expect(
    stats.groups.map(({ kind, rows, sealedFiles, youngRows }) => ({ kind, rows, sealedFiles, youngRows })),
  ).toEqual([{ kind: 'login', rows: 4, sealedFiles: 1, youngRows: 2 }]);
  const history = await readHistory(lakeDir, 100);
  expect(history.map((entry) => entry.cause).toReversed()).toEqual([
    'create',
    'start',
    'epoch',
    'flush',
    'seal',
    'start',
    'flush',
    'flush',
  ]);
});

test('Each kind of damage is found and named', async () => {
  const { lakeDir, sealed, log, table } = await writeLake();
  const problems = async () =>
    (await checkLake(lakeDir)).problems.map(({ problem, path: at }) => `${problem} ${path.basename(at)}`);
  const names = (await readdir(log)).filter((name) => name.endsWith('.json')).toSorted();
  const backup = await readFile(sealed);

  await truncate(sealed, backup.length - 3);
  expect(await problems()).toEqual([`truncated_file ${path.basename(sealed)}`]);
  await writeFile(sealed, backup);
  await flip(sealed);
  expect(await problems()).toEqual([`damaged_file ${path.basename(sealed)}`]);
  await rm(sealed);
  expect(await problems()).toEqual([`missing_file ${path.basename(sealed)}`]);
  await writeFile(sealed, backup);
  // Until the next start, readers of folders find the damaged file, or none.
  expect(await problems()).toEqual([`damaged_file ${path.basename(sealed)}`]);
  const place = sealed.replace('/_sealed/', '/');
  await rm(place);
  expect(await problems()).toEqual([`missing_file ${path.basename(sealed)}`]);
  await link(sealed, place);

  const orphan = path.join(path.dirname(sealed), 'stray.parquet');
  await copyFile(sealed, orphan);
  expect(await problems()).toEqual(['unreferenced_file stray.parquet']);
  await rm(orphan);

  const entry = path.join(log, names[4] ?? '');
  const text = await readFile(entry);
  await appendFile(entry, '\n');
  expect(await problems()).toEqual([`damaged_log_entry ${names[4]}`]);
  await writeFile(entry, '{');
  expect(await problems()).toContain(`damaged_log_entry ${names[4]}`);
  await rm(entry);
  expect(await problems()).toEqual([`missing_log_entry ${names[4]}`]);
  await writeFile(entry, '');
  expect(await problems()).toContain(`damaged_log_entry ${names[4]}`);
  await writeFile(entry, text);

  const checkpoint = path.join(log, '00000000000000000000.checkpoint.parquet');
  const whole = await readFile(checkpoint);
  await flip(checkpoint);
  expect(await problems()).toEqual([`damaged_checkpoint ${path.basename(checkpoint)}`]);
  // All commits from the first exist, so that no reader needs it.
  expect((await readSnapshot(table)).files.length).toBe(3);
  await writeFile(checkpoint, whole);
  await truncate(path.join(table, '_columns.parquet'), 100);
  expect(await problems()).toEqual(['damaged_file _columns.parquet']);
  await rm(path.join(table, '_columns.parquet'));
  expect(await problems()).toEqual(['missing_file _columns.parquet']);
  expect(await checkLake(lakeDir)).toMatchObject({ ok: false });
});

test('A lake whose log is missing is reported, and no new log begins next to its files', async () => {
  const { lakeDir, log } = await writeLake();
  await rm(log, { recursive: true });
  const { ok, problems } = await checkLake(lakeDir);
  expect(ok).toBe(false);
  expect(problems.map(({ problem }) => problem)).toEqual([
    'missing_log_entry',
    ...Array.from({ length: problems.length - 1 }, () => 'unreferenced_file'),
  ]);
  const before = (await readdir(lakeDir, { recursive: true })).filter((name) => name.endsWith('.parquet'));
  await expect(startTestCompact(path.dirname(lakeDir), createMemoryStream())).rejects.toMatchObject({
    code: 'log_damaged',
    message: expect.stringContaining('no log'),
  });
  expect((await readdir(lakeDir, { recursive: true })).filter((name) => name.endsWith('.parquet'))).toEqual(before);
});

test('A damaged, short or missing version ledger is reported, and so are the steps of a clock repair', async () => {
  const { lakeDir, table, log } = await writeLake();
  await appendLines(tableStore(table), [0, 1, 2].map(lineOf));
  expect(await checkLake(lakeDir)).toMatchObject({ ok: true });
  await flip(ledgerFile(table));
  expect((await checkLake(lakeDir)).problems).toEqual([
    {
      problem: 'damaged_file',
      path: 'events/_versions.csv',
      detail: expect.stringContaining('checksum mismatch in lines 2'),
    },
  ]);
  await rm(ledgerFile(table));
  await appendLines(tableStore(table), [lineOf(0)]);
  for (const version of [0, 1, 2]) await rm(path.join(log, commitName(version)));
  expect(await checkVersionLedger(table)).toEqual([
    { problem: 'damaged_file', path: 'events/_versions.csv', detail: expect.stringContaining('ends with version 0') },
  ]);
  await rm(ledgerFile(table));
  await mkdir(path.join(table, '_restamps'));
  await writeFile(path.join(table, '_restamps', 'a.json'), renderSteps([[2, 1]]));
  const restamps = ['a', 'b'].map((name) => ({ version: 1, toMs: 1, steps: `_restamps/${name}.json` }));
  expect(await checkVersionLedger(table, restamps)).toMatchObject([
    { problem: 'missing_file', path: 'events/_restamps/b.json' },
  ]);
  await flip(path.join(table, '_restamps', 'a.json'));
  expect(await checkVersionLedger(table, restamps.slice(0, 1))).toMatchObject([
    { problem: 'damaged_file', path: 'events/_restamps/a.json' },
  ]);
});
