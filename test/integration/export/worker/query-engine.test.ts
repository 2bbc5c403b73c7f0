import { fileFormats } from '../../../../src/datasets/file-formats.ts';
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openQueryEngine, type QueryEngine } from '../../../../src/export/worker/query-engine.ts';
import type { ExportStatement } from '../../../../src/export/worker/export-query.ts';
import { emptyFilePath } from '../../../../src/lake/log/snapshot.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { writeLake } from '../../../helpers/lake-fixture.ts';

interface Jail {
  readonly root: string;
  readonly inside: string;
  readonly table: string;
  readonly engine: QueryEngine;
}

async function openJail(limits: { memoryMb?: number; tempMaxBytes?: number } = {}): Promise<Jail> {
  const root = testFolder();
  const table = path.join(root, 'table');
  const inside = path.join(root, 'attempt');
  mkdirSync(inside);
  await writeLake(table, []);
  writeFileSync(path.join(root, 'secret.csv'), 'secret\nvalue\n');
  symlinkSync(path.join(root, 'secret.csv'), path.join(inside, 'link.csv'));
  const engine = await openQueryEngine({
    apps: [],
    inline: true,
    folders: [table, inside],
    tempDir: inside,
    tempMaxBytes: 1024 ** 3,
    memoryMb: 256,
    threads: 1,
    ...limits,
  });
  onTestFinished(() => engine.close());
  return { root, inside, table, engine };
}

function statement(select: string): ExportStatement {
  return { sql: `SELECT * FROM (${select})`, values: {} };
}

/** DuckDB's errors for a statement that the locked engine refuses. */
const refused = /Permission Error|disabled by configuration|getenv does not exist/;

describe('the engine of an export', () => {
  it('The engine of an export reads and writes in its own folders', async () => {
    const { inside, table, engine } = await openJail();
    const out = path.join(inside, 'out.csv');
    expect(
      await engine.copyTo(
        statement(`SELECT count(*) AS rows FROM read_parquet('${emptyFilePath(table)}')`),
        [],
        out,
        fileFormats.csv.copyOptions,
      ),
    ).toBe(1);
    expect(readFileSync(out, 'utf8')).toBe('rows\n0\n');
  });

  it.each([
    ['a file elsewhere', (root: string) => `SELECT * FROM read_csv('${root}/secret.csv')`],
    [
      'a file elsewhere, by a path through its own folder',
      (root: string) => `SELECT * FROM read_csv('${root}/attempt/../secret.csv')`,
    ],
    [
      'a file elsewhere, by a link in its own folder',
      (root: string) => `SELECT * FROM read_csv('${root}/attempt/link.csv')`,
    ],
    ['the passwords of the machine', () => "SELECT * FROM read_text('/etc/passwd')"],
    ['an address', () => "SELECT * FROM read_csv('https://example.com/x.csv')"],
    ['the environment', () => "SELECT getenv('HOME')"],
  ])('The engine of an export does not read %s', async (_what, select) => {
    const { root, inside, engine } = await openJail();
    await expect(
      engine.copyTo(statement(select(root)), [], path.join(inside, 'out.csv'), fileFormats.csv.copyOptions),
    ).rejects.toThrow(refused);
  });

  it('The engine of an export does not write elsewhere', async () => {
    const { root, engine } = await openJail();
    await expect(
      engine.copyTo(statement('SELECT 1 AS one'), [], path.join(root, 'out.csv'), fileFormats.csv.copyOptions),
    ).rejects.toThrow(refused);
    expect(existsSync(path.join(root, 'out.csv'))).toBe(false);
  });

  it.each([
    ['COPY', (root: string) => `COPY (SELECT 1) TO '${root}/out.csv'`],
    ['EXPORT DATABASE', (root: string) => `EXPORT DATABASE '${root}/out'`],
    ['CREATE SECRET', () => 'CREATE PERSISTENT SECRET (TYPE http)'],
    ['a list of files', () => "SELECT count(*) FROM glob('/etc/*')"],
    ['the environment of its process', () => "SELECT count(*) FROM read_blob('/proc/self/environ')"],
  ])('The engine of an export refuses %s where a statement is expected', async (_what, count) => {
    const { root, engine } = await openJail();
    await expect(engine.run({ sql: count(root), values: {} }, [])).rejects.toThrow(refused);
    expect(readdirSync(root).toSorted()).toEqual(['attempt', 'secret.csv', 'table']);
  });

  it('The engine of an export sorts on disk within its bound, and reports a sort that exceeds it', async () => {
    const sorted = statement(
      'SELECT hash(i) AS h, repeat(md5(i::VARCHAR), 8) AS wide FROM range(400_000) AS t(i) ORDER BY h',
    );
    const roomy = await openJail({ memoryMb: 48 });
    const file = path.join(roomy.inside, 'out.csv');
    expect(await roomy.engine.copyTo(sorted, [], file, fileFormats.csv.copyOptions)).toBe(400_000);
    const tight = await openJail({ memoryMb: 48, tempMaxBytes: 20 * 1024 ** 2 });
    await expect(
      tight.engine.copyTo(sorted, [], path.join(tight.inside, 'out.csv'), fileFormats.csv.copyOptions),
    ).rejects.toMatchObject({ code: 'disk', message: expect.stringContaining('max_temp_directory_size') as string });
  });

  it('The engine of an export cannot change its own settings any more', async () => {
    const { inside, table, engine } = await openJail();
    const out = path.join(inside, 'out.csv');
    const names = [
      'enable_external_access',
      'lock_configuration',
      'autoload_known_extensions',
      'autoinstall_known_extensions',
    ];
    await engine.copyTo(
      statement(
        `SELECT name, value FROM duckdb_settings() WHERE name IN (${names.map((name) => `'${name}'`).join(', ')}) ORDER BY name`,
      ),
      [],
      out,
      fileFormats.csv.copyOptions,
    );
    expect(readFileSync(out, 'utf8').split('\n').slice(1, -1)).toEqual([
      'autoinstall_known_extensions,false',
      'autoload_known_extensions,false',
      'enable_external_access,false',
      'lock_configuration,true',
    ]);
    await engine.copyTo(
      statement("SELECT value FROM duckdb_settings() WHERE name = 'allowed_directories'"),
      [],
      out,
      fileFormats.csv.copyOptions,
    );
    for (const folder of [table, inside]) expect(readFileSync(out, 'utf8')).toContain(`${folder}/`);
  });
});
