import { expect, it, onTestFinished } from 'vitest';
import { mainType, parameterTypes, typedSql, typeOfSql } from '../../../../src/lake/catalogue/parameter-types.ts';
import { openDuckdb } from '../../../../src/lake/sql/duckdb.ts';

const extremes = [
  1e-7,
  1.7e308,
  Number.MIN_VALUE,
  Number.MAX_VALUE,
  1e21,
  2 ** 64,
  -(2 ** 70),
  0.1 + 0.2,
  1 / 3,
  0,
  -1,
];

/** Returns the type of each text, and its value as a decimal. */
async function judge(texts: readonly string[]) {
  const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
  onTestFinished(() => duckdb.close());
  return await duckdb.rows(
    `SELECT text, ${typeOfSql('text')} AS type, ${typedSql('text', 'decimal')} AS value FROM (SELECT unnest($1::JSON::VARCHAR[]) AS text)`,
    [JSON.stringify(texts)],
  );
}

it('Every number that JavaScript writes is a number with its value', async () => {
  const doubles = new Float64Array(crypto.getRandomValues(new Uint8Array(1600)).buffer);
  const numbers = [
    ...Array.from({ length: 800 }, () => Math.random() ** 3),
    ...extremes,
    ...[...doubles].filter(Number.isFinite),
  ];
  for (const row of await judge([...numbers.map(String), '1E5', '1e5', '-0', '0.10', '-0.0', '9'.repeat(60)])) {
    expect(['integer', 'long', 'decimal'], String(row['text'])).toContain(row['type']);
    expect(row['value'], String(row['text'])).toBe(Number(row['text']));
  }
});

it('A text is not a number if JSON has no such number, or if its value would differ', async () => {
  const texts = ['007', '-01.5', '1.', '.5', '+1', '0x1', '1_000', '1,5', 'NaN', 'Infinity', '1e999', '١', '1e', ' 1'];
  for (const row of await judge(texts)) expect(row).toMatchObject({ type: 'text' });
  expect(await judge(['', ' ', '9'.repeat(18), '9'.repeat(19)])).toMatchObject(
    ['empty', 'empty', 'integer', 'long'].map((type) => ({ type })),
  );
});

it('A parameter has the widest type that its values need, and the count of values without that type', () => {
  const none = Object.fromEntries(parameterTypes.map((type) => [type, 0])) as Record<
    (typeof parameterTypes)[number],
    number
  >;
  const of = (counts: Partial<typeof none>) => mainType({ ...none, ...counts });
  expect(of({ integer: 100, empty: 900 })).toEqual({ type: 'integer', untyped: 0 });
  expect(of({ integer: 99, long: 1 })).toEqual({ type: 'long', untyped: 0 });
  expect(of({ integer: 98, long: 1, decimal: 1 })).toEqual({ type: 'decimal', untyped: 0 });
  expect(of({ integer: 200, decimal: 1, text: 2, date: 1 })).toEqual({ type: 'text', untyped: 0 });
  expect(of({ integer: 399, decimal: 1, text: 2, date: 1 })).toEqual({ type: 'decimal', untyped: 3 });
  expect(of({ date: 99, time: 1, boolean: 1 })).toEqual({ type: 'time', untyped: 1 });
  expect(of({ empty: 3 })).toEqual({ type: 'empty', untyped: 0 });
});
