import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { findTitleFault, readTestTitles } from '../helpers/test-titles.ts';

const tests = path.resolve(import.meta.dirname, '..');
const files = readdirSync(tests, { recursive: true, encoding: 'utf8' })
  .filter((file) => /\.(test|bench)\.ts$/.test(file))
  .toSorted();

describe('the titles of the tests', () => {
  it('Every title of a test is a sentence that needs no context', () => {
    const titles = files.flatMap((file) =>
      readTestTitles(readFileSync(path.join(tests, file), 'utf8')).map((title) => ({ file, ...title })),
    );
    expect(titles.length).toBeGreaterThan(800);
    const faults = titles.flatMap(({ file, line, title }) => {
      const fault = findTitleFault(title);
      return fault === undefined ? [] : [`${file}:${line}: '${title}' ${fault}`];
    });
    expect(faults).toEqual([]);
  });

  it.each([
    'is refused',
    'is refused with its reason',
    'of a batch stores all of it or nothing',
    'Refuses too many events.',
    '%s: %s',
  ])('The rule refuses the title %j', (title) => {
    expect(findTitleFault(title)).toBeDefined();
  });

  it.each([
    'A batch is stored completely or not at all',
    "'lake snapshot' prints a text",
    '%s is refused',
    '20 events fit in',
  ])('The rule accepts the title %j', (title) => {
    expect(findTitleFault(title)).toBeUndefined();
  });

  it('The reader of titles finds those of plain, conditional and table-driven tests, and no names of groups', () => {
    const text = `
describe('a batch', () => {
  it('A batch is stored', () => {});
  it.runIf(isFull)(
    \`A batch of \${count} events is stored\`,
    () => {},
  );
  test.for<{ readonly count: number }>([{ count: 1 }])('A batch of $count is stored', () => {});
  it.each(['it', 'A text of a table'])("The batch's event %s is stored", () => pattern.test('no title'));
});`;
    expect(readTestTitles(text)).toEqual([
      { line: 3, title: 'A batch is stored' },
      { line: 4, title: 'A batch of ${count} events is stored' },
      { line: 8, title: 'A batch of $count is stored' },
      { line: 9, title: "The batch's event %s is stored" },
    ]);
  });
});
