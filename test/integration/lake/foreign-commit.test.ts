import { copyFile, readdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { checkLake } from '../../../src/lake/check.ts';
import { checkpointWhenDue, trimLog } from '../../../src/lake/cleanup.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { ensureLake, lakePaths, openLake } from '../../../src/lake/lake.ts';
import { commitName, listLog, logFolder, readCommit } from '../../../src/lake/log/log-files.ts';
import { repairLake, type LakeRepair } from '../../../src/lake/repair/repair-lake.ts';
import { repairSteps } from '../../../src/lake/repair/repair-log.ts';
import { rewriteFiles } from '../../../src/lake/files/rewrite.ts';
import { loadTableState, readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { commitSteps, openTable } from '../../../src/lake/log/table.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import {
  columnMappingActions,
  deletionVectorActions,
  leaveChecksums,
  openForeignEngine,
  type ForeignEngine,
} from '../../helpers/foreign-engine.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inTurn, oneTestIn } from '../../helpers/in-turn.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, query, readRows, startTestCompact } from '../../helpers/lake.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

/** Foreign commits without changes are skipped. All others wait for `tributary lake repair`. */

const clock = createClock(0);
const options = { clock, crashPoint: noCrashPoint, retentionMs: 86_400_000 };

async function repair(folder: string, acceptsLoss = false, crashPoint: CrashPoint = noCrashPoint): Promise<LakeRepair> {
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  try {
    return await repairLake({ lakeDir: path.join(folder, 'lake'), duckdb, clock, crashPoint }, acceptsLoss);
  } finally {
    duckdb.close();
  }
}

/** Creates a lake with a sealed and a young file, and starts a compactor. */
async function startLake() {
  const folder = testFolder();
  const stream = createMemoryStream();
  const { table } = lakePaths(path.join(folder, 'lake'));
  const ids: string[] = [];
  const publish = (members = {}): void => {
    const line = eventLine(members);
    ids.push(String(line['event_id']));
    stream.publish([line]);
  };
  const stored = async (): Promise<void> =>
    waitFor('all is stored', async () => (await readSnapshot(table)).lake?.totals.stored === ids.length);
  const sealer = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  for (const age of [1, 2, 3]) publish({ age });
  await stored();
  await waitFor('sealed', async () => (await readSnapshot(table)).files.every((file) => !file.young));
  await sealer.stop();
  const compactor = await startTestCompact(folder, stream);
  publish({ age: 4 });
  await stored();
  const expectAll = async (): Promise<void> => {
    await stored();
    expect((await readRows(folder, 'event_id')).map((row) => row['event_id'])).toEqual(ids.toSorted());
  };
  return {
    folder,
    lakeDir: path.join(folder, 'lake'),
    table,
    stream,
    compact: compactor,
    publish,
    expectAll,
    ids,
    engine: openForeignEngine(table),
  };
}

test('A new table excludes writers of other engines and admits readers, and one commit upgrades an older table', async () => {
  const lakeDir = path.join(testFolder(), 'lake');
  await ensureLake(lakeDir, options);
  const { table } = lakePaths(lakeDir);
  const protocol = { minReaderVersion: 1, minWriterVersion: 7, writerFeatures: ['tributary-writer'] };
  expect((await loadTableState(table)).protocol).toEqual(protocol);
  const writer = await openTable(table, options);
  await writer.commit(() => ({
    cause: 'protocol',
    actions: [{ protocol: { minReaderVersion: 1, minWriterVersion: 2 } }],
  }));
  const raised = await openLake(lakeDir, options);
  expect([raised.state().version, raised.state().protocol]).toEqual([2, protocol]);
  expect((await openLake(lakeDir, options)).state().version).toBe(2);
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  await checkpointWhenDue(duckdb, raised, noCrashPoint, 1);
  duckdb.close();
  await rm(path.join(logFolder(table), commitName(0)));
  expect((await loadTableState(table)).protocol).toMatchObject(protocol);
});

test('A commit that changes nothing is skipped: flushes, totals, the chain of the log, a checkpoint and its trimming continue', async () => {
  const { folder, lakeDir, table, compact, publish, expectAll, engine } = await startLake();
  await engine.vacuum();
  publish();
  await expectAll();
  await engine.vacuum();
  await compact.stop();
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  const writer = await openTable(table, options);
  const { totals, epoch } = writer.lake();
  await checkpointWhenDue(duckdb, writer, noCrashPoint, 1);
  duckdb.close();
  const newest = writer.state().version;
  expect((await listLog(table)).checkpoints.at(-1)).toBe(newest);
  await trimLog(writer, lakePaths(lakeDir).failed, {
    nowMs: Date.now() + 10,
    retentionMs: 0,
    crashPoint: noCrashPoint,
  });
  // The checkpoint of a foreign version would have no provenance.
  expect(await readSnapshot(table)).toMatchObject({ version: newest, foreign: undefined, lake: { totals, epoch } });
  expect((await checkLake(lakeDir)).problems).toEqual([]);
  expect(compact.facts()['problems']).toEqual([]);
  expect(await repair(folder)).toMatchObject({ repaired: false, version: newest });
});

interface Change {
  readonly make: (engine: ForeignEngine, table: string) => Promise<unknown>;
  /** Returns the expected result of a repair. */
  readonly repaired: (files: number, rows: number) => object;
  /** Number of files that stay in quarantine. */
  readonly aside?: number;
}

const changes: Readonly<Record<string, Change>> = {
  append: {
    make: (engine) => engine.append("SELECT 'x1' AS event_id, 'login' AS kind"),
    repaired: () => ({
      filesRestored: 0,
      filesTakenOut: [{ rows: 1, to: expect.stringMatching(/^quarantine\/foreign-\d+-part-/) as string }],
    }),
    aside: 1,
  },
  delete: {
    make: (engine) => engine.rewrite('DELETE', true, 'age > 1'),
    repaired: (filesRestored, rowsRestored) => ({ filesRestored, rowsRestored }),
  },
  update: {
    make: (engine) => engine.rewrite('UPDATE', true),
    repaired: (filesRestored, rowsRestored) => ({ filesRestored, rowsRestored }),
  },
  optimize: {
    make: (engine) => engine.rewrite('OPTIMIZE', false),
    repaired: (filesRestored, rowsRestored) => ({
      filesRestored,
      rowsRestored,
      filesTakenOut: [{ rows: rowsRestored }],
    }),
  },
  'overwrite with other columns': {
    make: async (engine, table) => {
      const { metaData } = await loadTableState(table);
      await engine.rewrite('DELETE', true, 'false');
      return engine.commit('WRITE', [
        {
          metaData: {
            ...metaData,
            schemaString:
              '{"type":"struct","fields":[{"name":"event_id","type":"string","nullable":true,"metadata":{}}]}',
          },
        },
      ]);
    },
    repaired: (filesRestored) => ({
      filesRestored,
      columnsRestored: true,
      undone: [{ operation: 'DELETE' }, { operation: 'WRITE' }],
    }),
  },
  'lower protocol': {
    make: (engine) => engine.commit('RESTORE', [{ protocol: { minReaderVersion: 1, minWriterVersion: 2 } }]),
    repaired: () => ({ protocolRestored: true }),
  },
  'deletion vectors': {
    make: async (engine, table) => engine.commit('DELETE', deletionVectorActions(await loadTableState(table))),
    repaired: () => ({ protocolRestored: true, columnsRestored: true, filesRestored: 1 }),
  },
  'column mapping': {
    make: async (engine, table) => engine.commit('RENAME COLUMN', columnMappingActions(await loadTableState(table))),
    repaired: () => ({ protocolRestored: true, columnsRestored: true, filesRestored: 0 }),
  },
  'position of the stream': {
    make: async (engine, table) =>
      engine.commit('STREAMING UPDATE', [
        { txn: { appId: [...(await loadTableState(table)).txns.keys()][0], version: 999 } },
      ]),
    repaired: () => ({ filesRestored: 0 }),
  },
};

test('Any foreign change stops the flushes with one problem, and a repair reverts it by a new commit', async () => {
  const { folder, lakeDir, table, compact, publish, expectAll, engine, stream } = await startLake();
  let aside = 0;
  for (const [name, change] of inTurn(Object.entries(changes), 4)) {
    const { version, files } = await readSnapshot(table);
    const rows = (await readRows(folder)).length;
    await change.make(engine, table);
    const newest = (await listLog(table)).commits.at(-1) ?? 0;
    publish();
    await waitFor('the problem is reported', () => (compact.facts()['problems'] as unknown[]).length > 0);
    const problem = {
      code: 'foreign_commit',
      message: expect.stringContaining(
        `(delta-rs:py-1.6.6) has changed the lake's table: version ${version + 1}, `,
      ) as string,
      action: expect.stringContaining("'tributary lake repair'") as string,
    };
    expect(compact.facts()['problems'], name).toEqual([problem]);
    // Acknowledged events wait in the stream, and readers keep the previous version.
    expect(stream.sequences.length, name).toBeGreaterThan(1);
    expect(await readSnapshot(table), name).toMatchObject({ version, files, foreign: { version: version + 1 } });

    expect(await repair(folder), name).toMatchObject({
      repaired: true,
      missing: [],
      lost: [],
      foreign: change.repaired(files.length, rows),
    });
    await expectAll();
    await waitFor('the problem is resolved', () => (compact.facts()['problems'] as unknown[]).length === 0);
    expect((await readCommit(table, newest)).actions[0]?.commitInfo?.engineInfo, name).toBe('delta-rs:py-1.6.6');
    aside += change.aside ?? 0;
  }
  await compact.stop();
  expect((await checkLake(lakeDir)).problems.map((found) => `${found.problem} ${path.dirname(found.path)}`)).toEqual(
    Array.from({ length: aside }, () => 'unreferenced_file quarantine'),
  );
  expect((await repair(folder)).repaired).toBe(false);
});

test('A compactor that starts on a table changed by another engine waits for the repair, in the same process', async () => {
  const { folder, lakeDir, table, compact, publish, expectAll, engine, stream } = await startLake();
  await compact.stop();
  await engine.rewrite('OPTIMIZE', false);
  expect((await checkLake(lakeDir)).problems.map(({ problem }) => problem)).toEqual(['foreign_commit']);
  publish();
  // It can also be stopped while it waits.
  await (await startTestCompact(folder, stream)).stop();
  const waiting = await startTestCompact(folder, stream);
  expect(waiting.facts()).toMatchObject({
    problems: [
      {
        code: 'foreign_commit',
        message: expect.stringContaining('OPTIMIZE') as string,
        action: expect.stringContaining('lake repair') as string,
      },
    ],
  });
  expect((await readSnapshot(table)).files.length).toBe(2);
  await repair(folder);
  await expectAll();
  expect(waiting.facts()).toMatchObject({ problems: [] });
  await waiting.stop();
});

test('A repair that is killed at any step is completed by the next one', async () => {
  const { folder, table, compact, expectAll, engine, lakeDir } = await startLake();
  await compact.stop();
  for (const step of [...repairSteps, ...commitSteps]) {
    await engine.commit('DELETE', deletionVectorActions(await loadTableState(table)));
    await engine.rewrite('OPTIMIZE', false);
    await expect(
      repair(folder, false, (at) => (at === step ? Promise.reject(new Error('killed')) : Promise.resolve())),
    ).rejects.toThrow('killed');
    await repair(folder);
    await expectAll();
    expect((await readSnapshot(table)).foreign).toBeUndefined();
    for (const name of (await readdir(logFolder(table))).filter((entry) => entry.endsWith('.tmp')))
      await rm(path.join(logFolder(table), name));
    expect((await checkLake(lakeDir)).problems.filter(({ path: at }) => !at.startsWith('quarantine'))).toEqual([]);
  }
});

test('Rows of files that another engine has removed are restored from its copies', async () => {
  const { folder, lakeDir, table, compact, publish, expectAll, engine } = await startLake();
  const { files } = await readSnapshot(table);
  await engine.rewrite('OPTIMIZE', false);
  await engine.vacuum();
  for (const { absolutePath, publishedPath } of files) {
    await rm(absolutePath);
    if (publishedPath !== undefined) await rm(path.join(table, publishedPath));
  }
  publish();
  expect(await repair(folder)).toMatchObject({ repaired: true, rowsRecovered: 4, missing: [], lost: [] });
  await expectAll();
  await compact.stop();
  expect((await checkLake(lakeDir)).problems).toEqual([]);
});

test('Rows of a missing, waiting rewrite are recovered as a rewrite, so that the glob never has them twice', async () => {
  const { folder, lakeDir, table, compact, stream, expectAll, engine } = await startLake();
  const [sealed] = (await readSnapshot(table)).files.filter((file) => !file.young);
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  const work = { table: await openTable(table, options), stagingDir: lakePaths(lakeDir).staging, duckdb, clock };
  const rewrites = work.table
    .snapshot()
    .files.filter((file) => !file.young)
    .map((file) => ({ file, rowsLeftOut: 0, toQuery: (rows: string) => `FROM ${rows} ORDER BY age DESC` }));
  await rewriteFiles({ ...work, crashPoint: noCrashPoint }, rewrites, { cause: 'restamp' });
  duckdb.close();
  const { files } = await readSnapshot(table);
  await compact.stop();
  await engine.rewrite('OPTIMIZE', false);
  for (const file of files) await rm(file.absolutePath);
  expect(await repair(folder)).toMatchObject({ repaired: true, rowsRecovered: 4, missing: [], lost: [] });
  const sealer = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  await waitFor('sealed', async () => (await readSnapshot(table)).files.every((file) => !file.young));
  await sealer.stop();
  await expectAll();
  expect(
    (await readSnapshot(table)).files.flatMap((file) => (file.sinceMs === undefined ? [] : [file.publishedPath])),
  ).toEqual([sealed?.publishedPath]);
  const inGlob = await query(
    `SELECT age FROM read_parquet('${table}/kind=*/date=*/*.parquet', hive_partitioning = false) ORDER BY age`,
  );
  expect(inGlob.map((row) => Number(row['age']))).toEqual([1, 2, 3, 4]);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
});

test('Permanently lost rows are counted, and removed only when the operator accepts the loss', async () => {
  const { folder, lakeDir, table, compact, publish, engine } = await startLake();
  const { files } = await readSnapshot(table);
  const sealed = files.find((file) => !file.young);
  await engine.rewrite('DELETE', true, 'age > 2');
  await rm(sealed?.absolutePath ?? '');
  await rm(path.join(table, sealed?.publishedPath ?? ''));
  const date = new Date().toISOString().slice(0, 10);
  expect(await repair(folder)).toMatchObject({
    repaired: true,
    rowsRecovered: 0,
    missing: [{ path: sealed?.path, rows: 3, kind: 'login', dates: [date] }],
    lost: [],
  });
  expect((await checkLake(lakeDir)).problems.map(({ problem }) => problem)).toContain('missing_file');
  publish();
  await waitFor('flushes continue', async () => (await readSnapshot(table)).lake?.totals.stored === 5);

  expect(await repair(folder, true)).toMatchObject({ repaired: true, rowsRecovered: 1, missing: [], lost: [] });
  expect((await readSnapshot(table)).lake?.totals).toMatchObject({ streamed: 5, stored: 3, erased: 2 });
  expect((await readRows(folder, 'event_id, age')).map((row) => row['age'])).toEqual([3, 4, null]);
  await compact.stop();
  expect((await checkLake(lakeDir)).problems).toEqual([]);
});

test('A repair removes leftovers of other engines for which Spark would refuse the table', async () => {
  const { folder, lakeDir, table, compact } = await startLake();
  await compact.stop();
  const left = await leaveChecksums(table);
  await writeFile(path.join(lakePaths(lakeDir).table, 'notes.txt'), 'not theirs');
  // A rejected write has left a copy of the rows.
  const [file] = (await readSnapshot(table)).files;
  await copyFile(file?.absolutePath ?? '', path.join(table, 'part-00000-a235df2e-c000.snappy.parquet'));
  expect(await repair(folder)).toMatchObject({ repaired: true, leftovers: left, filesUnnamed: 1 });
  expect((await checkLake(lakeDir)).problems).toEqual([]);
  expect((await readdir(table, { recursive: true })).filter((name) => left.includes(name))).toEqual([]);
  expect(await readdir(table)).toContain('notes.txt');
  expect((await repair(folder)).repaired).toBe(false);
});
