import path from 'node:path';
import { writeFileSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { ObjectStore, Tag } from '../../../../src/runtime/store/object-store.ts';
import { testFolder } from '../../../helpers/folder.ts';

const bytes = (text: string): Uint8Array => Buffer.from(text);

async function textOf(store: ObjectStore, key: string): Promise<string | undefined> {
  const found = await store.get(key);
  return found === undefined ? undefined : Buffer.from(found.bytes).toString();
}

/** Replaces an object that nobody else changes meanwhile. */
async function put(store: ObjectStore, key: string, text: string, ifTag: Tag | 'any' = 'any'): Promise<Tag> {
  const tag = await store.replace(key, bytes(text), ifTag);
  if (tag === 'conflict') throw new Error(`${key} has another tag`);
  return tag;
}

async function tagOf(store: ObjectStore, key: string): Promise<Tag> {
  return (await store.get(key))?.tag ?? '#';
}

/** What every store has to do. `open` gives two clients of one new store, as two processes have them. */
export function describeObjectStore(open: () => Promise<readonly [ObjectStore, ObjectStore]>): void {
  describe('an object store', () => {
    it('An object is created once, by whichever of many clients, and keeps what its creator has written', async () => {
      const [one, other] = await open();
      const results = await Promise.all(
        Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? one : other).create('a/b/object', bytes(`${n}`))),
      );
      expect(results.filter((result) => result === 'created')).toHaveLength(1);
      expect(await textOf(other, 'a/b/object')).toBe(String(results.indexOf('created')));
    });

    it('An object is replaced by whoever has its newest tag, and by nobody else', async () => {
      const [one, other] = await open();
      await one.create('object', bytes('first'));
      const first = await tagOf(other, 'object');
      const second = await put(one, 'object', 'second', first);
      expect(await other.replace('object', bytes('third'), first)).toBe('conflict');
      expect([await textOf(other, 'object'), await tagOf(other, 'object')]).toEqual(['second', second]);
      await one.remove(['object']);
      expect(await other.replace('object', bytes('third'), second)).toBe('conflict');
      expect(await textOf(one, 'object')).toBeUndefined();
    });

    it('Of many changes that compare before they write, none is lost', async () => {
      const [one, other] = await open();
      await one.create('count', bytes('0'));
      const add = async (store: ObjectStore): Promise<void> => {
        for (;;) {
          const found = await store.get('count');
          if (found === undefined) throw new Error('it is gone');
          const next = String(Number(Buffer.from(found.bytes).toString()) + 1);
          if ((await store.replace('count', bytes(next), found.tag)) !== 'conflict') return;
        }
      };
      await Promise.all(Array.from({ length: 12 }, (_, n) => add(n % 2 === 0 ? one : other)));
      expect(await textOf(one, 'count')).toBe('12');
    });

    it('An object is replaced whatever is there, and read again only if it has changed', async () => {
      const [one, other] = await open();
      const first = await put(one, 'new/object', 'first');
      expect(await other.getIfChanged('new/object', first)).toBe('unchanged');
      const second = await put(one, 'new/object', 'second');
      expect(await other.getIfChanged('new/object', first)).toMatchObject({ tag: second });
      await one.remove(['new/object', 'new/no-object']);
      expect(await other.getIfChanged('new/object', second)).toBeUndefined();
      expect(await other.get('no/such/object')).toBeUndefined();
    });

    it('Objects are listed by the folders of their keys, without what is no object', async () => {
      const [one, other] = await open();
      expect(await other.list('')).toEqual([]);
      for (const key of ['a', 'b/c', 'b/d/e', 'bc']) await one.create(key, bytes(key));
      await one.hold('b', async () => undefined);
      await one.remove(['a']);
      expect((await other.list('')).toSorted()).toEqual(['b/c', 'b/d/e', 'bc']);
      expect((await other.list('b/')).toSorted()).toEqual(['b/c', 'b/d/e']);
      expect(await other.list('c/')).toEqual([]);
      await other.sweep('b/');
      expect(await textOf(other, 'b/c')).toBe('b/c');
    });

    it('A finished local file becomes an object', async () => {
      const [one, other] = await open();
      const file = path.join(testFolder(), 'file');
      writeFileSync(file, 'its bytes');
      await one.upload('files/object', file);
      expect(await textOf(other, 'files/object')).toBe('its bytes');
    });

    it('Work of one name runs one at a time and in its order, also if it fails, and may change objects meanwhile', async () => {
      const [one, other] = await open();
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
