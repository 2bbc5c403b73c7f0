import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { problemCodes } from '../../../src/runtime/problems/problem.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { renderReference } from '../../helpers/reference-pages.ts';

const folder = path.join(packageRoot, 'docs/reference');
const pages = await renderReference();
const sources = readdirSync(path.join(packageRoot, 'src'), { recursive: true })
  .map(String)
  .filter((name) => name.endsWith('.ts'))
  .map((name) => ({ name, text: readFileSync(path.join(packageRoot, 'src', name), 'utf8') }));

/** Maximum number of words in a table cell. */
const mostWords = 25;

function listCells(text: string): readonly string[] {
  const lines = text.split('\n').filter((line) => line.startsWith('| '));
  return lines.flatMap((line) => line.slice(2, -2).split(/(?<!\\)\|/)).map((cell) => cell.trim());
}

const countWords = (cell: string): number =>
  cell
    .replaceAll(/<[^>]*>/g, '')
    .split(/\s+/)
    .filter(Boolean).length;

it.each(Object.entries(pages))(
  'The page %s of docs/reference matches the declarations: make docs writes it again',
  async (name, text) => {
    await expect(text).toMatchFileSnapshot(path.join(folder, name));
  },
);

it.each(Object.entries(pages))('Cells of %s have at most 25 words, and its anchors are unique', (_name, text) => {
  expect(listCells(text).filter((cell) => countWords(cell) > mostWords)).toEqual([]);
  const ids = [...text.matchAll(/<a id="([^"]+)">/g)].map(([, id]) => id);
  expect(ids.filter((id, index) => ids.indexOf(id) !== index)).toEqual([]);
});

it('Every problem code is reported by some part', () => {
  const parts = sources.filter(({ name }) => !name.startsWith('runtime/problems/'));
  expect(problemCodes.filter((code) => !parts.some(({ text }) => text.includes(`code: '${code}'`)))).toEqual([]);
});

it('The page metrics.md has every metric that a source registers', () => {
  const made = /\.(?:counter|tally|gauge|readGauge|histogram)(?:<[^>]*>)?\(\s*'(\w+)'/g;
  const names = sources.flatMap(({ text }) => [...text.matchAll(made)].map(([, name]) => `tributary_${name}`));
  const listed = [...(pages['metrics.md'] ?? '').matchAll(/<a id="(\w+)">/g)].map(([, id = '']) => id);
  expect(names.length).toBeGreaterThan(30);
  expect(listed.toSorted()).toEqual(names.toSorted());
});

it('The folder docs/reference has the generated pages and no others', () => {
  expect(readdirSync(folder).toSorted()).toEqual(Object.keys(pages).toSorted());
});
