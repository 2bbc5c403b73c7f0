import { mkdirSync, renameSync, writeFileSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { watchFile, watchOptionalFile, type WatchedFile } from '../../../../src/runtime/files/watched-file.ts';
import { createLogger } from '../../../../src/runtime/logger.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { waitFor } from '../../../helpers/wait.ts';

const logger = createLogger('silent');

/** Writes a file whole, as commands do. */
function replace(file: string, text: string): void {
  writeFileSync(`${file}.tmp`, text);
  renameSync(`${file}.tmp`, file);
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return 'none';
  }
}

/** Watches a file, and another beside it in a folder of its own that is not there yet. */
function watchTwo(): { file: string; beside: string; watched: WatchedFile<string> } {
  const folder = testFolder();
  const [file, beside] = [path.join(folder, 'file'), path.join(folder, 'later', 'beside')];
  replace(file, 'first');
  const watched = watchFile(file, () => `${read(file)} ${read(beside)}`, logger, { beside: [beside] });
  onTestFinished(() => watched.close());
  return { file, beside, watched };
}

it('A file that is replaced again and again is always read as it was written last', async () => {
  const { file, watched } = watchTwo();
  for (let times = 0; times < 5; times += 1) {
    replace(file, `text ${times}`);
    await waitFor('the file was read again', () => watched.current() === `text ${times} none`);
  }
  expect(watched.problem()).toBeUndefined();
});

it('A file in a folder that comes later is seen when it comes, and each time that it is replaced', async () => {
  const { beside, watched } = watchTwo();
  mkdirSync(path.dirname(beside));
  for (let times = 0; times < 3; times += 1) {
    replace(beside, `text ${times}`);
    await waitFor('the file beside was seen', () => watched.current() === `first text ${times}`);
  }
  expect(watched.problem()).toBeUndefined();
});

it('A file that goes is a problem, with its last reading in force, until it is there again', async () => {
  const { file, watched } = watchTwo();
  renameSync(file, `${file}.away`);
  await waitFor('its absence was seen', () => watched.problem() !== undefined);
  expect(watched.current()).toBe('first none');
  renameSync(`${file}.away`, file);
  await waitFor('it was seen again', () => watched.problem() === undefined);
  expect(watched.current()).toBe('first none');
});

it('A file that cannot be read at first is read when it can be, also if it has not changed', async () => {
  const file = path.join(testFolder(), 'file');
  replace(file, 'first');
  let isDenied = true;
  const load = (): string => {
    if (isDenied) throw new Error('denied');
    return read(file);
  };
  const watched = watchOptionalFile(file, load, logger);
  onTestFinished(() => watched.close());
  expect([watched.current(), watched.problem()]).toEqual([undefined, 'denied']);
  isDenied = false;
  await waitFor('the file was read', () => watched.current() === 'first');
  expect(watched.problem()).toBeUndefined();
});
