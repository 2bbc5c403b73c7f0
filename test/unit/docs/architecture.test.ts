import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';

const read = (file: string): string => readFileSync(path.join(packageRoot, file), 'utf8');

const src = path.join(packageRoot, 'src');
const sources = readdirSync(src, { recursive: true })
  .map(String)
  .filter((name) => /\.tsx?$/.test(name))
  .map((name) => readFileSync(path.join(src, name), 'utf8'))
  .join('\n');

/** Says whether a source defines it: a function, a constant or a method. */
function isDefined(name: string): boolean {
  return new RegExp(`function\\*? ${name}\\b|const ${name}\\b|^\\s*(?:async )?${name}(?:\\(|: )`, 'm').test(sources);
}

describe('docs/ARCHITECTURE.md', () => {
  const walks = read('docs/ARCHITECTURE.md')
    .split('\n\n')
    .filter((paragraph) => paragraph.startsWith('*Walk:*'))
    .map((paragraph) => [...paragraph.matchAll(/`([^`]+)`/g)].map(([, file = '']) => file));

  it('The walks lead from the request to the Parquet file, from the create of an export to its links, and from a question to the last place', () => {
    expect(walks.map((files) => [files[0], files.at(-1)])).toEqual([
      ['src/ingest/import-handler.ts', 'src/lake/files/data-file.ts'],
      ['src/export/api/export-routes.ts', 'src/export/api/views.ts'],
      ['src/ingest/event-look-up.ts', 'src/lake/find/erased-ids.ts'],
    ]);
  });

  it.each(walks.map((files) => [files[0], files] as const))(
    'The walk from %s has at most twelve files, none of them twice',
    (_, files) => {
      expect(files.length).toBeLessThanOrEqual(12);
      expect(new Set(files).size).toBe(files.length);
      expect(files.filter((file) => !existsSync(path.join(packageRoot, file)))).toEqual([]);
    },
  );
});

describe.each(['docs/ARCHITECTURE.md', 'CONTRIBUTING.md'])('%s', (page) => {
  const text = read(page);
  const code = [...text.matchAll(/`([^`\n]+)`/g)].map(([, words = '']) => words);

  it('The page names only files and folders that exist', () => {
    const paths = code.filter(
      (words) =>
        /^(?:src|test|docs|schemas|pipelines)\/[\w./-]+$|^[\w./-]+\/[\w.-]+\.(?:ts|json|md)$/.test(words) &&
        !/^(?:data|lake|reports|_delta_log)\//.test(words),
    );
    expect(paths.length).toBeGreaterThan(10);
    expect(paths.filter((file) => !existsSync(path.join(packageRoot, file)))).toEqual([]);
  });

  it('The page names only functions that exist', () => {
    const names = code.flatMap((words) => /^(\w+)\(\)$/.exec(words)?.[1] ?? []);
    expect(names.filter((name) => !isDefined(name))).toEqual([]);
  });

  it('The page links only to pages that exist', () => {
    const links = [...text.matchAll(/\]\(([^)#:]+)\)/g)].map(([, link = '']) => link);
    expect(links.filter((link) => !existsSync(path.join(packageRoot, path.dirname(page), link)))).toEqual([]);
  });
});
