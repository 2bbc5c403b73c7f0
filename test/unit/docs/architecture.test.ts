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

/** Reports whether a source defines it: a function, a constant or a method. */
function isDefined(name: string): boolean {
  return new RegExp(`function\\*? ${name}\\b|const ${name}\\b|^\\s*(?:async )?${name}(?:\\(|: )`, 'm').test(sources);
}

describe('docs/ARCHITECTURE.md', () => {
  const page = read('docs/ARCHITECTURE.md');

  it.each([
    ['Write path', 'src/ingest/import-handler.ts', 'src/stream/guard.ts'],
    ['Flush path', 'src/compact/flush-loop.ts', 'src/compact/batch/flush-commit.ts'],
    ['Export path', 'src/export/api/export-routes.ts', 'src/export/api/views.ts'],
    ['Event lookup path', 'src/ingest/event-lookup.ts', 'src/lake/event-index/erased-ids.ts'],
  ])('The %s leads in five steps from %s to %s', (heading, first, last) => {
    const section = page.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
    const steps = [...section.matchAll(/^\d\. (.*)$/gm)].map(([, step = '']) =>
      [...step.matchAll(/`(src\/[\w/-]+\.ts)`/g)].map(([, file = '']) => file),
    );
    expect(steps.length).toBe(5);
    expect(steps.filter((files) => files.length === 0)).toEqual([]);
    const files = steps.flat();
    expect([files[0], files.at(-1)]).toEqual([first, last]);
    expect(files.length).toBeLessThanOrEqual(12);
    expect(new Set(files).size).toBe(files.length);
  });

  it('The page has every folder of src in its table', () => {
    const table = page.split('\n## Source layout\n')[1]?.split('\n## ')[0] ?? '';
    const listed = [...table.matchAll(/`src\/([\w-]+)`/g)].map(([, folder]) => folder);
    const folders = readdirSync(src, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    expect(folders.map(({ name }) => name).filter((name) => !listed.includes(name))).toEqual([]);
  });
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
