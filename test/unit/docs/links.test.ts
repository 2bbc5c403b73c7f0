import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';

const pages = [
  'README.md',
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  'SECURITY.md',
  ...readdirSync(path.join(packageRoot, 'docs'), { recursive: true })
    .map(String)
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
].filter((page) => existsSync(path.join(packageRoot, page)));

/** Returns a page without its code blocks, in which brackets are not links and number signs not headings. */
function readProse(page: string): string {
  return readFileSync(path.join(packageRoot, page), 'utf8').replaceAll(/^```.*?^```$/gms, '');
}

/** Returns the anchors of a page: explicit ones, and those that GitHub creates for headings. */
function findAnchors(page: string): ReadonlySet<string> {
  const anchors = new Set([...readProse(page).matchAll(/<a id="([^"]+)"><\/a>/g)].map(([, id = '']) => id));
  for (const [, heading = ''] of readProse(page).matchAll(/^#{1,6} (.*)$/gm)) {
    const name = heading
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .trim()
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_\- ]/gu, '')
      .replaceAll(' ', '-');
    let anchor = name;
    for (let again = 1; anchors.has(anchor); again += 1) anchor = `${name}-${again}`;
    anchors.add(anchor);
  }
  return anchors;
}

/** Returns the links of a page to files and anchors of this repository. */
function findLinks(page: string): readonly string[] {
  const text = readProse(page).replaceAll(/`[^`\n]*`/g, '');
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link).filter((link) => !/^[a-z]+:/.test(link));
}

const attributeOf = (tag: string, name: string): string => new RegExp(`\\b${name}="([^"]*)"`).exec(tag)?.[1] ?? '';

/** Returns the pictures that a page shows, as Markdown or as HTML, each with its alternative text. */
function findPictures(page: string): readonly { readonly words: string; readonly file: string }[] {
  const text = readProse(page);
  return [
    ...[...text.matchAll(/!\[([^\]]*)\]\(([^)\s]+)\)/g)].map(([, words = '', link = '']) => [words, link] as const),
    ...[...text.matchAll(/<img\b[^>]*>/g)].map(([tag]) => [attributeOf(tag, 'alt'), attributeOf(tag, 'src')] as const),
  ]
    .filter(([, link]) => !/^[a-z]+:/.test(link))
    .map(([words, link]) => ({ words, file: path.posix.join(path.posix.dirname(page), link) }));
}

/** Returns the error of a link; undefined if it resolves. */
function findFault(page: string, link: string): string | undefined {
  const [file = '', anchor] = link.split('#');
  const target = file === '' ? page : path.posix.join(path.posix.dirname(page), file);
  if (target.startsWith('..') || !existsSync(path.join(packageRoot, target)))
    return `${page}: ${link}: there is no ${target}`;
  if (anchor !== undefined && !findAnchors(target).has(anchor))
    return `${page}: ${link}: ${target} has no such heading`;
  return undefined;
}

describe('the pages', () => {
  it.each(pages)('The page %s has only links that resolve', (page) => {
    expect(
      findLinks(page)
        .map((link) => findFault(page, link))
        .filter((fault) => fault !== undefined),
    ).toEqual([]);
  });

  it('Every picture of the pages exists, is small, is shown on a page, and has alternative text', () => {
    const shown = pages.flatMap((page) => findPictures(page));
    const files = [...new Set(shown.map(({ file }) => file))].toSorted();
    const there = readdirSync(path.join(packageRoot, 'docs/images')).map((name) => `docs/images/${name}`);
    expect(files).toEqual(there.toSorted());
    expect(shown.filter(({ words }) => words.length < 15)).toEqual([]);
    const bytes = files.map((file) => statSync(path.join(packageRoot, file)).size);
    expect(Math.max(...bytes)).toBeLessThan(150_000);
    expect(bytes.reduce((sum, size) => sum + size, 0)).toBeLessThan(500_000);
  });

  it('Every page and anchor that a source or a test names exists', () => {
    const faults = ['src', 'test'].flatMap((folder) =>
      readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
        .filter((name) => /\.tsx?$/.test(name) && !name.includes('node_modules'))
        .flatMap((name) => {
          const text = readFileSync(path.join(packageRoot, folder, name), 'utf8');
          const links = [...text.matchAll(/\bdocs\/[\w./-]+\.md(?:#[\w-]+)?/g)].map(([link]) => link);
          return links.map((link) => findFault('README.md', link)?.replace('README.md', `${folder}/${name}`));
        })
        .filter((fault) => fault !== undefined),
    );
    expect(faults).toEqual([]);
  });

  it('Every page can be reached from the README', () => {
    const reached = new Set(['README.md']);
    for (const page of reached) {
      for (const link of findLinks(page)) {
        const target = path.posix.join(path.posix.dirname(page), link.split('#')[0] ?? '');
        if (pages.includes(target)) reached.add(target);
      }
    }
    expect(pages.filter((page) => !reached.has(page))).toEqual([]);
  });
});
