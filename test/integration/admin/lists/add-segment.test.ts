import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { openDuckdb } from '../../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../../src/lake/sql/literals.ts';
import { addSegment } from '../../../../src/admin/lists/add-segment.ts';
import type { ListInput } from '../../../../src/admin/lists/text-lines.ts';
import { findSegment, listSegments, removeSegment } from '../../../../src/segments/segment-store.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { listOf, listOptions } from '../../../helpers/lists.ts';

const segment = { idAccount: 1, idSegment: 5, kind: 'custom' } as const;
const add = (folder: string, list: ListInput, which: typeof segment = segment) =>
  addSegment(folder, which, list, listOptions);

/** Returns the ids in the file of a segment; undefined without one. */
async function readIds(folder: string, which = segment): Promise<unknown[] | undefined> {
  const found = await findSegment(folder, which);
  if (found === undefined) return undefined;
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  try {
    const rows = await duckdb.rows(
      `SELECT to_json(id)::VARCHAR AS id FROM read_parquet(${sqlText(found.absolutePath)})`,
    );
    return rows.map(({ id }) => JSON.parse(String(id)) as unknown);
  } finally {
    duckdb.close();
  }
}

/** Lists all files below a folder except locks. */
const listAll = (folder: string): string[] =>
  readdirSync(folder, { recursive: true })
    .map(String)
    .filter((name) => !name.endsWith('.lock'))
    .toSorted();

/** 200,000 lines in 20 pieces, of which the last 10,000 repeat the first. */
async function* manyLines(): AsyncGenerator<Uint8Array> {
  for (let block = 0; block < 20; block += 1) {
    const ids = Array.from(
      { length: 10_000 },
      (_, n) => `0b5c2a3e-77aa-4c0f-9d1e-${String((block * 10_000 + n) % 190_000).padStart(12, '0')}\n`,
    );
    yield await Promise.resolve(Buffer.from(ids.join('')));
  }
}

describe('segment add', () => {
  it('A segment has each id of its list once, sorted and unchanged, for any line ends', async () => {
    const folder = path.join(testFolder(), 'lists');
    const ids = ['b', ' a ', '"q', '007', 'ÿ', '日本', '🙂', 'x,y', '\\n', '\uFEFFz', 'b'];
    const list = `\uFEFF${ids.slice(0, 4).join('\n')}\r\n\n\r\n${ids.slice(4).join('\r\n')}`;
    expect(await add(folder, listOf(list))).toEqual({ ...segment, members: 10, ids: 10, lines: 11, replaced: false });
    const expected = [...new Set(ids)].toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    expect(await readIds(folder)).toEqual(expected);
  });

  it('A segment does not depend on the chunks of its list, or on compression by gzip', async () => {
    const folder = path.join(testFolder(), 'lists');
    const list = `é1\r\n${'x'.repeat(1024)}\n日本\nlast`;
    for (const bytes of [Buffer.from(list), gzipSync(list)]) {
      for (const pieceBytes of [1, 2, 3, 7, 1500]) {
        await add(folder, listOf(bytes, pieceBytes));
        expect(await readIds(folder)).toEqual(['last', 'x'.repeat(1024), 'é1', '日本']);
      }
    }
  });

  it('A list with bad lines is refused by line and reason, and the segment stays unchanged', async () => {
    const folder = path.join(testFolder(), 'lists');
    await add(folder, listOf('old'));
    const before = listAll(folder);
    const bad = Buffer.concat([
      Buffer.from(`good\n${'é'.repeat(1025)}\n`),
      Buffer.from([0x61, 0xff, 0x0a]),
      Buffer.from(`\n${'x'.repeat(70_000)}\nz\n`),
      Buffer.from('nul\0\n'),
    ]);
    for (const pieceBytes of [64 * 1024, 1000, 1_000_000])
      expect(await add(folder, listOf(bad, pieceBytes))).toMatchObject({
        file: 'list',
        badLines: 4,
        first: expect.arrayContaining([
          { line: 2, reason: 'is longer than 1024 characters' },
          { line: 3, reason: 'is not UTF-8' },
          { line: 5, reason: expect.stringContaining('is longer than') as string },
          { line: 7, reason: 'contains NUL' },
        ]) as unknown,
      });
    expect(listAll(folder)).toEqual(before);
    expect(await readIds(folder)).toEqual(['old']);
  });

  it('A list that is empty, damaged or cannot be read changes nothing and leaves nothing behind', async () => {
    const folder = path.join(testFolder(), 'lists');
    await expect(add(folder, listOf('\n\r\n'))).rejects.toMatchObject({ code: 'usage', message: 'list has no id' });
    const gzip = gzipSync('one\ntwo\n');
    for (const damaged of [gzip.subarray(0, -4), Buffer.concat([gzip.subarray(0, 12), Buffer.alloc(20, 0xff)])])
      await expect(add(folder, listOf(damaged))).rejects.toMatchObject({
        code: 'usage',
        message: expect.stringContaining('gzip is damaged') as string,
      });
    const stop = AbortSignal.abort();
    await expect(addSegment(folder, segment, listOf('a'), { ...listOptions, signal: stop })).rejects.toMatchObject({
      code: 'stopping',
    });
    expect(listAll(folder)).toEqual(['work']);
  });

  it('A segment belongs to its account, is replaced entirely with its kind, and can be removed', async () => {
    const folder = path.join(testFolder(), 'lists');
    await add(folder, listOf('mine'));
    await addSegment(folder, { ...segment, idAccount: 2 }, listOf('theirs'), listOptions);
    expect(await addSegment(folder, { ...segment, kind: 'device' }, listOf('d1\nd2'), listOptions)).toMatchObject({
      replaced: true,
    });
    expect(await listSegments(folder)).toMatchObject([
      { idAccount: 1, idSegment: 5, kind: 'device', ids: 2 },
      { idAccount: 2, idSegment: 5, kind: 'custom', ids: 1 },
    ]);
    expect(readdirSync(path.join(folder, '1'))).toHaveLength(2);
    await removeSegment(folder, segment);
    expect(readdirSync(path.join(folder, '1'))).toEqual([]);
    expect(await findSegment(folder, { idAccount: 2, idSegment: 5 })).toMatchObject({ ids: 1 });
    await expect(removeSegment(folder, segment)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('Two concurrent adds of one segment leave one of the two sets, with its file only', async () => {
    const folder = path.join(testFolder(), 'lists');
    const sets = [0, 1, 2, 3].map((n) => [`${n}a`, `${n}b`]);
    await Promise.all(sets.map((ids) => add(folder, listOf(ids.join('\n')))));
    expect(sets).toContainEqual(await readIds(folder));
    expect(readdirSync(path.join(folder, '1'))).toHaveLength(2);
    expect(listAll(path.join(folder, 'work'))).toEqual([]);
  });

  it('Leftovers of a killed add are removed by the next one, and a damaged record is named and can be replaced', async () => {
    const folder = path.join(testFolder(), 'lists');
    await add(folder, listOf('a'));
    const left = path.join(folder, '1', `9-${'0'.repeat(16)}.parquet`);
    for (const file of [left, path.join(folder, '1', '5.json.1.ab.tmp')]) writeFileSync(file, 'left');
    writeFileSync(path.join(folder, '1', '5.json'), '{"version":2}');
    await expect(findSegment(folder, segment)).rejects.toMatchObject({ code: 'record_damaged' });
    expect(await add(folder, listOf('b'))).toMatchObject({ replaced: true });
    expect(existsSync(left)).toBe(false);
    expect(await readIds(folder)).toEqual(['b']);
    expect(readdirSync(path.join(folder, '1'))).toHaveLength(2);
  });

  it('A list of several hundred thousand ids in many pieces has each id once', async () => {
    const folder = path.join(testFolder(), 'lists');
    const added = await add(folder, { name: 'many', pieces: manyLines() });
    expect(added).toMatchObject({ ids: 190_000, lines: 200_000 });
  }, 60_000);
});
