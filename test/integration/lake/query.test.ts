import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { beforeAll, describe, expect, it } from 'vitest';
import type { CommandContext } from '../../../src/cli/command.ts';
import { queryCommand } from '../../../src/cli/query.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import { inTurn } from '../../helpers/in-turn.ts';
import { eventLine, query, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { runCommandHere } from '../../helpers/run-command.ts';
import { waitFor } from '../../helpers/wait.ts';

const data = temporaryFolder();
const lakeDir = path.join(data, 'lake');
const never = new AbortController().signal;

interface Asked {
  readonly code: number | string;
  readonly out: string;
  readonly noted: string;
}

/** Runs `tributary query` in this process. */
async function ask(
  words: readonly string[],
  { failsWhole = false, ...changes }: Partial<CommandContext> & { readonly failsWhole?: boolean } = {},
): Promise<Asked> {
  let out = '';
  const noted: string[] = [];
  const context: CommandContext = {
    environment: { TRIBUTARY_DUCKDB_MEMORY_MB: '256' },
    entry: '',
    printResult: (value) => void (out += `${JSON.stringify(value)}\n`),
    print: (line) => void (out += `${line}\n`),
    write: (text) => {
      out += text;
      return Promise.resolve();
    },
    printMessage: (line) => void noted.push(line),
    stop: never,
    force: never,
    ...changes,
  };
  const code = await runCommandHere(queryCommand, [...words, '--data', data], context).catch((error: unknown) => {
    if (failsWhole) throw error;
    return error instanceof Error ? error.message : String(error);
  });
  return { code, out, noted: noted.join('\n') };
}

const given = (text: string) => ({ input: () => new PassThrough().end(text) });
const everything = (): string[] => readdirSync(data, { recursive: true }).map(String).toSorted();
const outsideSpool = (): string[] => everything().filter((name) => !name.startsWith('spool'));

beforeAll(async () => {
  const stream = createMemoryStream();
  const compactor = await startTestCompact(data, stream);
  stream.publish([3, 1, 2].map((age) => eventLine({ age, custom_user_id: age === 1 ? 'a,"b"\n' : `user ${age}` })));
  await waitFor('stored', async () => (await readSnapshot(path.join(lakeDir, 'events'))).lake?.totals.stored === 3);
  await compactor.stop();
});

describe('a query', () => {
  it('The error of a missing custom event view says that it is created when events are sealed', async () => {
    for (const sql of ['FROM app_1.level_up()', 'SELECT count(*) FROM app_1.level_up()'])
      await expect(ask([sql], { failsWhole: true })).rejects.toMatchObject({
        message: expect.stringMatching(/does not exist/) as string,
        hint: expect.stringMatching(/once events of that name are sealed.*TRIBUTARY_SEAL_AGE_MS/) as string,
      });
  });

  it('A query reads the newest version of the lake by the views of snapshot.sql, in its order, as JSON in a pipe', async () => {
    const sql = 'SELECT age, custom_user_id AS who FROM events ORDER BY age DESC -- the eldest first';
    expect(await ask([sql])).toEqual({
      code: 0,
      out: '{"age":3,"who":"user 3"}\n{"age":2,"who":"user 2"}\n{"age":1,"who":"a,\\"b\\"\\n"}\n',
      noted: '',
    });
    const two = 'SELECT 1 AS a, 2 AS a; SELECT count(*) AS n FROM registration;';
    expect((await ask([two])).out).toBe('{"a":1,"a_1":2}\n{"n":0}\n');
    expect((await ask([], given('SELECT 7 AS seven'))).out).toBe('{"seven":7}\n');
    expect((await ask([], given(' -- none'))).code).toContain('no SQL given');
  });

  it('A query prints CSV and writes all formats to a file, which is complete or missing', async () => {
    const sql = "SELECT age, custom_user_id AS who, NULL AS no, '' AS empty FROM events ORDER BY age LIMIT 2";
    expect((await ask([sql, '--format', 'csv'])).out).toBe('age,who,no,empty\n1,"a,""b""\n",,""\n2,user 2,,""\n');
    const folder = testFolder();
    for (const ending of ['csv', 'json', 'parquet']) {
      const file = path.join(folder, `rows.${ending}`);
      expect(JSON.parse((await ask([sql, '-o', file])).out)).toEqual({ file, rows: 2 });
      expect(await query(`SELECT age::INTEGER AS age, who FROM '${file}'`)).toEqual([
        { age: 1, who: 'a,"b"\n' },
        { age: 2, who: 'user 2' },
      ]);
    }
    const kept = path.join(folder, 'kept.csv');
    writeFileSync(kept, 'before');
    const failing = "SELECT CASE WHEN range < 9000 THEN 1 ELSE error('at last') END FROM range(10000)";
    expect((await ask([failing, '-o', kept])).code).toContain('at last');
    expect(readFileSync(kept, 'utf8')).toBe('before');
    expect(readdirSync(folder).toSorted()).toEqual(['kept.csv', 'rows.csv', 'rows.json', 'rows.parquet']);
    expect((await ask([sql, '-o', path.join(folder, 'rows')])).code).toContain('unknown format');
    expect((await ask([sql, '--format', 'parquet'])).code).toContain('needs a file');
  });

  it('A query on a terminal prints a table of the requested rows, and says that there are more', async () => {
    const screen = { columns: 60 };
    const sql = "SELECT range AS n, NULL AS x, chr(27) || '[2J' AS t FROM range(1000000000000)";
    const { out, noted } = await ask([sql, '--rows', '2'], { screen });
    expect(out).toBe('n  x     t\n0  NULL  \\u{1b}[2J\n1  NULL  \\u{1b}[2J\n');
    expect(noted).toMatch(/^the first 2 rows in \d+\.\d\d s; there are more: raise --rows/);
    expect((await ask(['FROM range(2)', '--json'], { screen })).out).toBe('{"range":0}\n{"range":1}\n');
    expect((await ask(['EXPLAIN SELECT count(*) FROM events'], { screen })).out).toContain('AGGREGATE');
  });

  const refused = [
    "COPY (SELECT 1) TO 'LAKE/x.csv'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO 'LAKE/x.csv'",
    "ATTACH 'LAKE/x.db'",
    "EXPORT DATABASE 'LAKE/x'",
    'CREATE TABLE t AS SELECT 1',
    "PREPARE p AS COPY (SELECT 1) TO 'LAKE/x.csv'",
    "CALL enable_logging(storage = 'file', storage_path = 'LAKE')",
    "SELECT 1 WHERE EXISTS (FROM system.main.\"Enable_Logging\"(storage = 'file', storage_path = 'LAKE'))",
    "SELECT * FROM enable_profiling(save_location = 'LAKE/x.json')",
    "WITH a AS (FROM enable_profiling(save_location = 'LAKE/x.json')) SELECT * FROM events, LATERAL (FROM a)",
    "FROM query('FROM enable_profiling(save_location = ''LAKE/x.json'')')",
    "PRAGMA profiling_output = 'LAKE/x.json'",
    'SET enable_external_access = true',
    "SELECT getenv('HOME')",
    "FROM read_csv('LAKE/events/../../../../../../../../etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    'INSTALL httpfs',
    'LOAD httpfs',
    'CREATE PERSISTENT SECRET s (TYPE http)',
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_text('LAKE/../access.json')",
    "SELECT * FROM read_parquet('https://127.0.0.1:1/x.parquet')",
    "SELECT 1) TO 'LAKE/x.csv' --",
  ];

  it.each(inTurn(refused, 4))(
    'A query that would do more than read the lake is rejected, and writes nothing: %s',
    async (sql) => {
      const [before, named] = [outsideSpool(), sql.replaceAll('LAKE', lakeDir)];
      const file = path.join(testFolder(), 'out.csv');
      for (const words of [[named], [named, '--format', 'csv'], [named, '-o', file]]) {
        const { code, out } = await ask(words);
        expect({ isRefused: code !== 0, out }, words.join(' ')).toEqual({ isRefused: true, out: '' });
      }
      expect(existsSync(file)).toBe(false);
      expect(outsideSpool()).toEqual(before);
    },
  );

  it('A query ends when it is interrupted, or when its output is closed, and leaves nothing behind', async () => {
    const stop = new AbortController();
    const endless = 'SELECT count(*) FROM range(1000000000000) t(i) WHERE hash(i) = 1';
    const asked = ask([endless], { stop: stop.signal });
    stop.abort();
    expect((await asked).code).toBe('the query was interrupted');
    const unread = new AbortController();
    const write = (): Promise<void> => {
      unread.abort();
      return Promise.resolve();
    };
    expect((await ask(['FROM range(1000000000000)'], { unread: unread.signal, write })).code).toBe(0);
    const left = path.join(data, 'spool/query/left');
    mkdirSync(left);
    writeFileSync(path.join(left, 'rows'), 'of a query that was killed');
    expect((await ask(['SELECT 1'])).code).toBe(0);
    expect(everything().filter((name) => /^spool.query.[^.]/.test(name))).toEqual([]);
  });
});

/** Sends lines to the prompt. Returns its output. */
function talk(lines: readonly string[]): Promise<Asked> {
  const input = new PassThrough();
  const openPrompt = () => createInterface({ input, output: new PassThrough(), terminal: false });
  input.end(lines.map((line) => `${line}\n`).join(''));
  return ask([], { openPrompt, screen: { columns: 80 } });
}

describe('the prompt of a query', () => {
  it('The prompt of a query runs a statement at its semicolon, and an error does not end it', async () => {
    const lines = [
      'SELECT 1 AS',
      'one;',
      'SELEC;',
      "SELECT ';' AS sign; SELECT 3 AS three;",
      '.no',
      '.quit',
      'FROM x;',
    ];
    const { code, out, noted } = await talk(lines);
    expect({ code, out }).toEqual({ code: 0, out: 'one\n  1\nsign\n;\nthree\n    3\n' });
    expect(noted).toContain('syntax error at or near "SELEC"');
    expect(noted).toContain('unknown command .no');
  });

  it('The prompt of a query shows a hint when the files of its version were removed', async () => {
    const input = new PassThrough();
    const openPrompt = () => createInterface({ input, output: new PassThrough(), terminal: false });
    const [events, moved] = [path.join(lakeDir, 'events'), path.join(lakeDir, 'moved')];
    const noted: string[] = [];
    const printMessage = (line: string): void => {
      noted.push(line);
      if (!line.startsWith('Read-only SQL')) return;
      renameSync(events, moved);
      setImmediate(() => input.end('SELECT sum(age) FROM events;\n'));
    };
    await ask([], { openPrompt, screen: { columns: 80 }, printMessage });
    renameSync(moved, events);
    expect(noted.join('\n')).toContain('Run .refresh to read the newest version');
  });

  it('The prompt of a query lists the views, refreshes to a newer version, and ends with its input', async () => {
    const { code, out } = await talk(['.tables', '.refresh', 'SELECT count(*) AS n FROM events;', 'SELECT']);
    expect(code).toBe(0);
    for (const view of ['custom_event', 'events', 'login', 'registration'])
      expect(out).toMatch(new RegExp(`^${view} +event_id, kind`, 'm'));
    expect(out).toMatch(/n\n3\n$/);
  });
});

describe('docs/lake.md', () => {
  it('The documented queries run as they are written', () => {
    const page = readFileSync(path.join(packageRoot, 'docs/lake.md'), 'utf8');
    const block = /```sh\n([^`]+)```/.exec(page.slice(page.indexOf('### tributary query')))?.[1] ?? '';
    const [folder, program] = [testFolder(), path.join(packageRoot, 'dist/main.js')];
    const bin = path.join(folder, 'bin');
    mkdirSync(bin);
    const script = `#!/bin/sh\nexec '${process.execPath}' '${program}' "$@"\n`;
    writeFileSync(path.join(bin, 'tributary'), script, { mode: 0o755 });
    const env = { ...process.env, PATH: `${bin}:${process.env['PATH'] ?? ''}`, TRIBUTARY_DATA_DIR: data };
    const out = execFileSync('sh', ['-ec', block], { cwd: folder, env, encoding: 'utf8' });
    expect(out).toContain('"kind":');
    expect(existsSync(path.join(folder, 'logins.parquet'))).toBe(true);
  });
});
