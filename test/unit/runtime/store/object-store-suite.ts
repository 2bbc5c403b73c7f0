import path from 'node:path';
import { existsSync, writeFileSync } from 'node:fs';
import { text as textOfStream } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { ObjectStore, OpenObject, Tag } from '../../../../src/runtime/store/object-store.ts';
import { testFolder } from '../../../helpers/folder.ts';

const bytes = (text: string): Uint8Array => Buffer.from(text);

async function textOf(store: ObjectStore, key: string): Promise<string | undefined> {
  const found = await store.get(key);
  return found === undefined ? undefined : Buffer.from(found.bytes).toString();
}

function tagIn(result: Tag | 'conflict'): Tag {
  if (result === 'conflict') throw new Error('the object has another tag');
  return result;
}

/** Replaces an object that has no other writer. */
async function put(store: ObjectStore, key: string, text: string, ifTag: Tag | 'any' = 'any'): Promise<Tag> {
  return tagIn(await store.replace(key, bytes(text), ifTag));
}

async function tagOf(store: ObjectStore, key: string): Promise<Tag> {
  return (await store.get(key))?.tag ?? '#';
}

async function getOpen(store: ObjectStore, key: string): Promise<OpenObject> {
  const opened = await store.open(key);
  if (opened === undefined) throw new Error(`${key} is missing`);
  return opened;
}

/** Opens two clients of one new store, as two processes have them, or skips the test. */
type Open = (skip: (note: string) => void) => Promise<readonly [ObjectStore, ObjectStore]>;

/** Tests what every store has to do. */
export function describeObjectStore(open: Open): void {
  describe('an object store', () => {
    it('An object is created once, by any of many clients, and keeps what its creator has written', async ({
      skip,
    }) => {
      const [one, other] = await open(skip);
      const results = await Promise.all(
        Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? one : other).create('a/b/object', bytes(`${n}`))),
      );
      expect(results.filter((result) => result === 'created')).toHaveLength(1);
      expect(await textOf(other, 'a/b/object')).toBe(String(results.indexOf('created')));
    });

    it('An object is replaced only by a client with its newest tag', async ({ skip }) => {
      const [one, other] = await open(skip);
      await one.create('object', bytes('first'));
      const first = await tagOf(other, 'object');
      const second = await put(one, 'object', 'second', first);
      expect(await other.replace('object', bytes('third'), first)).toBe('conflict');
      expect([await textOf(other, 'object'), await tagOf(other, 'object')]).toEqual(['second', second]);
      expect(await other.findTag('object')).toBe(second);
      await one.remove(['object']);
      expect(await other.replace('object', bytes('third'), second)).toBe('conflict');
      expect([await textOf(one, 'object'), await one.findTag('object')]).toEqual([undefined, undefined]);
    });

    it('Of many changes that compare before they write, none is lost', async ({ skip }) => {
      const [one, other] = await open(skip);
      await one.create('count', bytes('0'));
      const add = async (store: ObjectStore): Promise<void> => {
        for (;;) {
          const found = await store.get('count');
          if (found === undefined) throw new Error('it is missing');
          const next = String(Number(Buffer.from(found.bytes).toString()) + 1);
          if ((await store.replace('count', bytes(next), found.tag)) !== 'conflict') return;
        }
      };
      await Promise.all(Array.from({ length: 12 }, (_, n) => add(n % 2 === 0 ? one : other)));
      expect(await textOf(one, 'count')).toBe('12');
    });

    it('An object is replaced unconditionally, and read again only if it has changed', async ({ skip }) => {
      const [one, other] = await open(skip);
      const first = await put(one, 'new/object', 'first');
      expect(await other.getIfChanged('new/object', first)).toBe('unchanged');
      const second = await put(one, 'new/object', 'second');
      expect(await other.getIfChanged('new/object', first)).toMatchObject({ tag: second });
      await one.remove(['new/object', 'new/no-object']);
      expect(await other.getIfChanged('new/object', second)).toBeUndefined();
      expect(await other.get('no/such/object')).toBeUndefined();
    });

    it('Objects are listed by the folders of their keys, without other files', async ({ skip }) => {
      const [one, other] = await open(skip);
      expect(await other.list('')).toEqual([]);
      for (const key of ['a', 'b/c', 'b/d/e', 'bc']) await one.create(key, bytes(key));
      await one.hold('b', async () => undefined);
      await one.remove(['a']);
      expect((await other.list('')).toSorted()).toEqual(['b/c', 'b/d/e', 'bc']);
      expect((await other.list('b/')).toSorted()).toEqual(['b/c', 'b/d/e']);
      expect(await other.list('c/')).toEqual([]);
      expect(await other.listUnfinished('b/')).toEqual([]);
      await other.sweep('b/');
      expect(await textOf(other, 'b/c')).toBe('b/c');
    });

    it('A finished local file becomes an object', async ({ skip }) => {
      const [one, other] = await open(skip);
      const file = path.join(testFolder(), 'file');
      writeFileSync(file, 'its bytes');
      await one.upload('files/object', file);
      expect(await textOf(other, 'files/object')).toBe('its bytes');
    });

    it('A creation can be given up at its last instant, and is then as if it had not begun', async ({ skip }) => {
      const [one, other] = await open(skip);
      const seen: (string | undefined)[] = [];
      const giveUp = async (): Promise<void> => {
        seen.push(await textOf(other, 'a/object'));
        throw new Error('given up');
      };
      await expect(one.create('a/object', bytes('first'), { onWritten: giveUp })).rejects.toThrow('given up');
      const onCreated = async (): Promise<void> => void seen.push(await textOf(other, 'a/object'));
      expect(await one.create('a/object', bytes('second'), { onCreated })).toBe('created');
      expect(await one.create('a/object', bytes('third'), { onCreated })).toBe('exists');
      expect(seen).toEqual([undefined, 'second']);
      expect(await other.list('')).toEqual(['a/object']);
    });

    it('Finished local files become objects and stay, one after the other, and take no place that is taken', async ({
      skip,
    }) => {
      const [one, other] = await open(skip);
      const folder = testFolder();
      const objects = ['first', 'second'].map((name) => ({
        key: `kind=${name}/object`,
        file: path.join(folder, name),
      }));
      for (const { key, file } of objects) writeFileSync(file, key);
      const counts: number[] = [];
      await one.publish(objects, async () => void counts.push((await other.list('')).length));
      expect(counts).toEqual([1, 2]);
      for (const { key, file } of objects) expect([await textOf(other, key), existsSync(file)]).toEqual([key, true]);
      await expect(other.publish(objects)).rejects.toMatchObject({ code: 'EEXIST' });
    });

    it('An object that is written as a local file is seen once it is uploaded, replacing the previous one', async ({
      skip,
    }) => {
      const [one, other] = await open(skip);
      await one.create('a/object', bytes('first'));
      const [file, another] = [one.localPath('a/object'), one.localPath('a/object')];
      expect(file).not.toBe(another);
      writeFileSync(file, 'second');
      expect([await textOf(other, 'a/object'), await other.list('')]).toEqual(['first', ['a/object']]);
      await one.upload('a/object', file);
      expect([await textOf(other, 'a/object'), await other.findSize('a/object')]).toEqual(['second', 6]);
      expect(await other.findSize('a/no-object')).toBeUndefined();
      const synced = one.localPath('a/object');
      writeFileSync(synced, 'third');
      await one.upload('a/object', synced, { isSynced: true });
      expect([await textOf(other, 'a/object'), await other.listUnfinished('a/')]).toEqual(['third', []]);
    });

    it('An open object is read from its start and in ranges, in one version, and has another version after each write', async ({
      skip,
    }) => {
      const [one, other] = await open(skip);
      const text = '0123456789'.repeat(200_000);
      await put(one, 'a/object', text);
      const [first, again] = [await getOpen(other, 'a/object'), await getOpen(one, 'a/object')];
      expect([first.sizeBytes, again.version]).toEqual([text.length, first.version]);
      const blocks: string[] = [];
      for await (const block of first.blocks()) blocks.push(Buffer.from(block).toString());
      expect(blocks.join('') === text).toBe(true);
      const range = again.stream({ first: 1_000_005, last: 1_000_014 });
      expect([await textOfStream(range), range.bytesRead]).toEqual(['5678901234', 10]);
      await put(one, 'a/object', '0123456789');
      const rest = await textOfStream(first.stream()).catch(() => text);
      expect(rest === text).toBe(true);
      const replaced = await getOpen(other, 'a/object');
      expect(replaced.version).not.toBe(first.version);
      await replaced.close();
      for (const key of ['a/no-object', 'no/object']) expect(await other.open(key)).toBeUndefined();
    });

    it('An object grows from a position on by a client that knows its state, and is read at any position', async ({
      skip,
    }) => {
      const [one, other] = await open(skip);
      const first = tagIn(await one.append('a/log', bytes('12345'), 0, 'absent'));
      expect(await other.append('a/log', bytes('x'), 0, 'absent')).toBe('conflict');
      const second = tagIn(await other.append('a/log', bytes('cdef'), 2, first));
      expect([await textOf(one, 'a/log'), await one.findTag('a/log')]).toEqual(['12cdef', second]);
      expect(await one.append('a/log', bytes('x'), 6, first)).toBe('conflict');
      const opened = await getOpen(one, 'a/log');
      const read = async (from: number, length: number): Promise<string> =>
        Buffer.from(await opened.read(from, length)).toString();
      expect([await read(1, 3), await read(4, 10), await read(6, 1)]).toEqual(['2cd', 'ef', '']);
      await opened.close();
      await other.remove(['a/log']);
      expect(await one.append('a/log', bytes('x'), 6, second)).toBe('conflict');
      expect(await one.list('')).toEqual([]);
    });

    it('The folders of the keys are listed without reading them, and an object that is noted is seen by all', async ({
      skip,
    }) => {
      const [one, other] = await open(skip);
      for (const key of ['object', 'a/object', 'a/b/object', 'a/b/other', 'a/c/object'])
        await one.note(key, bytes('x'));
      expect([await other.folders(''), (await other.folders('a/')).toSorted()]).toEqual([['a'], ['b', 'c']]);
      expect(await other.folders('no/')).toEqual([]);
      await one.note('a/object', bytes('y'));
      expect(await textOf(other, 'a/object')).toBe('y');
    });

    it('An object that a later commit names is added once, and gets another key, in the place of what has it', async ({
      skip,
    }) => {
      const [one, other] = await open(skip);
      for (const key of ['one', 'other']) await one.add(key, bytes(key));
      await expect(other.add('one', bytes(''))).rejects.toMatchObject({ code: 'EEXIST' });
      await one.move('one', 'other');
      expect([await other.list(''), await textOf(other, 'other')]).toEqual([['other'], 'one']);
      await one.move('other', 'new/place');
      await one.sync(['other', 'new/place']);
      expect([await other.list(''), await textOf(other, 'new/place')]).toEqual([['new/place'], 'one']);
      await expect(one.move('other', 'no/place')).rejects.toMatchObject({ code: 'ENOENT' });
      expect(await other.folders('')).toEqual(['new']);
    });

    it('The mark of a list, where there is one, changes with its keys', async ({ skip }) => {
      const [one, other] = await open(skip);
      await one.create('object', bytes(''));
      const before = await one.findListTag('');
      await other.remove(['object']);
      const after = await one.findListTag('');
      expect(before === undefined || before !== after).toBe(true);
    });

    it('A place that keeps what is promised passes the probe, which leaves nothing', async ({ skip }) => {
      const [one] = await open(skip);
      await one.create('object', bytes(''));
      await one.probe();
      expect(await one.list('')).toEqual(['object']);
    });

    it('Work of one name runs one at a time and in its order, also if it fails, and may change objects meanwhile', async ({
      skip,
    }) => {
      const [one, other] = await open(skip);
      const done: number[] = [];
      const work = Array.from({ length: 30 }, (_, n) =>
        (n % 2 === 0 ? one : other).hold('', async () => {
          const before = done.length;
          await one.create(`object ${n}`, bytes(''));
          await one.remove([`object ${n}`]);
          await turn();
          expect(done.length).toBe(before);
          done.push(n);
          if (n === 7) throw new Error('it failed');
        }),
      );
      const ended = await Promise.allSettled(work);
      expect(ended.filter(({ status }) => status === 'rejected')).toMatchObject([{ reason: new Error('it failed') }]);
      expect(done).toEqual(Array.from({ length: 30 }, (_, n) => n));
    });
  });
}
