import { existsSync } from 'node:fs';
import { cp, mkdir, readdir, rename, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { checkLake } from '../../../src/lake/check.ts';
import { changeSteps } from '../../../src/lake/files/change.ts';
import { assertInsideLake } from '../../../src/lake/files/change-record.ts';
import { parseStagedRewrite } from '../../../src/lake/files/earlier-rewrite.ts';
import { listDeferredReplacements } from '../../../src/lake/files/deferred-replacement.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import type { Action } from '../../../src/lake/log/actions.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { renderChecksummed } from '../../../src/runtime/files/checksummed-json.ts';
import { filesNaming, hashFiles } from '../../helpers/folder-bytes.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { addSealedFile } from '../../helpers/sealed-file.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

/** A copied folder is a separate service, without references to the original path. */

const messages = [1, 2, 3].map((age) => [eventLine({ age }), eventLine({ age, kind: 'registration' })]);
const ids = messages
  .flat()
  .map((line) => String(line['event_id']))
  .toSorted();

function streamOfMessages(): MemoryStream {
  const stream = createMemoryStream();
  for (const lines of messages) stream.publish(lines);
  return stream;
}

async function isSealed(folder: string): Promise<boolean> {
  const { files, lake } = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
  return lake?.totals.stored === ids.length && files.length > 0 && files.every((file) => !file.young);
}

/** Seals a lake, and copies its folder at each step of the rewrite. Returns the original and the copies. */
async function copyAtEachStep(): Promise<{ original: string; copies: { step: string; folder: string }[] }> {
  const root = testFolder();
  const original = path.join(root, 'original');
  const first = await startTestCompact(original, streamOfMessages());
  await waitFor(
    'all is stored',
    async () => (await readSnapshot(lakePaths(path.join(original, 'lake')).table)).lake?.totals.stored === ids.length,
  );
  await first.stop();
  const copies: { step: string; folder: string }[] = [];
  const crashPoint = async (step: string): Promise<void> => {
    if (!(changeSteps as readonly string[]).includes(step) || copies.some((copy) => copy.step === step)) return;
    const folder = path.join(root, `copy at ${step}`);
    copies.push({ step, folder });
    await cp(original, folder, { recursive: true });
  };
  const sealer = await startTestCompact(original, streamOfMessages(), { sealAgeMs: 10, crashPoint });
  await waitFor('sealed', () => isSealed(original));
  await sealer.stop();
  expect(copies.map(({ step }) => step)).toEqual(changeSteps);
  return { original, copies };
}

async function expectWorks(folder: string): Promise<void> {
  const compactor = await startTestCompact(folder, streamOfMessages(), { sealAgeMs: 10 });
  const { staging } = lakePaths(path.join(folder, 'lake'));
  await waitFor('the copy has sealed and settled what it found', async () => {
    return (await isSealed(folder)) && (await readdir(staging)).length === 0;
  });
  await compactor.stop();
  expect((await readRows(folder, 'event_id')).map((row) => row['event_id'])).toEqual(ids);
  expect((await checkLake(path.join(folder, 'lake'))).problems).toEqual([]);
}

test('A folder copied at any step of a rewrite works at once, has every row once, and never changes the original', async () => {
  const { original, copies } = await copyAtEachStep();
  const before = hashFiles(original);
  const named = copies.flatMap(({ step, folder }) => filesNaming(folder, original).map((name) => `${step}: ${name}`));
  // The SQL of the views has absolute paths, and the start of the copy rewrites it.
  expect(named.filter((name) => !name.endsWith('lake/snapshot.sql'))).toEqual([]);
  for (const { folder } of copies) await expectWorks(folder);
  expect(hashFiles(original)).toEqual(before);
});

/** Creates a lake in which version 0.2 or 0.3 was killed in a seal, after some of its steps. */
async function leaveEarlierSeal(
  folder: string,
  { isAbsolute, until }: { isAbsolute: boolean; until: 'intent-written' | 'renamed' | 'intent-committed' },
): Promise<void> {
  const first = await startTestCompact(folder, streamOfMessages());
  const paths = lakePaths(path.join(folder, 'lake'));
  await waitFor('all is stored', async () => (await readSnapshot(paths.table)).lake?.totals.stored === ids.length);
  await first.stop();
  const table = await openTable(paths.table, { clock: createClock(0), crashPoint: noCrashPoint });
  const commitId = '11111111-1111-4111-8111-111111111111';
  const staging = path.join(paths.staging, commitId);
  await mkdir(staging);
  const moves: { name: string; to: string }[] = [];
  const actions: Action[] = [];
  for (const [index, add] of [...table.state().files.values()].entries()) {
    const to = `kind=login/date=2026-01-0${index + 1}/${commitId}.parquet`;
    await cp(path.join(table.dir, add.path), path.join(staging, `${index}.parquet`));
    moves.push({ name: `${index}.parquet`, to: isAbsolute ? `/elsewhere/lake/events/${to}` : `events/${to}` });
    actions.push({ add: { ...add, path: to, dataChange: false } });
    actions.push({ remove: { path: add.path, deletionTimestamp: 1, dataChange: false } });
    if (until === 'intent-written') continue;
    await mkdir(path.join(table.dir, path.dirname(to)), { recursive: true });
    await rename(path.join(staging, `${index}.parquet`), path.join(table.dir, to));
  }
  const sealed = { cause: 'seal', actions } as const;
  const baseVersion = table.state().version;
  await writeFile(
    path.join(staging, 'intent.json'),
    renderChecksummed({ commitId, baseVersion, moves, change: sealed, unlink: [] }),
  );
  if (until === 'intent-committed') await table.commit(() => sealed, commitId);
}

test.each([
  { isAbsolute: true, until: 'intent-written' },
  { isAbsolute: false, until: 'intent-written' },
  { isAbsolute: false, until: 'renamed' },
  { isAbsolute: false, until: 'intent-committed' },
] as const)(
  'A killed seal of an earlier version ($until, absolute paths: $isAbsolute) is completed in its folder',
  async (left) => {
    const folder = path.join(testFolder(), 'data');
    await leaveEarlierSeal(folder, left);
    await expectWorks(folder);
    const { files } = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
    expect(files.map((file) => file.publishedPath)).toEqual(files.map((file) => file.path));
  },
);

test('A waiting rewrite of version 0.3 is shown, leftovers of its loads are removed, and nothing is copied', async () => {
  const folder = path.join(testFolder(), 'data');
  const lakeDir = path.join(folder, 'lake');
  const paths = lakePaths(lakeDir);
  const sealed = await addSealedFile(lakeDir, 100, 3);
  const rewrite = '_rewritten/1.parquet';
  await mkdir(path.join(paths.table, '_rewritten'));
  await cp(sealed?.absolutePath ?? '', path.join(paths.table, rewrite));
  const table = await openTable(paths.table, { clock: createClock(0), crashPoint: noCrashPoint });
  await table.commit((state) => {
    const [add] = state.files.values();
    if (add === undefined) throw new Error('no sealed file');
    return {
      cause: 'enrich',
      actions: [
        { remove: { path: add.path, deletionTimestamp: 1, dataChange: true } },
        { add: { ...add, path: rewrite, tags: { ...add.tags, replaces: add.path } } },
      ],
    };
  });
  const leftover = path.join(paths.table, '_load', 'killed', 'rows-1', 'data_0.parquet');
  await mkdir(path.dirname(leftover), { recursive: true });
  await writeFile(leftover, 'rows');
  const compactor = await startTestCompact(folder, streamOfMessages(), { retentionMs: 100 });
  const { files } = await readSnapshot(paths.table);
  await waitFor(
    'the rewrite is at its place',
    async () => (await listDeferredReplacements(paths.table, files)).length === 0,
  );
  await waitFor('leftovers are swept', () => !existsSync(path.join(paths.table, '_load')));
  await compactor.stop();
  expect(files.map((file) => file.publishedPath)).toContain(sealed?.path);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
});

const change = { cause: 'seal', actions: [] } as const;
const intent = (to: string, name = '0.parquet'): string =>
  renderChecksummed({ commitId: 'c', baseVersion: 1, moves: [{ name, to }], change, unlink: [] });

test.each([
  ['a path that climbs out', '../events/fresh/a.parquet'],
  ['a path that climbs out in its midst', 'events/../../secret'],
  ['a path to the lake itself', '.'],
  ['an empty path', ''],
  ['an absolute path outside of any lake', '/etc/passwd'],
  ['an absolute path that climbs out', '/data/lake/events/fresh/../../../../etc/passwd'],
])('An intent with %s is rejected', (_what, to) => {
  expect(() => parseStagedRewrite('intent.json', intent(to))).toThrow(
    expect.objectContaining({ code: 'rewrite_damaged' }) as Error,
  );
});

test('An intent with a staged file elsewhere is rejected, and a valid one is read as keys of its lake', () => {
  for (const name of ['../a', 'a/b', '..', ''])
    expect(() => parseStagedRewrite('intent.json', intent('events/fresh/a.parquet', name))).toThrow(
      expect.objectContaining({ code: 'rewrite_damaged' }) as Error,
    );
  for (const to of ['events/fresh/a.parquet', '/elsewhere/lake/events/fresh/a.parquet']) {
    expect(parseStagedRewrite('intent.json', intent(to)).moves).toEqual([
      { name: '0.parquet', to: 'events/fresh/a.parquet' },
    ]);
  }
});

test('A rewrite does not follow a link out of its lake', async () => {
  const root = testFolder();
  const [lakeDir, outside] = [path.join(root, 'lake'), path.join(root, 'original')];
  await mkdir(path.join(lakeDir, 'events'), { recursive: true });
  await mkdir(outside);
  const { moves } = parseStagedRewrite('intent.json', intent('events/kind=login/date=2026-01-01/a.parquet'));
  const targets = moves.map(({ to }) => to);
  await assertInsideLake(lakeDir, 'c', targets);
  await symlink(outside, path.join(lakeDir, 'events', 'kind=login'));
  await expect(assertInsideLake(lakeDir, 'c', targets)).rejects.toMatchObject({
    code: 'rewrite_damaged',
    message: expect.stringContaining('outside the lake') as string,
  });
});
