import { execFileSync } from 'node:child_process';
import { readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { lakePaths } from '../../../src/lake/lake.ts';
import { listLog, logFolder } from '../../../src/lake/log/log-files.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

/**
 * Address of chdb: ClickHouse as a module, with delta-kernel inside. No dependency (half a gigabyte); `TEST_CHDB` may
 * name its folder.
 */
function findChdb(): string | undefined {
  const folder = process.env['TEST_CHDB'];
  try {
    return folder === undefined ? import.meta.resolve('chdb') : pathToFileURL(path.join(folder, 'index.mjs')).href;
  } catch {
    return undefined;
  }
}

const chdb = findChdb();
if (chdb === undefined)
  process.stderr.write('skipped: no chdb here (npm install --no-save chdb, or TEST_CHDB=its folder)\n');

/** Runs one query in a separate process: ClickHouse reads only below the folder it runs in. */
function askClickHouse(folder: string, sql: string): unknown[] {
  const script = `const { query } = await import(${JSON.stringify(chdb)}); process.stdout.write(query(process.argv[1], 'JSONCompact'));`;
  const answer = execFileSync(process.execPath, ['--input-type=module', '-e', script, sql], {
    cwd: folder,
    encoding: 'utf8',
  });
  return (JSON.parse(answer) as { data: unknown[][] }).data[0] ?? [];
}

test.skipIf(chdb === undefined)(
  'ClickHouse reads the same rows from the log and its checkpoint, also of older versions',
  async () => {
    const folder = testFolder();
    const { table } = lakePaths(path.join(folder, 'lake'));
    const stream = createMemoryStream();
    const ask = (select: string, version?: number): unknown[] => {
      const settings = version === undefined ? '' : ` SETTINGS delta_lake_snapshot_version = ${version}`;
      return askClickHouse(folder, `SELECT ${select} FROM deltaLakeLocal('${table}')${settings}`);
    };
    const compactor = await startTestCompact(folder, stream, { sealAgeMs: 300, checkpointEvery: 4 });
    const params = { 'a"b': "c'd", nul: 'x\u0000y' };
    const counts = new Map<number, number>();
    for (let round = 1; round <= 6; round += 1) {
      stream.publish([
        eventLine({ age: round }),
        eventLine({
          kind: 'custom_event',
          custom_event_name: 'n',
          custom_event_params: params,
          hwid: '18446744073709551615',
          event_time: 1_700_000_000,
        }),
      ]);
      await waitFor('flushed', async () => (await readSnapshot(table)).lake?.totals.stored === round * 2);
      const { version } = await readSnapshot(table);
      counts.set(version, round * 2);
    }
    await waitFor('sealed', async () => (await readSnapshot(table)).files.every((file) => !file.young));
    await compactor.stop();

    const select =
      "count(), uniqExact(event_id), countIf(kind = 'login'), sum(age), max(toString(hwid)), min(toUnixTimestamp(event_time))";
    const expected = ['12', '12', '6', '21', '18446744073709551615', 1_700_000_000];
    expect(ask(select).map(String)).toEqual(expected.map(String));
    expect(ask("groupUniqArray(custom_event_params['a\"b'])")).toEqual([expect.arrayContaining(["c'd"])]);
    const [version = 0, count] = [...counts.entries()][2] ?? [];
    expect(ask('count()', version)).toEqual([count]);

    const { checkpoints } = await listLog(table);
    const newest = checkpoints.at(-1) ?? 0;
    expect(newest).toBeGreaterThan(0);
    for (const name of await readdir(logFolder(table))) {
      if (/^\d{20}\./.test(name) && Number(name.slice(0, 20)) < newest) await rm(path.join(logFolder(table), name));
    }
    expect(ask(select).map(String)).toEqual(expected.map(String));
    expect((await readRows(folder)).length).toBe(12);
  },
);
