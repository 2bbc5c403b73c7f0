import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { eventFields } from '../../../src/datasets/event-fields.ts';
import { lineColumns } from '../../../src/datasets/event-line.ts';
import { digestEvent } from '../../../src/receipts/event-digest.ts';
import { arrayLiteral } from '../../../src/export/worker/selector-sql.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../../src/lake/sql/literals.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';

const read = (file: string): string => readFileSync(path.join(packageRoot, file), 'utf8');

/** Pages that describe the present state; the changelog also describes former ones. */
const pages = [
  'README.md',
  'CONTRIBUTING.md',
  ...readdirSync(path.join(packageRoot, 'docs'), { recursive: true }).map((name) => `docs/${String(name)}`),
].filter((file) => file.endsWith('.md') && existsSync(path.join(packageRoot, file)));

describe('README.md', () => {
  it('The README can be read in a few minutes', () => {
    expect(read('README.md').trimEnd().split('\n').length).toBeLessThan(150);
  });

  it('The figures of the README are those of docs/benchmarks.md', () => {
    const [, figures = ''] = read('README.md').split('\n## Performance\n');
    const stated = (figures.split('\n## ')[0] ?? '').match(/\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+/g) ?? [];
    const measured = read('docs/benchmarks.md');
    expect(stated.length).toBeGreaterThan(8);
    expect(stated.filter((figure) => !measured.includes(figure))).toEqual([]);
  });

  it('The README gives every dependency its reason, and lists none that is not installed', () => {
    const { dependencies, devDependencies } = JSON.parse(read('package.json')) as Record<
      'dependencies' | 'devDependencies',
      Record<string, string>
    >;
    const readme = read('README.md');
    const table = readme.slice(readme.indexOf('| package |')).split('\n\n')[0] ?? '';
    const named = table
      .split('\n')
      .flatMap((line) => [...(line.split('|')[1] ?? '').matchAll(/`([^`]+)`/g)].map(([, name = '']) => name));
    expect(named.toSorted()).toEqual([...Object.keys(dependencies), ...Object.keys(devDependencies)].toSorted());
  });
});

describe('docs/verification.md', () => {
  it('The page docs/verification.md lists the columns of the digest of an event, and its worked example is right', () => {
    const page = read('docs/verification.md');
    const [, list = '', salt = '', content = '', digest] =
      /```text\n(.+)\n```\n\n```sh\nprintf '%s\\n%s' (\w+) '(.+)' \| sha256sum\n# (\w+) {2}-\n/.exec(page) ?? [];
    expect(list.split(', ')).toEqual(lineColumns.map(({ name }) => name).toSorted());
    const entries = JSON.parse(content) as [string, unknown][];
    const values = Object.fromEntries(
      entries.map(([name, value]) => [name, Array.isArray(value) ? Object.fromEntries(value as []) : value]),
    );
    expect(digestEvent(salt, { event_id: '', ...values })).toBe(digest);
  });
});

describe('docs/api.md', () => {
  it('The page docs/api.md has the default of every field that has one', () => {
    const page = read('docs/api.md');
    const defaults = eventFields.flatMap(({ name, schema }) =>
      schema['default'] === undefined ? [] : [{ name, value: schema['default'] }],
    );
    expect(defaults.length).toBeGreaterThan(3);
    const isListed = ({ name, value }: (typeof defaults)[number]): boolean => page.includes(`\`${name}\` ${value}`);
    expect(defaults.filter((one) => !isListed(one))).toEqual([]);
  });

  it('The page docs/api.md has an expression by which DuckDB reads the array literals of a report as they were sent', async () => {
    const expression = /^`(replace\(.*::VARCHAR\[\])`\.$/m.exec(read('docs/api.md'))?.[1] ?? '';
    const texts = ['a\nb\n\nc', "it's", 'back\\slash', '\\n', '\\\n', '\r', ',]', 'plain', ''];
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    try {
      const [row] = await duckdb.rows(
        `SELECT to_json(${expression})::VARCHAR AS list FROM (SELECT ${arrayLiteral(sqlList(texts))} AS cell)`,
      );
      expect(JSON.parse(String(row?.['list']))).toEqual(texts);
    } finally {
      duckdb.close();
    }
  });
});

describe.each(pages)('%s', (page) => {
  it('The page names only files and make targets that exist', () => {
    const [text, makefile] = [read(page), read('Makefile')];
    for (const [, target] of text.matchAll(/(?:`|^)(?:[A-Z_]+=\S+ )*make ([a-z]+)/gm)) {
      expect(makefile, `make ${target}`).toMatch(new RegExp(`^${target}:`, 'm'));
    }
    for (const [, file] of text.matchAll(/`((?:src|test|schemas|pipelines|docs)\/[\w./-]*\w)`/g)) {
      expect(existsSync(path.join(packageRoot, file ?? '')), file).toBe(true);
    }
  });
});
