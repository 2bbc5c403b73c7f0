import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { arrayLiteral } from '../../../src/export/worker/query.ts';
import { openDuckdb, sqlList } from '../../../src/lake/sql/duckdb.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';

const readme = readFileSync(path.join(packageRoot, 'README.md'), 'utf8');

describe('the README', () => {
  it('lists every setting, and none that is not there', () => {
    const source = readFileSync(path.join(packageRoot, 'src/config.ts'), 'utf8');
    const settings = [...source.matchAll(/read\.\w+\('([A-Z0-9_]+)'/g)].map(([, name]) => `TRIBUTARY_${name}`);
    const setup = ['TRIBUTARY_CACHE_DIR'];
    const listed = readme.split('\n').filter((line) => line.startsWith('| `TRIBUTARY_')).flatMap((line) => line.split('|')[1]?.match(/TRIBUTARY_[A-Z0-9_]+/g) ?? []);
    expect(listed.toSorted()).toEqual([...settings, ...setup].toSorted());
  });

  it('has an expression by which DuckDB reads the array literals of a report as they were sent', async () => {
    const expression = /^`(replace\(.*::VARCHAR\[\])`\.$/m.exec(readme)?.[1] ?? '';
    const texts = ['a\nb\n\nc', "it's", 'back\\slash', '\\n', '\\\n', '\r', ',]', 'plain', ''];
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    try {
      const [row] = await duckdb.rows(`SELECT to_json(${expression})::VARCHAR AS list FROM (SELECT ${arrayLiteral(sqlList(texts))} AS cell)`);
      expect(JSON.parse(String(row?.['list']))).toEqual(texts);
    } finally {
      duckdb.close();
    }
  });

  it('names only files and make targets that exist', () => {
    const makefile = readFileSync(path.join(packageRoot, 'Makefile'), 'utf8');
    for (const [, target] of readme.matchAll(/`?make ([a-z]+)/g)) {
      if (['must', 'alone'].includes(target ?? '')) continue;
      expect(makefile, `make ${target}`).toMatch(new RegExp(`^${target}:`, 'm'));
    }
    for (const [, file] of readme.matchAll(/`((?:src|test|schemas|pipelines)\/[\w./-]*\w)`/g)) {
      expect(existsSync(path.join(packageRoot, file ?? '')), file).toBe(true);
    }
  });
});
