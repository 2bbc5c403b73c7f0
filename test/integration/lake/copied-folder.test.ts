import { cp, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { checkLake } from '../../../src/lake/check.ts';
import { intentSteps } from '../../../src/lake/files/staged-rewrite.ts';
import { assertInsideLake, parseIntent } from '../../../src/lake/files/staged-rewrite-file.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { parseChecked, renderChecked } from '../../../src/runtime/files/checked-json.ts';
import { filesNaming, hashFiles } from '../../helpers/folder-bytes.ts';
import { testFolder } from '../../helpers/folder.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { waitFor } from '../../helpers/wait.ts';

/** A folder that is copied is a service of its own: nothing in it names the place it was copied from. */

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

/** Seals a lake and copies its folder at each step of the rewrite; returns the original and the copies. */
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
    if (!(intentSteps as readonly string[]).includes(step) || copies.some((copy) => copy.step === step)) return;
    const folder = path.join(root, `copy at ${step}`);
    copies.push({ step, folder });
    await cp(original, folder, { recursive: true });
  };
  const sealer = await startTestCompact(original, streamOfMessages(), { sealAgeMs: 10, crashPoint });
  await waitFor('sealed', () => isSealed(original));
  await sealer.stop();
  expect(copies.map(({ step }) => step)).toEqual(intentSteps);
  return { original, copies };
}

async function expectWorks(folder: string): Promise<void> {
  const compact = await startTestCompact(folder, streamOfMessages(), { sealAgeMs: 10 });
  await waitFor('the copy has sealed', () => isSealed(folder));
  await compact.stop();
  expect((await readRows(folder, 'event_id')).map((row) => row['event_id'])).toEqual(ids);
  expect((await checkLake(path.join(folder, 'lake'))).problems).toEqual([]);
}

test('A folder copied at any step of a rewrite names no place, works at once, has every row once, and never touches the original', async () => {
  const { original, copies } = await copyAtEachStep();
  const before = hashFiles(original);
  const named = copies.flatMap(({ step, folder }) => filesNaming(folder, original).map((name) => `${step}: ${name}`));
  // The SQL of the views has absolute paths; the start of the copy writes it anew.
  expect(named.filter((name) => !name.endsWith('lake/snapshot.sql'))).toEqual([]);
  for (const { folder } of copies) await expectWorks(folder);
  expect(hashFiles(original)).toEqual(before);
});

/** Gives the intent of a copy the absolute paths of version 0.2; returns how many it has. */
async function toAbsoluteIntent(folder: string, original: string): Promise<number> {
  const { staging } = lakePaths(path.join(folder, 'lake'));
  const { root } = lakePaths(path.join(original, 'lake'));
  const [name = ''] = await readdir(staging);
  const file = path.join(staging, name, 'intent.json');
  const { moves, ...rest } = parseChecked(await readFile(file, 'utf8')) as { moves: { name: string; to: string }[] };
  await writeFile(
    file,
    renderChecked({ ...rest, moves: moves.map((move) => ({ ...move, to: path.resolve(root, move.to) })) }),
  );
  return moves.length;
}

test('An intent of version 0.2, which has absolute paths, is finished in the folder where it lies', async () => {
  const { original, copies } = await copyAtEachStep();
  const before = hashFiles(original);
  for (const { step, folder } of copies.filter((copy) =>
    ['intent-written', 'file-renamed', 'renamed'].includes(copy.step),
  )) {
    expect(await toAbsoluteIntent(folder, step === 'renamed' ? folder : original)).toBeGreaterThan(0);
    await expectWorks(folder);
  }
  expect(hashFiles(original)).toEqual(before);
});

const change = { cause: 'seal', actions: [] } as const;
const intent = (to: string, name = '0.parquet'): string =>
  renderChecked({ commitId: 'c', baseVersion: 1, moves: [{ name, to }], change, unlink: [] });

test.each([
  ['a path that climbs out', '../events/fresh/a.parquet'],
  ['a path that climbs out in its midst', 'events/../../secret'],
  ['a path to the lake itself', '.'],
  ['an empty path', ''],
  ['an absolute path that is no place of a lake', '/etc/passwd'],
  ['an absolute path that climbs out', '/data/lake/events/fresh/../../../../etc/passwd'],
])('An intent with %s is refused', (_what, to) => {
  expect(() => parseIntent('intent.json', intent(to), '/data/lake')).toThrow(
    expect.objectContaining({ code: 'rewrite_damaged' }) as Error,
  );
});

test('An intent with a staged file that lies elsewhere is refused, and one that is whole is read as places of this lake', () => {
  for (const name of ['../a', 'a/b', '..', ''])
    expect(() => parseIntent('intent.json', intent('events/fresh/a.parquet', name), '/data/lake')).toThrow(
      expect.objectContaining({ code: 'rewrite_damaged' }) as Error,
    );
  for (const to of ['events/fresh/a.parquet', '/elsewhere/lake/events/fresh/a.parquet']) {
    expect(parseIntent('intent.json', intent(to), '/data/lake').moves).toEqual([
      { name: '0.parquet', to: '/data/lake/events/fresh/a.parquet' },
    ]);
  }
});

test('A rewrite does not follow a link out of its lake', async () => {
  const root = testFolder();
  const [lakeDir, outside] = [path.join(root, 'lake'), path.join(root, 'original')];
  await mkdir(path.join(lakeDir, 'events'), { recursive: true });
  await mkdir(outside);
  const parsed = parseIntent('intent.json', intent('events/kind=login/date=2026-01-01/a.parquet'), lakeDir);
  await assertInsideLake(lakeDir, parsed);
  await symlink(outside, path.join(lakeDir, 'events', 'kind=login'));
  await expect(assertInsideLake(lakeDir, parsed)).rejects.toMatchObject({
    code: 'rewrite_damaged',
    message: expect.stringContaining('outside the lake') as string,
  });
});
