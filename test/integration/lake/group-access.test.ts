import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { readAuditDays } from '../../../src/audit/audit-log.ts';
import { restoreCommand } from '../../../src/cli/restore.ts';
import { dataPaths } from '../../../src/config.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import {
  closeToGroup,
  followGroupAccess,
  openToGroup,
  resolveLakeGroup,
} from '../../../src/runtime/files/group-access.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { backUp } from '../../helpers/backup.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

beforeEach(oneTestIn(2));

const isRoot = process.geteuid?.() === 0;

/** Name and number of a group that this process may give files to, not its own if possible. */
function findOtherGroup(): { name: string; groupId: number } {
  const groups = readFileSync('/etc/group', 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .map(([name = '', , number]) => ({ name, groupId: Number(number) }));
  const other = groups.find(
    ({ groupId }) =>
      groupId > 0 && groupId !== process.getegid?.() && (isRoot || process.getgroups?.().includes(groupId)),
  );
  return other ?? { name: String(process.getegid?.()), groupId: process.getegid?.() ?? 0 };
}

const { name: group, groupId } = findOtherGroup();
/** A user who owns nothing here and is in no other group. */
const stranger = 54_321;

function walk(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(folder, entry.name);
    return entry.isDirectory() ? [name, ...walk(name)] : [name];
  });
}

/**
 * Reports whether a command succeeds for a member of a group; `otherwise` if this cannot be tested.
 */
function worksFor(gid: number, words: readonly [string, ...string[]], otherwise: boolean): boolean {
  const [program, ...rest] = words;
  return isRoot ? spawnSync(program, rest, { uid: stranger, gid, stdio: 'ignore' }).status === 0 : otherwise;
}

function hasGroupBit(name: string, bit: number): boolean {
  const { gid, mode } = lstatSync(name);
  return gid === groupId && (mode & bit) !== 0;
}

/**
 * Lists the files below a folder that a member of the group can read, by a test as root, else by the modes.
 */
function readableFiles(folder: string): string[] {
  const files = walk(folder).filter((name) => lstatSync(name).isFile());
  const canReach = (name: string): boolean =>
    name === path.dirname(folder) || (hasGroupBit(name, 0o010) && canReach(path.dirname(name)));
  return files
    .filter((file) => worksFor(groupId, ['cat', file], hasGroupBit(file, 0o040) && canReach(path.dirname(file))))
    .map((file) => path.relative(folder, file));
}

/** Files for readers next to the table, which the compactor writes on demand. */
const besideTable = ['lake/snapshot.sql', 'lake/views.sql', 'lake/watermark.json'];

/** Lists the files of the table and next to it, relative to the data folder. */
function tableFiles(data: string): string[] {
  return walk(lakePaths(path.join(data, 'lake')).table)
    .filter((name) => lstatSync(name).isFile() && path.basename(name) !== '.lock')
    .map((file) => path.relative(data, file))
    .concat(besideTable.filter((file) => existsSync(path.join(data, file))));
}

async function addEvents(data: string, stream: MemoryStream, sealAgeMs: number): Promise<void> {
  const { table } = lakePaths(path.join(data, 'lake'));
  const before = await readSnapshot(table);
  const compactor = await startTestCompact(data, stream, { sealAgeMs, checkpointEvery: 2 });
  stream.publish([eventLine(), eventLine({ kind: 'registration' })]);
  await waitFor('stored', async () => {
    const { files, lake } = await readSnapshot(table);
    return (
      lake?.totals.stored === (before.lake?.totals.stored ?? 0) + 2 &&
      files.every((file) => !file.young || sealAgeMs > 1000)
    );
  });
  await compactor.stop();
}

/**
 * Creates a data folder with young, sealed and quarantined files, failed events, keys and access data.
 */
async function newDataFolder(): Promise<{ data: string; lake: string; stream: MemoryStream }> {
  const umask = process.umask(0o077);
  onTestFinished(() => void process.umask(umask));
  const parent = testFolder();
  chmodSync(parent, 0o711);
  const data = path.join(parent, 'data');
  mkdirSync(data, { mode: 0o700 });
  const stream = createMemoryStream();
  await addEvents(data, stream, 10);
  await addEvents(data, stream, 3_600_000);
  const lake = path.join(data, 'lake');
  for (const folder of ['keys', 'nats', 'reports', 'lake/quarantine']) {
    mkdirSync(path.join(data, folder), { mode: 0o700 });
    writeFileSync(path.join(data, folder, 'secret'), 'x');
  }
  writeFileSync(path.join(lake, 'failed', 'a.ndjson'), '');
  writeFileSync(path.join(data, 'access.json'), 'x');
  return { data, lake, stream };
}

test('A group reads the tables and snapshot.sql, existing and future ones, and nothing else of the data folder', async () => {
  const { data, lake, stream } = await newDataFolder();
  expect(readableFiles(data)).toEqual([]);
  await openToGroup(data, lake, groupId);
  expect(readableFiles(data).toSorted()).toEqual(tableFiles(data).toSorted());
  const before = new Set(tableFiles(data));
  // A command of another shell, and a restarted compactor.
  await addEvents(data, stream, 10);
  await addEvents(data, stream, 3_600_000);
  expect(tableFiles(data).filter((file) => !before.has(file)).length).toBeGreaterThan(5);
  expect(readableFiles(data).toSorted()).toEqual(tableFiles(data).toSorted());
  // A user that could list these could lock them.
  for (const folder of [data, lake]) expect([folder, lstatSync(folder).mode & 0o077]).toEqual([folder, 0o010]);
  expect(worksFor(groupId, ['ls', lake], false)).toBe(false);
  expect(worksFor(stranger, ['cat', path.join(data, tableFiles(data)[0] ?? '')], false)).toBe(false);
});

test('A lake that is already open to the group is not processed again, and an interrupted or closed one is', async () => {
  const { data, lake, stream } = await newDataFolder();
  const { table } = lakePaths(lake);
  await openToGroup(data, lake, groupId);
  const [file = ''] = tableFiles(data);
  chmodSync(path.join(data, file), 0o600);
  await openToGroup(data, lake, groupId);
  expect(readableFiles(data)).not.toContain(file);
  // A killed start leaves this: the folder gets its mode last.
  chmodSync(table, 0o2700);
  await openToGroup(data, lake, groupId);
  expect(readableFiles(data)).toContain(file);

  expect(await closeToGroup(data, lake)).toBe(true);
  expect(await closeToGroup(data, lake)).toBe(false);
  expect(readableFiles(data)).toEqual([]);
  expect([data, lake].map((folder) => lstatSync(folder).mode & 0o077)).toEqual([0, 0]);
  await followGroupAccess(lake);
  const before = new Set(walk(lake));
  await addEvents(data, stream, 10);
  const later = walk(lake).filter((name) => !before.has(name));
  expect(later.length).toBeGreaterThan(3);
  expect(later.filter((name) => (lstatSync(name).mode & 0o077) !== 0)).toEqual([]);
  await openToGroup(data, lake, groupId);
  expect(readableFiles(data).toSorted()).toEqual(tableFiles(data).toSorted());
});

test('Before its service starts, a restored lake is readable by the group and by snapshot.sql, and without the setting by its owner only', async () => {
  const { data, stream } = await newDataFolder();
  const [dir, closed, open] = ['backup', 'closed', 'open'].map((name) => path.join(path.dirname(data), name)) as [
    string,
    string,
    string,
  ];
  await backUp(data, dir, stream);
  const { signal } = new AbortController();
  const said: unknown[] = [];
  const say = (words: unknown): void => void said.push(words);
  const restore = async (folder: string, environment: Record<string, string>): Promise<void> => {
    await runCommandHere(restoreCommand, [dir, '--data', folder], {
      environment: { ...environment, TRIBUTARY_LOG_LEVEL: 'silent' },
      entry: '',
      printResult: say,
      print: say,
      printMessage: say,
      stop: signal,
      force: signal,
    });
  };
  await restore(closed, {});
  const audited = [];
  for await (const { entries } of readAuditDays(dataPaths(closed).audit)) audited.push(...entries);
  expect(audited).toMatchObject([{ action: 'restore', outcome: 'ok', subject: 'data folder' }]);
  expect(readableFiles(closed)).toEqual([]);
  await restore(open, { TRIBUTARY_LAKE_GROUP: group });
  expect(readableFiles(open).toSorted()).toEqual(tableFiles(open).toSorted());
  rmSync(data, { recursive: true });
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  for (const folder of [closed, open]) {
    await duckdb.run(readFileSync(path.join(folder, 'lake', 'snapshot.sql'), 'utf8'));
    expect(await duckdb.rows('SELECT count(*)::INTEGER AS n FROM events')).toEqual([{ n: 4 }]);
  }
  await expect(
    restore(path.join(path.dirname(data), 'other'), { TRIBUTARY_LAKE_GROUP: 'no-such-group' }),
  ).rejects.toMatchObject({ code: 'config_invalid' });
  expect(readdirSync(path.dirname(data)).toSorted()).toEqual(['backup', 'closed', 'open']);
});

test('A group that does not exist, or that the process is not in, is rejected in one sentence', async () => {
  await expect(resolveLakeGroup('no-such-group')).rejects.toMatchObject({
    code: 'config_invalid',
    message: "TRIBUTARY_LAKE_GROUP: the group 'no-such-group' does not exist",
  });
  expect([await resolveLakeGroup(group), await resolveLakeGroup(String(groupId))]).toEqual([groupId, groupId]);
  const foreign = readFileSync('/etc/group', 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .find(
      ([, , number]) => number !== undefined && number !== '0' && !process.getgroups?.().includes(Number(number)),
    )?.[0];
  if (foreign === undefined) return;
  if (isRoot) {
    process.seteuid?.(stranger);
    onTestFinished(() => process.seteuid?.(0));
  }
  await expect(resolveLakeGroup(foreign)).rejects.toMatchObject({
    code: 'config_invalid',
    message: `TRIBUTARY_LAKE_GROUP: this process is not a member of the group '${foreign}'`,
  });
});
