import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';

/** Maximum words of a sentence and of a table cell. */
const mostWords = 25;
/** Maximum average of words per sentence of a page. */
const averageWords = 15;
/** Maximum words of all pages, without code blocks and docs/reference. */
const totalWords = 28_000;

function listPages(folder: string): readonly string[] {
  const full = path.join(packageRoot, folder);
  const names = existsSync(full) ? readdirSync(full) : [];
  return names.filter((name) => name.endsWith('.md')).map((name) => path.posix.join(folder, name));
}

const pages = [...listPages('.'), ...listPages('docs')];

interface Prose {
  readonly sentences: readonly string[];
  readonly cells: readonly string[];
}

/** Splits a page into sentences and table cells. Skips code blocks, headings, comments and link targets. */
function readProse(page: string): Prose {
  const text = readFileSync(path.join(packageRoot, page), 'utf8')
    .replaceAll(/^```.*?^```$/gms, '\n')
    .replaceAll(/<!--.*?-->|<[^>\n]+>/gs, '')
    .replaceAll(/\]\([^)\s]*\)/g, ']')
    .replaceAll(/`[^`]*`/g, 'code');
  const lines = text.split('\n');
  const cells = lines
    .filter((line) => line.startsWith('|') && !/^[|\s:-]+$/.test(line))
    .flatMap((line) => line.split('|').map((cell) => cell.trim()));
  const prose = lines
    .map((line) => (/^(?:\||#)/.test(line) ? '' : line.replace(/^\s*(?:[-*]|\d+\.) /, '\n$&')))
    .join('\n');
  const sentences = prose
    .split(/\n\s*\n/)
    .flatMap((block) => block.replaceAll(/\s+/g, ' ').split(/(?<=[.!?][*_)"]*) /));
  return { sentences: sentences.filter((one) => countWords(one) > 0), cells };
}

const countWords = (text: string): number => text.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;

const sum = (numbers: readonly number[]): number => numbers.reduce((total, one) => total + one, 0);

describe('The pages', () => {
  it.each([...pages, ...listPages('docs/reference')])(
    'The page %s has no sentence and no table cell of more than 25 words',
    (page) => {
      const { sentences, cells } = readProse(page);
      expect([...sentences, ...cells].filter((text) => countWords(text) > mostWords)).toEqual([]);
    },
  );

  it.each(pages)('The sentences of the page %s have at most 15 words on average', (page) => {
    const counts = readProse(page).sentences.map(countWords);
    expect(sum(counts) / counts.length).toBeLessThanOrEqual(averageWords);
  });

  it('All pages without the reference have at most 28,000 words', () => {
    const counts = pages.map((page) => {
      const { sentences, cells } = readProse(page);
      return sum([...sentences, ...cells].map(countWords));
    });
    expect(sum(counts)).toBeLessThanOrEqual(totalWords);
  });
});
