import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { addApp } from '../../../src/access/apps.ts';
import { addUser } from '../../../src/access/users.ts';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import { rotateSessionKey } from '../../../src/access/session-key.ts';
import { dataPaths } from '../../../src/config.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { listFailedFilesAt } from '../../../src/lake/files/failed-events.ts';
import { readHistory } from '../../../src/lake/history.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { findManifest, manifestPath } from '../../../src/admin/backup/backup-manifest.ts';
import { findSegment } from '../../../src/segments/segment-store.ts';
import { findTitles } from '../../../src/titles/title-store.ts';
import { assertDataFormat, findDataFormat, writeDataFormat } from '../../../src/runtime/files/data-format.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { parseChecksummed, renderChecksummed } from '../../../src/runtime/files/checksummed-json.ts';
import type { StreamReader } from '../../../src/stream/stream.ts';
import { backUp, expectEvents, restore } from '../../helpers/backup.ts';
import { filesNaming, hashFiles, listFiles } from '../../helpers/folder-bytes.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { addTestSegment, loadTestTitles } from '../../helpers/lists.ts';
import { eventLine, query, readRows, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { mountSmallDisk } from '../../helpers/small-disk.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

const clock = createClock(0);

interface Scene {
  readonly data: string;
  readonly dir: string;
  readonly root: string;
  readonly stream: MemoryStream;
  /** Ids of the published events. */
  readonly ids: string[];
  /** Publishes messages of two events each. */
  readonly publish: (messages: number, members?: Readonly<Record<string, unknown>>) => void;
}

function createScene(): Scene {
  const root = testFolder();
  const stream = createMemoryStream();
  const ids: string[] = [];
  return {
    root,
    data: path.join(root, 'data'),
    dir: path.join(root, 'backup'),
    stream,
    ids,
    publish(messages, members = {}) {
      for (let n = 0; n < messages; n += 1) {
        const lines = [eventLine(members), eventLine({ kind: 'registration', ...members })];
        stream.publish(lines);
        ids.push(...lines.map((line) => String(line['event_id'])));
      }
    },
  };
}

async function countTotals(folder: string): Promise<{ stored: number; failed: number; erased: number } | undefined> {
  return (await readSnapshot(lakePaths(path.join(folder, 'lake')).table)).lake?.totals;
}

/** Lets a compactor commit everything in the stream. */
async function takeIn(
  { data, stream }: Scene,
  options: Parameters<typeof startTestCompact>[2] = {},
  until: (files: readonly { young: boolean }[]) => boolean = () => true,
): Promise<void> {
  const compactor = await startTestCompact(data, stream, options);
  await waitFor('all is committed', async () => {
    const { lake, files } = await readSnapshot(lakePaths(path.join(data, 'lake')).table);
    return (
      lake?.epoch?.position === (await stream.state()).lastSequence && stream.sequences.length <= 1 && until(files)
    );
  });
  await compactor.stop();
}

/** Returns the code and the message of an error. */
async function refusal(promise: Promise<unknown>): Promise<{ code: unknown; message: string }> {
  return promise.then(
    () => ({ code: undefined, message: 'not refused' }),
    (error: Error & { code?: unknown }) => ({ code: error.code, message: error.message }),
  );
}

function because(code: string, message: string): object {
  return { code, message: expect.stringContaining(message) as string };
}

/** Lists the records and data files below a folder, with their hashes. */
const filesOf = (folder: string) =>
  Object.entries(hashFiles(folder)).filter(([name]) => /\.(json|parquet)$/.test(name));

describe('a backup', () => {
  it('A backup has the segments and titles, and leaves out one whose file is damaged', async () => {
    const scene = createScene();
    const { data, dir, root, stream, publish } = scene;
    publish(1);
    await takeIn(scene);
    const { segments, titles } = dataPaths(data);
    await addTestSegment(segments, { idAccount: 1, idSegment: 5, kind: 'custom' }, ['ann', 'bea']);
    await addTestSegment(segments, { idAccount: 2, idSegment: 5, kind: 'device' }, ['d']);
    await loadTestTitles(titles, ['idCampaign,66,Winter']);
    await backUp(data, dir, stream);
    const copy = path.join(root, 'copy');
    await restore(dir, copy);
    for (const name of ['segments', 'titles']) {
      expect(filesOf(path.join(data, name)).length).toBeGreaterThan(1);
      expect(filesOf(path.join(copy, name))).toEqual(filesOf(path.join(data, name)));
    }
    const restored = await findSegment(dataPaths(copy).segments, { idAccount: 2, idSegment: 5 });
    expect(restored).toMatchObject({ kind: 'device', ids: 1 });
    expect((await findTitles(dataPaths(copy).titles))?.counts).toEqual({ idCampaign: 1 });

    // A file that no earlier run has copied, damaged before the next one.
    await addTestSegment(segments, { idAccount: 1, idSegment: 5, kind: 'custom' }, ['new']);
    writeFileSync((await findSegment(segments, { idAccount: 1, idSegment: 5 }))?.absolutePath ?? '', 'damaged');
    await backUp(data, dir, stream);
    const second = path.join(root, 'second');
    await restore(dir, second);
    expect(listFiles(path.join(second, 'segments', '1'))).toEqual(['5.json']);
    expect(filesOf(path.join(second, 'titles'))).toEqual(filesOf(path.join(data, 'titles')));
  });

  it('A backup has the events of the lake and those that still wait in the stream, restored once each, and a restore does not change the original', async () => {
    const scene = createScene();
    const { data, dir, root, stream, ids, publish } = scene;
    publish(3);
    stream.publishRaw(`${JSON.stringify(eventLine({ age: 'x' }))}\n`);
    await takeIn(scene);
    publish(2);
    stream.publishRaw(`${JSON.stringify(eventLine({ age: 'y' }))}\n`);
    const answer = await backUp(data, dir, stream);
    expect(answer).toMatchObject({ sequence: 7 });
    const before = { original: hashFiles(data), backup: hashFiles(path.join(dir, 'files')) };

    const copy = path.join(root, 'copy');
    expect(await restore(dir, copy)).toEqual(answer);
    await expectEvents(copy, ids);
    expect(await countTotals(copy)).toMatchObject({ streamed: 12, stored: 10, failed: 2 });
    // the anchor was compared: the stream of the backup continues at the end of the lake, without an alarm
    const history = await readHistory(path.join(copy, 'lake'), 100);
    expect(history.map(({ cause }) => cause)).toEqual(expect.arrayContaining(['restore', 'flush']));
    expect(history.filter(({ cause, metrics }) => cause === 'epoch' && metrics['fault'] !== 'none')).toEqual([]);
    expect(filesNaming(copy, data)).toEqual([]);
    expect({ original: hashFiles(data), backup: hashFiles(path.join(dir, 'files')) }).toEqual(before);
  });

  it('A backup is complete when the compactor commits and purges waiting events during the copy', async () => {
    const scene = createScene();
    const { data, dir, root, stream, ids, publish } = scene;
    publish(3);
    await takeIn(scene);
    publish(4);
    let pulls = 0;
    const reader: StreamReader = {
      ...stream,
      async pull(after, limits) {
        pulls += 1;
        // the lake advances after its position was read, before the stream is
        if (pulls === 1) {
          await takeIn(scene);
          publish(1);
        }
        return stream.pull(after, limits);
      },
    };
    await backUp(data, dir, reader);
    expect(pulls).toBeGreaterThan(0);
    const manifest = await findManifest(dir);
    // events of the version are not in the tail as well
    expect(manifest).toMatchObject({ sequence: 7 });
    await restore(dir, path.join(root, 'copy'));
    await expectEvents(path.join(root, 'copy'), ids.slice(0, 14));
  });

  it('A repeated backup copies only changes: unchanged files are kept, and removed files are deleted', async () => {
    const scene = createScene();
    const { data, dir, root, stream, ids, publish } = scene;
    publish(2);
    await takeIn(scene);
    await backUp(data, dir, stream);
    const stored = listFiles(path.join(dir, 'files'));
    const inodes = new Map(stored.map((name) => [name, statSync(path.join(dir, 'files', name)).ino]));
    publish(1);
    await takeIn(scene);
    await backUp(data, dir, stream);
    const kept = listFiles(path.join(dir, 'files')).filter((name) => inodes.has(name));
    expect(kept.length).toBeGreaterThan(0);
    for (const name of kept) expect(statSync(path.join(dir, 'files', name)).ino).toBe(inodes.get(name));
    const named = (await findManifest(dir))?.files.map(({ sha256 }) => sha256) ?? [];
    expect(new Set(listFiles(path.join(dir, 'files')).map((name) => path.basename(name)))).toEqual(new Set(named));

    await restore(dir, path.join(root, 'copy'));
    await expectEvents(path.join(root, 'copy'), ids);
  });

  it('A backup loses erased people at its next run, also those whose rows readers of the original may still read, and a restore moves sealed files to their final paths at once', async () => {
    const scene = createScene();
    const { data, dir, root, stream, publish } = scene;
    publish(1, { custom_user_id: 'somebody', event_time: 1_700_000_000 });
    publish(1, { custom_user_id: 'planted', event_time: 1_700_000_000 });
    await takeIn(scene, { sealAgeMs: 10 }, (files) => files.length > 0 && files.every((file) => !file.young));
    await backUp(data, dir, stream);
    // Parquet compresses values: a file is searched by its rows
    const storedUsers = async (): Promise<unknown[]> => {
      const manifest = await findManifest(dir);
      const files = manifest?.files
        .filter((file) => /\/(kind=|_rewritten|_young|fresh).*\.parquet$/.test(file.path))
        .map(({ sha256 }) => `'${path.join(dir, 'files', sha256.slice(0, 2), sha256)}'`);
      return (
        await query(
          `SELECT DISTINCT custom_user_id AS id FROM read_parquet([${files?.join(', ')}], hive_partitioning = false) ORDER BY id`,
        )
      ).map((row) => row['id']);
    };
    expect(await storedUsers()).toEqual(['planted', 'somebody']);

    const compactor = await startTestCompact(data, stream);
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    const table = await openTable(lakePaths(path.join(data, 'lake')).table, { clock, crashPoint: noCrashPoint });
    const erasing = {
      table,
      lakeDir: path.join(data, 'lake'),
      duckdb,
      publisher: stream.publisher,
      clock,
      crashPoint: noCrashPoint,
      signal: new AbortController().signal,
    };
    expect(await eraseEvents(erasing, { users: ['planted'] }, { retentionMs: 86_400_000 })).toMatchObject({ rows: 2 });
    duckdb.close();
    await compactor.stop();
    await backUp(data, dir, stream);
    expect(await storedUsers()).toEqual(['somebody']);

    const copy = path.join(root, 'copy');
    await restore(dir, copy);
    const glob = path.join(copy, 'lake', 'events', 'kind=*', 'date=*', '*.parquet');
    expect(
      (await query(`SELECT custom_user_id AS id FROM read_parquet('${glob}', hive_partitioning = false)`)).map(
        (row) => row['id'],
      ),
    ).toEqual(['somebody', 'somebody']);
    expect(await countTotals(copy)).toMatchObject({ stored: 2, erased: 2 });
    await expectEvents(
      copy,
      (await readRows(data, 'event_id')).map((row) => String(row['event_id'])),
    );
  });

  it('A backup by links shares the bytes of the table with the original, and is intact after the original has continued and was removed', async () => {
    const scene = createScene();
    const { data, dir, root, stream, ids, publish } = scene;
    publish(2);
    await takeIn(scene);
    await backUp(data, dir, stream, { link: true });
    const { files } = await readSnapshot(lakePaths(path.join(data, 'lake')).table);
    expect(files.length).toBeGreaterThan(0);
    for (const { absolutePath, sha256 = '' } of files)
      expect(statSync(absolutePath).ino).toBe(statSync(path.join(dir, 'files', sha256.slice(0, 2), sha256)).ino);
    const before = hashFiles(dir);
    publish(2);
    await takeIn(scene, { sealAgeMs: 10, retentionMs: 1000 }, (live) => live.every((file) => !file.young));
    rmSync(data, { recursive: true });
    expect(hashFiles(dir)).toEqual(before);
    await restore(dir, path.join(root, 'copy'));
    await expectEvents(path.join(root, 'copy'), ids.slice(0, 4));
  });

  it('A backup has apps, users and keys as they were, readable by their owner only, and a restore ends every session', async () => {
    const { data, dir, root } = createScene();
    const paths = dataPaths(data);
    await rotateSessionKey(paths.keys);
    await addApp(paths, { idApp: 1, platform: 'web', idAccount: 1 }, 0);
    await addUser(paths, { name: 'ann', idAccount: 1, canExport: true });
    await backUp(data, dir, undefined);
    const copy = path.join(root, 'copy');
    await restore(dir, copy);
    for (const name of [
      'access.json',
      ...readdirSync(paths.keys)
        .filter((key) => !['.lock', 'sessions.key'].includes(key))
        .map((key) => `keys/${key}`),
    ])
      expect(readFileSync(path.join(copy, name))).toEqual(readFileSync(path.join(data, name)));
    const [before, after] = [data, copy].map((folder) => readFileSync(path.join(folder, 'keys/sessions.key'), 'utf8'));
    expect(after).toMatch(/^[0-9a-f]{64}\n$/);
    expect(after).not.toBe(before);
    for (const folder of [dir, copy])
      for (const name of readdirSync(folder, { recursive: true, withFileTypes: true }))
        expect([name.name, statSync(path.join(name.parentPath, name.name)).mode & 0o077]).toEqual([name.name, 0]);
    // no lake existed, and none is created
    expect(existsSync(path.join(copy, 'lake'))).toBe(false);
  });

  it('A backup counts the failed events of its version, regardless of commits while they are listed', async () => {
    const scene = createScene();
    const paths = lakePaths(path.join(scene.data, 'lake'));
    const version = async (): Promise<number> => (await readSnapshot(paths.table)).version;
    const versions: number[] = [];
    for (const age of ['x', 'y', 'z']) {
      scene.stream.publishRaw(`${JSON.stringify(eventLine({ age }))}\n`);
      await takeIn(scene);
      versions.push(await version());
    }
    for (const [index, at] of versions.entries())
      expect(await listFailedFilesAt(paths.failed, paths.table, at)).toHaveLength(index + 1);
  });
});

describe('a backup that is not finished', () => {
  it('An unfinished backup leaves the previous one current, and its copies to the next one', async () => {
    const scene = createScene();
    const { data, dir, root, stream, ids, publish } = scene;
    publish(2);
    await takeIn(scene);
    await backUp(data, dir, stream);
    publish(2);
    await takeIn(scene, { sealAgeMs: 10 }, (files) => files.every((file) => !file.young));
    // it ends after the files of the lake were copied
    await expect(backUp(data, dir, () => Promise.reject(new Error('killed')))).rejects.toThrow('killed');
    await restore(dir, path.join(root, 'copy'));
    await expectEvents(path.join(root, 'copy'), ids.slice(0, 4));
  });

  it('An unfinished first backup is refused by a restore', async () => {
    const scene = createScene();
    const { data, dir, root, publish } = scene;
    publish(1);
    await takeIn(scene);
    await expect(backUp(data, dir, () => Promise.reject(new Error('killed')))).rejects.toThrow('killed');
    expect(listFiles(path.join(dir, 'files')).length).toBeGreaterThan(0);
    expect(await refusal(restore(dir, path.join(root, 'copy')))).toEqual(
      because('not_found', 'has no finished backup'),
    );
  });

  it('A backup without enough space reports it, and succeeds when there is space', async (context) => {
    const scene = createScene();
    const { data, root, stream, ids, publish } = scene;
    const disk = mountSmallDisk(path.join(root, 'small'), 2 * 1024 * 1024);
    if (disk === undefined) {
      context.skip('no small file system can be mounted here');
      return;
    }
    const dir = path.join(root, 'small', 'backup');
    publish(1);
    await takeIn(scene);
    await backUp(data, dir, stream);
    const before = hashFiles(dir);
    publish(1);
    await takeIn(scene);
    disk.fill(0);
    expect(await refusal(backUp(data, dir, stream))).toEqual(because('disk', 'cannot finish the backup'));
    expect(Object.entries(before).filter(([name, hash]) => hashFiles(dir)[name] !== hash && name !== '.lock')).toEqual(
      [],
    );
    disk.empty();
    await backUp(data, dir, stream);
    await restore(dir, path.join(root, 'copy'));
    await expectEvents(path.join(root, 'copy'), ids);
  });

  it('A second backup into the same folder is refused while the first one runs', async () => {
    const scene = createScene();
    const { data, dir, stream, publish } = scene;
    publish(1);
    await takeIn(scene);
    let seconds = 0;
    await backUp(data, dir, async () => {
      expect(await refusal(backUp(data, dir, stream))).toEqual(because('locked', 'is in use by a backup'));
      seconds += 1;
      expect(await refusal(restore(dir, path.join(scene.root, 'copy')))).toEqual(
        because('not_found', 'no finished backup'),
      );
      return stream;
    });
    expect(seconds).toBe(1);
  });
});

describe('a damaged backup', () => {
  it('A damaged backup is not restored, its damaged files are named, nothing is left behind, and the next run repairs it', async () => {
    const scene = createScene();
    const { data, dir, root, stream, ids, publish } = scene;
    publish(2);
    await takeIn(scene);
    publish(1);
    await backUp(data, dir, stream);
    const { files = [], tail } = (await findManifest(dir)) ?? {};
    const young = files.find((file) => file.path.includes('/_young/'));
    for (const { sha256 = '', path: name } of [young, { ...tail, path: 'the tail of the stream' }].map(
      (one) => one ?? { path: '' },
    ) as { sha256?: string; path: string }[]) {
      const file = path.join(dir, 'files', sha256.slice(0, 2), sha256);
      const bytes = readFileSync(file);
      const damaged = Buffer.from(bytes);
      damaged[damaged.length >> 1] = (damaged[damaged.length >> 1] ?? 0) ^ 1;
      writeFileSync(file, damaged);
      expect(await refusal(restore(dir, path.join(root, 'copy')))).toEqual(because('backup_damaged', name));
      expect(readdirSync(path.join(root, 'copy'))).toEqual(['.lock']);
      rmSync(file);
      expect(await refusal(restore(dir, path.join(root, 'copy')))).toEqual(because('backup_damaged', name));
      writeFileSync(file, damaged);
      await backUp(data, dir, stream);
      expect(readFileSync(file)).toEqual(bytes);
    }
    await restore(dir, path.join(root, 'copy'));
    await expectEvents(path.join(root, 'copy'), ids);
  });

  it('A damaged backup without an intact manifest is refused, and replaced by the next', async () => {
    const scene = createScene();
    const { data, dir, root, stream, ids, publish } = scene;
    publish(1);
    await takeIn(scene);
    await backUp(data, dir, stream);
    const text = readFileSync(manifestPath(dir), 'utf8');
    writeFileSync(manifestPath(dir), text.replace('"sequence":1', '"sequence":2'));
    expect(await refusal(restore(dir, path.join(root, 'copy')))).toEqual(because('backup_damaged', 'manifest.json'));
    writeFileSync(
      manifestPath(dir),
      renderChecksummed({
        ...parseChecksummed(text),
        files: [{ path: '../outside', size: 0, sha256: '0'.repeat(64) }],
      }),
    );
    expect(await refusal(restore(dir, path.join(root, 'copy')))).toEqual(
      because('backup_damaged', 'not a backup manifest'),
    );
    await backUp(data, dir, stream);
    await restore(dir, path.join(root, 'copy'));
    await expectEvents(path.join(root, 'copy'), ids);
  });

  it('A backup of a damaged file of the lake fails, unless the backup has an intact copy', async () => {
    const scene = createScene();
    const { data, dir, root, stream, ids, publish } = scene;
    publish(1);
    await takeIn(scene);
    await backUp(data, dir, stream);
    publish(1);
    await takeIn(scene);
    const [old, newest] = (await readSnapshot(lakePaths(path.join(data, 'lake')).table)).files
      .toSorted((a, b) => statSync(a.absolutePath).mtimeMs - statSync(b.absolutePath).mtimeMs)
      .map((file) => file.absolutePath) as [string, string];
    const bytes = readFileSync(newest);
    for (const file of [old, newest]) writeFileSync(file, Buffer.alloc(statSync(file).size));
    expect(await refusal(backUp(data, dir, stream))).toEqual(because('file_damaged', newest));
    writeFileSync(newest, bytes);
    await backUp(data, dir, stream);
    await restore(dir, path.join(root, 'copy'));
    await expectEvents(path.join(root, 'copy'), ids);
  });
});

describe('a restore', () => {
  it('A restore is refused into a folder with contents or inside the backup, and a backup is refused into a folder with other contents, of another lake, or in the data folder', async () => {
    const scene = createScene();
    const other = createScene();
    const { data, dir, root, stream } = scene;
    for (const one of [scene, other]) {
      one.publish(1);
      await takeIn(one);
    }
    await backUp(data, dir, stream);
    const before = hashFiles(data);
    expect(await refusal(restore(dir, data))).toEqual(because('conflict', 'is not empty'));
    expect(hashFiles(data)).toEqual(before);
    expect(await refusal(restore(dir, path.join(dir, 'new')))).toEqual(because('usage', 'overlap'));
    expect(await refusal(backUp(data, path.join(data, 'backup'), stream))).toEqual(because('usage', 'overlap'));
    expect(await refusal(backUp(data, root, stream))).toEqual(because('usage', 'overlap'));
    expect(await refusal(backUp(data, other.data, stream))).toEqual(
      because('usage', 'has other contents than a backup'),
    );
    expect(await refusal(backUp(other.data, dir, other.stream))).toEqual(
      because('conflict', 'has the backup of another lake'),
    );
  });

  it('A killed restore starts over, and nothing else works on the folder meanwhile', async () => {
    const scene = createScene();
    const { data, dir, root, stream, ids, publish } = scene;
    publish(1);
    await takeIn(scene);
    await backUp(data, dir, stream);
    const copy = path.join(root, 'copy');
    await restore(dir, copy);
    // as a kill just before its end leaves it
    await writeDataFormat(copy, { format: 1, restoring: true });
    writeFileSync(path.join(copy, 'half'), 'half');
    expect(() => assertDataFormat(copy)).toThrow('is unfinished');
    await restore(dir, copy);
    expect(existsSync(path.join(copy, 'half'))).toBe(false);
    expect(findDataFormat(copy)?.restoring).toBe(false);
    await expectEvents(copy, ids);
  });

  it('A restore of a backup of a newer program is refused in one sentence', async () => {
    const { data, dir, root } = createScene();
    await addApp(dataPaths(data), { idApp: 1, platform: 'web', idAccount: 1 }, 0);
    await backUp(data, dir, undefined);
    writeFileSync(
      manifestPath(dir),
      renderChecksummed({ ...parseChecksummed(readFileSync(manifestPath(dir), 'utf8')), format: 99, program: '9.9.9' }),
    );
    expect(await refusal(restore(dir, path.join(root, 'copy')))).toEqual(
      because('data_format', 'has format 99, written by tributary 9.9.9'),
    );
    expect(await refusal(backUp(data, dir, undefined))).toEqual(because('data_format', 'has format 99'));
  });
});
