import { expect, onTestFinished, test } from 'vitest';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';

test('The engine returns texts unchanged, also with a leading byte order mark, short or long, alone or in a list', async () => {
  const duckdb = await openDuckdb({ memoryMb: 64, threads: 1 });
  onTestFinished(() => duckdb.close());
  const texts = ['\uFEFF', '\uFEFFa', '\uFEFF\uFEFFb', `\uFEFF${'long '.repeat(9)}`, 'c\uFEFF', ''];
  for (const text of texts)
    expect(await duckdb.rows('SELECT $1 AS alone, [$1] AS list, MAP {$1: $1} AS map', [text])).toEqual([
      { alone: text, list: [text], map: [{ key: text, value: text }] },
    ]);
});
