import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { addApp } from '../../../src/access/apps.ts';
import { addUser } from '../../../src/access/users.ts';
import { moveSteps } from '../../../src/admin/move/move.ts';
import { resolveConfig } from '../../../src/cli/command.ts';
import { dataPaths } from '../../../src/config.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { readHistory } from '../../../src/lake/history.ts';
import { lakePaths, listTables, tablePaths } from '../../../src/lake/lake.ts';
import { readSnapshotAt } from '../../../src/lake/log/change-feed.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openJobRecords, partKey, writeHighestId } from '../../../src/reports/report-records.ts';
import {
  findDataFormat,
  parseDataFormat,
  raiseDataFormat,
  writeDataFormat,
} from '../../../src/runtime/files/data-format.ts';
import { openStore } from '../../../src/runtime/store/open-store.ts';
import { removeSegment } from '../../../src/segments/segment-store.ts';
import { addWebhook } from '../../../src/webhooks/webhook-store.ts';
import { bundleChild } from '../../helpers/bundled.ts';
import { startFakeS3, type FakeS3 } from '../../helpers/fake-s3.ts';
import { hashFiles } from '../../helpers/folder-bytes.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import { inTurn, oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { addTestSegment, loadTestTitles } from '../../helpers/lists.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import type { MoveChildSettings } from '../../helpers/move-child.ts';
import { reportJob } from '../../helpers/report-job.ts';
import { readPayments, revenueLine } from '../../helpers/revenue.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

const root = temporaryFolder();
const address = 's3://lake/moved/here';
const credentials = { accessKeyId: 'tester', secretAccessKey: 'secret' };
let child: string | undefined;

const sha256 = (bytes: string | Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** Runs a move in a process. Returns its result, or the signal that ended it. */
async function move({ endpoint }: FakeS3, settings: Omit<MoveChildSettings, 's3'>): Promise<unknown> {
  child ??= bundleChild(root, 'move-child');
  const argument: MoveChildSettings = { s3: { endpoint, pathStyle: true, credentials }, ...settings };
  const words = [child, JSON.stringify(argument)];
  return await new Promise((resolve) => {
    execFile(process.execPath, words, (error, stdout, stderr) =>
      resolve(error === null ? JSON.parse(stdout) : (error.signal ?? stderr)),
    );
  });
}

/** Lets a compactor commit everything in the stream, and seal it. */
async function takeIn(folder: string, stream: MemoryStream): Promise<void> {
  const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  await waitFor('all is committed and sealed', async () => {
    const { lake, files } = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
    return lake?.epoch?.position === (await stream.state()).lastSequence && files.every(({ young }) => !young);
  });
  await compactor.stop();
}

/** Creates a data folder with data of every kind, and the stream that its lake has followed. */
async function createScene(folder = testFolder()) {
  const data = path.join(folder, 'data');
  const paths = dataPaths(data);
  const stream = createMemoryStream();
  for (const name of ['a', 'b']) {
    stream.publish([eventLine(), eventLine({ kind: 'registration' }), revenueLine(name)]);
    stream.publishRaw(`${JSON.stringify(eventLine({ age: 'x' }))}\n`);
    await takeIn(data, stream);
  }
  await raiseDataFormat(data);
  await addApp(paths, { idApp: 1, platform: 'web', idAccount: 1 }, Date.now());
  await addWebhook(paths, { idAccount: 1, url: 'https://example.com/', createdMs: 1 });
  await addTestSegment(paths.segments, { idAccount: 1, idSegment: 5, kind: 'custom' }, ['ann', 'bea']);
  await addTestSegment(paths.segments, { idAccount: 1, idSegment: 6, kind: 'custom' }, ['carl']);
  await loadTestTitles(paths.titles, ['idCampaign,66,Winter']);
  const reports = openStore(paths.reports);
  const file = { name: '7.csv', rows: 1, bytes: 4, sha256: sha256('text') };
  for (const [id, bytes] of [
    [7, 'text'],
    [8, 'else'],
  ] as const) {
    await openJobRecords(reports).create(String(id), reportJob({ id, expiresSeconds: 2_000_000_000, files: [file] }));
    await reports.replace(partKey({ id }, file.name), Buffer.from(bytes), 'any');
  }
  await writeHighestId(reports, 9);
  mkdirSync(path.join(paths.reports, '7', 'attempt-1'));
  writeFileSync(path.join(paths.reports, '7', 'attempt-1', 'work'), '');
  mkdirSync(path.join(paths.nats, 'store', 'empty'), { recursive: true });
  writeFileSync(path.join(paths.nats, 'store', 'block'), 'messages');
  mkdirSync(paths.refusals);
  writeFileSync(path.join(paths.refusals, 'one'), '');
  return { data, paths, stream, server: await startFakeS3() };
}

let unchangedSource: ReturnType<typeof createScene> | undefined;
let movedSource: ReturnType<typeof createMoved> | undefined;

/** Returns a source that the tests share and leave as it is. Each has its own bucket. */
async function openUnchanged() {
  return { ...(await (unchangedSource ??= createScene(path.join(root, 'unchanged')))), server: await startFakeS3() };
}

/** Moves a source to a bucket, for tests that only read it there or move it on. */
async function createMoved() {
  const scene = await createScene(path.join(root, 'moved'));
  const tables = await listTables(scene.paths.lake);
  const result = await move(scene.server, { dataDir: scene.data, to: address });
  return { ...scene, tables, result };
}

/** Returns what was moved, behind a server of the test. */
async function openMoved() {
  const scene = await (movedSource ??= createMoved());
  const { asked } = scene.server;
  return { ...scene, asked, server: await startFakeS3({}, scene.server.objects) };
}

/** What a move leaves: links of sealed files, caches, work, what names its place, and the damaged report. */
const unmoved =
  /^(?:format\.json|(?:nats|refusals|spool|event-index|run|lake\/staging|lake\/catalogue\/packs|lake\/first-seen)\/.*|lake\/snapshot\.sql|lake\/\w+\/kind=.*|lake\/payments\/date=.*|reports\/\d+\/attempt-.*|reports\/8\/parts\/.*|(?:.*\/)?\.[^/]*)$/;

/** Returns the hashes of what a move takes. */
const contentsOf = (folder: string): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(hashFiles(folder)).filter(([name]) => !unmoved.test(name)));

/** The same of the bucket, under the names of a data folder. */
function objectsOf({ objects }: FakeS3, prefix = 'moved/here/'): Readonly<Record<string, string>> {
  const named = [...objects].map(([key, { bytes }]): [string, string] => {
    expect(key.startsWith(prefix)).toBe(true);
    return [key.slice(prefix.length).replace(/^state\//, ''), sha256(bytes)];
  });
  return Object.fromEntries(named.filter(([name]) => name !== 'format.json').toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

const formatOf = ({ objects }: FakeS3, prefix = 'moved/here') =>
  parseDataFormat(String(objects.get(`${prefix}/state/format.json`)?.bytes), 'format.json');

/** Lists the files of earlier versions of a table that the newest one does not have. */
async function listRemoved(tableDir: string): Promise<string[]> {
  const { version, files } = await readSnapshot(tableDir);
  const live = new Set(files.map(({ absolutePath }) => absolutePath));
  const versions = Array.from({ length: version }, (_, n) => n);
  const earlier = await Promise.all(versions.map((n) => readSnapshotAt(tableDir, { version: n, tag: undefined })));
  const all = new Set(earlier.flatMap((snapshot) => snapshot.files.map(({ absolutePath }) => absolutePath)));
  return [...all].filter((file) => !live.has(file));
}

const refusal = (message: string): object =>
  expect.objectContaining({ code: 'data_format', message: expect.stringContaining(message) as string }) as object;

const start = (folder: string) => (): unknown => resolveConfig({}, { TRIBUTARY_DATA_DIR: folder }, 'any');

/** Steps after which the source is changed, or can no longer be started. */
const decisive: readonly string[] = ['state-copied', 'source-marked'];

/** Returns the steps at which a move is killed, in their order; `make test` selects some of the others. */
function drawSteps(): string[] {
  const others = inTurn(
    moveSteps.filter((step) => !decisive.includes(step)),
    8,
  );
  return moveSteps
    .filter((step) => decisive.includes(step) || others.includes(step))
    .map((step) => (step === 'object-copied' ? 'object-copied:5' : step));
}

const targetOf = (): string => path.join(testFolder(), 'new');

describe('a move', () => {
  it('A move to a bucket and back that is killed at each step and repeated moves every object and row', async () => {
    const { data, paths, stream, server } = await createScene();
    for (const crashAt of drawSteps()) {
      expect([crashAt, await move(server, { dataDir: data, to: address, crashAt })]).toEqual([crashAt, 'SIGKILL']);
      expect(formatOf(server)).toMatchObject({ restoring: true, movedFrom: expect.stringContaining(data) as string });
      if (crashAt !== 'source-marked') start(data)();
      if (crashAt !== 'state-copied') continue;
      // The source may be used after a kill.
      await addUser(paths, { name: 'ann', idAccount: 1, canExport: true });
      await removeSegment(paths.segments, { idAccount: 1, idSegment: 6 });
      stream.publish([eventLine()]);
      await takeIn(data, stream);
    }
    expect(start(data)).toThrow(refusal(`of ${data} was moved to ${address}`));
    expect(await move(server, { dataDir: data, to: address })).toBe(null);
    const moved = contentsOf(data);
    expect(objectsOf(server)).toEqual(moved);
    expect(formatOf(server)).toMatchObject({ restoring: false, movedTo: undefined });
    expect(Object.keys(moved)).toEqual(
      expect.arrayContaining([
        'access.json',
        'lake/events/_columns.parquet',
        'lake/identity.json',
        'lake/payments/_delta_log/00000000000000000000.json',
        'lake/views.sql',
        'reports/7/job.json',
        'reports/7/parts/7.csv',
        'reports/8/job.json',
        'reports/highest-id',
        'records/segments/1/5.json',
        'titles/titles.json',
      ]),
    );
    for (const folder of ['failed', 'events/_young', 'events/_sealed'])
      expect(Object.keys(moved).some((name) => name.startsWith(`lake/${folder}/`))).toBe(true);

    const [scratch, to] = [path.join(testFolder(), 'scratch'), targetOf()];
    mkdirSync(path.join(scratch, 'nats', 'store', 'empty'), { recursive: true });
    writeFileSync(path.join(scratch, 'nats', 'store', 'block'), 'messages');
    const back = { dataDir: scratch, from: address, to };
    for (const crashAt of drawSteps()) {
      expect([crashAt, await move(server, { ...back, crashAt })]).toEqual([crashAt, 'SIGKILL']);
      expect(start(to)).toThrow(refusal(`to ${to} is unfinished`));
    }
    expect(formatOf(server)).toMatchObject({ movedTo: to });
    expect(await move(server, back)).toBe(null);
    start(to)();
    expect(contentsOf(to)).toEqual(moved);
    expect(hashFiles(path.join(to, 'nats'))).toEqual(hashFiles(path.join(scratch, 'nats')));

    expect(await readRows(to)).toEqual(await readRows(data));
    expect(await readPayments(to)).toEqual(await readPayments(data));
    const removed = await listRemoved(path.join(to, 'lake', 'events'));
    expect(removed.length).toBeGreaterThan(1);
    expect(removed.filter((file) => !existsSync(file))).toEqual([]);
    // The stream continues, and the glob has its links again.
    stream.publish([eventLine()]);
    await takeIn(to, stream);
    expect((await checkLake(path.join(to, 'lake'))).problems).toEqual([]);
    const history = await readHistory(path.join(to, 'lake'), 100);
    expect(history.filter(({ cause }) => cause === 'epoch')).toHaveLength(1);
    expect(await readRows(to)).toHaveLength(6);
  }, 600_000);

  it('A move that is not interrupted returns its figures, and writes the newest entry of the events after all others of the lake', async () => {
    const { paths, server, asked, tables, result } = await openMoved();
    const objects = Object.keys(objectsOf(server)).length;
    const files = Object.keys(objectsOf(server)).filter((name) => /\/_(young|sealed)\//.test(name)).length;
    expect(result).toEqual({ tables: 2, files, reports: 2, objects, bytes: expect.any(Number) as number });
    expect(tables).toHaveLength(2);
    const written = asked.flatMap((one) => /^PUT moved\/here\/lake\/(.*)$/.exec(one)?.[1] ?? []);
    const { version } = await readSnapshot(tablePaths(paths.lake, { table: 'events' }).table);
    expect(written.at(-1)).toBe(`events/_delta_log/${String(version).padStart(20, '0')}.json`);
  });

  it('A move to another place in a bucket that is killed at each step and repeated moves every object', async () => {
    const { server } = await openMoved();
    const [objects, to] = [objectsOf(server), 's3://lake/moved/on'];
    const onwards = { dataDir: path.join(testFolder(), 'scratch'), from: address, to };
    for (const crashAt of drawSteps()) {
      expect([crashAt, await move(server, { ...onwards, crashAt })]).toEqual([crashAt, 'SIGKILL']);
      const isMarked = crashAt === 'source-marked';
      expect(formatOf(server)).toMatchObject(isMarked ? { movedTo: to } : { movedTo: undefined, restoring: false });
      expect(formatOf(server, 'moved/on')).toMatchObject({ restoring: true });
    }
    expect(await move(server, onwards)).toBe(null);
    expect(formatOf(server, 'moved/on')).toMatchObject({ restoring: false, movedTo: undefined });
    for (const key of server.objects.keys()) if (key.startsWith('moved/here/')) server.objects.delete(key);
    expect(objectsOf(server, 'moved/on/')).toEqual(objects);
  }, 600_000);

  it('A damaged data file ends a move, and nothing is marked as moved', async () => {
    const { data, paths, server } = await openUnchanged();
    const [file] = (await readSnapshot(path.join(paths.lake, 'events'))).files;
    const whole = readFileSync(file?.absolutePath ?? '');
    writeFileSync(file?.absolutePath ?? '', Buffer.alloc(file?.sizeBytes ?? 0));
    expect(await move(server, { dataDir: data, to: address })).toMatchObject({ code: 'file_damaged' });
    rmSync(file?.absolutePath ?? '');
    const missing = { code: 'file_damaged', message: `${file?.absolutePath} is missing` };
    expect(await move(server, { dataDir: data, to: address })).toEqual(missing);
    writeFileSync(file?.absolutePath ?? '', whole);
    start(data)();
    expect(formatOf(server).restoring).toBe(true);
  });

  it('A move to a place with other data, with the unfinished move of another source, or from which data was moved is refused', async () => {
    const { data, server } = await createScene();
    const other = await openUnchanged();
    const etag = '"1"';
    server.objects.set('moved/here/reports/1/job.json', { bytes: Buffer.from('{}'), etag, metadata: {} });
    const taken = { code: 'conflict', message: `${address} has data already` };
    expect(await move(server, { dataDir: data, to: address })).toEqual(taken);
    expect(server.objects.size).toBe(1);
    server.objects.clear();

    expect(await move(server, { dataDir: data, to: address, crashAt: 'files-copied' })).toBe('SIGKILL');
    expect(await move(server, { dataDir: other.data, to: address })).toMatchObject({
      code: 'conflict',
      message: expect.stringContaining(`${address} has an unfinished move of ${data} (lake `) as string,
    });
    await move(server, { dataDir: data, to: address });
    expect(await move(server, { dataDir: other.data, to: address })).toEqual(taken);
    expect(await move(server, { dataDir: data, to: 's3://lake/another' })).toEqual({
      code: 'data_format',
      message: `the data of ${data} was moved to ${address}`,
    });

    const scratch = path.join(testFolder(), 'scratch');
    const folder = { code: 'conflict', message: `the data of ${data} was moved to ${address}` };
    expect(await move(server, { dataDir: scratch, from: address, to: data })).toEqual(folder);
    const restored = targetOf();
    mkdirSync(restored);
    await writeDataFormat(restored, { format: 1, restoring: true });
    const restore = { code: 'conflict', message: `${restored} has an unfinished restore` };
    expect(await move(server, { dataDir: scratch, from: address, to: restored })).toEqual(restore);
    await move(server, { dataDir: scratch, from: address, to: targetOf() });
    const away = { code: 'conflict', message: expect.stringContaining(`${address} was moved to /`) as string };
    expect(await move(server, { dataDir: other.data, to: address })).toEqual(away);
    expect(findDataFormat(other.data)?.movedTo).toBeUndefined();
  });

  it('A move that another one has taken over ends without marking its source', async () => {
    const { data, server } = await openUnchanged();
    let second: Promise<unknown> | undefined;
    server.faultOf = ({ method, url }) => {
      const isOfState = method === 'PUT' && url.includes('/state/') && !url.includes('format.json');
      if (isOfState) second ??= move(server, { dataDir: data, to: address, crashAt: 'target-marked' });
      return isOfState ? { isDone: true, answer: 'late', delayMs: 3000 } : undefined;
    };
    const message = `another move to ${address} has begun`;
    expect(await move(server, { dataDir: data, to: address })).toEqual({ code: 'conflict', message });
    expect(await second).toBe('SIGKILL');
    start(data)();
  });
});
