import { chmodSync, mkdirSync, renameSync, rmSync, writeFileSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { renderChecksummed } from '../../../../src/runtime/files/checksummed-json.ts';
import { createLogger } from '../../../../src/runtime/logger.ts';
import { createFolderStore } from '../../../../src/runtime/store/folder-store.ts';
import { createRecords } from '../../../../src/runtime/store/records.ts';
import { isCount, isText, optional, shapeOf } from '../../../../src/runtime/store/shape.ts';
import { watchObjects } from '../../../../src/runtime/store/watch.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { waitFor } from '../../../helpers/wait.ts';

const logger = createLogger('silent');

interface Note {
  readonly idNote: string;
  readonly count: number;
  readonly text?: string;
}

function openNotes() {
  const folder = testFolder();
  const notes = createRecords<Note>(createFolderStore(folder), {
    isValid: shapeOf<Note>({ idNote: isText, count: isCount, text: optional(isText) }),
    idOf: ({ idNote }) => idNote,
    idForm: /^\d\/\w+$/,
    damaged: { code: 'record_damaged', hint: 'Write it again.' },
  });
  return { folder, notes };
}

it('Of many changes of a record, by several who know it, none is lost, and one that changes nothing writes nothing', async () => {
  const { folder, notes } = openNotes();
  const add = () =>
    notes.change('1/a', (note) => ({ idNote: '1/a', count: (note?.count ?? 0) + 1, text: note?.text ?? 'é' }));
  await Promise.all(Array.from({ length: 10 }, add));
  expect(await notes.get('1/a')).toEqual({ idNote: '1/a', count: 10, text: 'é' });
  const before = readFileSync(path.join(folder, '1', 'a.json'));
  expect(await notes.change('1/a', () => undefined)).toMatchObject({ count: 10 });
  expect(await notes.change('1/b', () => undefined)).toBeUndefined();
  expect(readFileSync(path.join(folder, '1', 'a.json'))).toEqual(before);
  expect(await notes.ids()).toEqual(['1/a']);
});

it('An id that leads out of the folder, or has another form, names no record and changes nothing', async () => {
  const { folder, notes } = openNotes();
  await notes.create('1/a', { idNote: '1/a', count: 1 });
  const outside = path.join(path.dirname(folder), `${path.basename(folder)}-outside.json`);
  writeFileSync(outside, readFileSync(path.join(folder, '1', 'a.json')));
  for (const id of [`1/../../${path.basename(folder)}-outside`, '../a', '1/a/..', '', '1/']) {
    expect(await notes.get(id)).toBeUndefined();
    expect(await notes.remove(id)).toBe(false);
    expect(await notes.change(id, () => ({ idNote: id, count: 9 }))).toBeUndefined();
  }
  const free = createRecords<Note>(createFolderStore(folder), {
    isValid: shapeOf<Note>({ idNote: isText, count: isCount, text: optional(isText) }),
    damaged: { code: 'record_damaged', hint: 'Write it again.' },
  });
  expect(await free.remove(`../${path.basename(folder)}-outside`)).toBe(false);
  await expect(createFolderStore(folder).remove(['1/../../x'])).rejects.toThrow('a key names an object of its store');
  expect(readFileSync(outside, 'utf8')).toContain('1/a');
  expect(await notes.ids()).toEqual(['1/a']);
});

it('A record that is damaged, of another id or of another kind is an error with the way out, and harms no other', async () => {
  const { folder, notes } = openNotes();
  for (const id of ['1/a', '1/b', '1/c', '2/d']) await notes.create(id, { idNote: id, count: 1 });
  expect(await notes.create('1/a', { idNote: '1/a', count: 2 })).toBe('exists');
  const file = (id: string): string => path.join(folder, `${id}.json`);
  writeFileSync(file('1/a'), readFileSync(file('1/a'), 'utf8').replace('"count":1', '"count":7'));
  renameSync(file('2/d'), file('1/b'));
  writeFileSync(file('1/other'), renderChecksummed({ idNote: '1/other' }));
  writeFileSync(file('1/early'), JSON.stringify({ version: 1, idNote: '1/early', count: 3 }));
  for (const id of ['1/a', '1/b', '1/other']) {
    await expect(notes.get(id)).rejects.toMatchObject({ code: 'record_damaged', hint: 'Write it again.' });
    expect(await notes.getSound(id)).toBeUndefined();
  }
  const { known, damaged } = await notes.list('1/');
  expect(known.map(({ idNote }) => idNote).toSorted()).toEqual(['1/c', '1/early']);
  expect(damaged.toSorted()).toEqual(['1/a', '1/b', '1/other']);
  expect([await notes.remove('1/a'), await notes.remove('1/a')]).toEqual([true, false]);
  for (const id of ['../1/c', 'x', '1/c/']) expect(await notes.get(id)).toBeUndefined();
});

/** Writes a file whole, as commands do. */
function replace(file: string, text: string): void {
  writeFileSync(`${file}.tmp`, text);
  renameSync(`${file}.tmp`, file);
}

/** Watches an object, and another one in a folder that does not exist yet. */
async function watchTwo() {
  const folder = testFolder();
  const [file, beside] = [path.join(folder, 'file'), path.join(folder, 'later', 'beside')];
  replace(file, 'first');
  let changes = 0;
  const watched = await watchObjects(
    createFolderStore(folder),
    ['later/beside', 'file'],
    ([other, main]) => {
      const texts = [main, other].map((object) =>
        object === undefined ? 'none' : Buffer.from(object.bytes).toString(),
      );
      if (texts[0] === 'bad') throw new Error('it is bad');
      return texts.join(' ');
    },
    logger,
    () => void (changes += 1),
  );
  onTestFinished(() => watched.close());
  return { file, beside, watched, changes: () => changes };
}

it('A watched object that is replaced again and again is always read as it was written last', async () => {
  const { file, watched } = await watchTwo();
  for (let times = 0; times < 5; times += 1) {
    replace(file, `text ${times}`);
    await waitFor('the file was read again', () => watched.current() === `text ${times} none`);
  }
  expect(watched.problem()).toBeUndefined();
});

it('A watched object in a folder that comes later is seen when it comes, and each time that it is replaced', async () => {
  const { beside, watched } = await watchTwo();
  mkdirSync(path.dirname(beside));
  for (let times = 0; times < 3; times += 1) {
    replace(beside, `text ${times}`);
    await waitFor('the other file was seen', () => watched.current() === `first text ${times}`);
  }
  expect(watched.problem()).toBeUndefined();
});

it('A watched object that is removed or damaged is a problem, and its last content stays current until it is restored', async () => {
  const { file, watched, changes } = await watchTwo();
  renameSync(file, `${file}.away`);
  await waitFor('its absence was seen', () => watched.problem() !== undefined);
  replace(file, 'bad');
  await waitFor('the damage was seen', () => watched.problem() === 'it is bad');
  expect([watched.current(), changes()]).toEqual(['first none', 0]);
  renameSync(`${file}.away`, file);
  await waitFor('it was seen again', () => watched.problem() === undefined);
  expect([watched.current(), changes()]).toEqual(['first none', 1]);
});

const load = ([object]: readonly ({ readonly bytes: Uint8Array } | undefined)[]): number => {
  const value = Number(Buffer.from(object?.bytes ?? []).toString());
  if (Number.isNaN(value)) throw new Error('it is not a number');
  return value;
};

it('A watched object that cannot be read at first is read when it can be, and one that is damaged once it is replaced', async () => {
  const folder = testFolder();
  const file = path.join(folder, 'file');
  mkdirSync(file);
  const watched = await watchObjects(createFolderStore(folder), ['file'], load, logger);
  onTestFinished(() => watched.close());
  expect([watched.current(), watched.problem()]).toEqual([undefined, expect.stringContaining('EISDIR')]);
  rmSync(file, { recursive: true });
  replace(file, 'x');
  chmodSync(file, 0o600);
  await waitFor('the damage was seen', () => watched.problem() === 'it is not a number');
  replace(file, '7');
  await waitFor('the file was read', () => watched.current() === 7);
  expect(watched.problem()).toBeUndefined();
});
