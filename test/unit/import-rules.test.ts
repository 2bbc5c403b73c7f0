import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { findBreaches, findCircles, readImports, type SourceFile } from '../helpers/import-rules.ts';

const src = path.resolve(import.meta.dirname, '../../src');

function readSources(): SourceFile[] {
  return readdirSync(src, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => path.join(entry.parentPath, entry.name))
    .map((file) => ({ path: path.relative(src, file).split(path.sep).join('/'), text: readFileSync(file, 'utf8') }));
}

describe('the import rules', () => {
  const sources = readSources();

  it('Every source file keeps the rules', () => {
    expect(sources.length).toBeGreaterThan(20);
    expect(findBreaches(sources)).toEqual([]);
  });

  it('No source file imports itself through others', () => {
    expect(findCircles(sources)).toEqual([]);
  });
});

describe('the check itself', () => {
  it('Files that import each other through a third are a cycle, also by a type, and files that only lead there are not in it', () => {
    const sources = [
      { path: 'lake/a.ts', text: "import { b } from './log/b.ts';" },
      { path: 'lake/log/b.ts', text: "import type { C } from '../c.ts';\nimport { d } from '../d.ts';" },
      { path: 'lake/c.ts', text: "export { a } from './a.ts';" },
      { path: 'lake/d.ts', text: "const e = await import('./e.ts');" },
      { path: 'lake/e.ts', text: "import { a } from './a.ts';\nimport { d } from './d.ts';" },
    ];
    expect(findCircles(sources)).toEqual([
      'lake/a.ts imports lake/log/b.ts',
      'lake/log/b.ts imports lake/c.ts',
      'lake/c.ts imports lake/a.ts',
    ]);
  });

  it.each([
    ['a stage that imports a stage', 'compact/flush.ts', "import { parse } from '../ingest/parse.ts';"],
    ['a store that imports a store', 'lake/commit.ts', "import { pull } from '../stream/reader.ts';"],
    ['a store that imports a stage', 'reports/store.ts', "import { run } from '../export/worker.ts';"],
    ['a type of another stage', 'compact/flush.ts', "import type { Parsed } from '../ingest/parse.ts';"],
    ['datasets above their place', 'datasets/kinds.ts', "import { open } from '../lake/sql/duckdb.ts';"],
    ['runtime above its place', 'runtime/clock.ts', "import {\n  events,\n} from '../datasets/dataset.ts';"],
    [
      'a log that knows a dataset',
      'lake/log/table.ts',
      "import { eventColumns } from '../../datasets/event-fields.ts';",
    ],
    ['a log that knows its files', 'lake/log/table.ts', "import { rewrite } from '../files/rewrite.ts';"],
    ['an api that reaches into the worker', 'export/api/views.ts', "import { query } from '../worker/query.ts';"],
    [
      'a worker that reaches into the api',
      'export/worker/query.ts',
      "import { parameters } from '../api/parameters.ts';",
    ],
    ['jobs that know the worker', 'export/jobs/attempts.ts', "import { run } from '../worker/run-export.ts';"],
    [
      'a page that reaches into the server',
      'console/web/components/load.ts',
      "import { a } from '../../page-files.ts';",
    ],
    ['a page that knows a store', 'console/web/pages.ts', "import { a } from '../../access/access.ts';"],
    ['a server that knows its pages', 'console/page-routes.ts', "import { pages } from './web/pages.ts';"],
    ['Preact away from home', 'console/page-routes.ts', "import { render } from 'preact';"],
    ['an internal file of lake/batch', 'admin/replay.ts', "import { judge } from '../lake/batch/deduplicate.ts';"],
    ['such a file in the same folder', 'lake/check.ts', "import { judge } from './batch/deduplicate.ts';"],
    ["SQL over a batch's tables", 'admin/replay.ts', 'await duckdb.run(`DELETE FROM recent_keys`);'],
    ["a query of a batch's rows", 'compact/batch/flush.ts', "const sql = 'SELECT count(*) FROM batch WHERE NOT bad';"],
    ['a stage that imports composition', 'export/routes.ts', "import { startService } from '../service.ts';"],
    ['anyone who imports main', 'cli/start.ts', "import { main } from '../main.ts';"],
    ['values of config in a stage', 'ingest/server.ts', "import { dataPaths, type Config } from '../config.ts';"],
    ['a dynamic import', 'lake/log.ts', "const x = await import('../stream/reader.ts');"],
    ['a re-export', 'lake/log.ts', "export { pull } from '../stream/reader.ts';"],
    ['an import without its extension', 'lake/log.ts', "import { a } from './actions';"],
    ['an import from outside src', 'composition.ts', "import { a } from '../test/helpers/wait.ts';"],
    ['NATS away from home', 'compact/loop.ts', "import { connect } from '@nats-io/transport-node';"],
    ['DuckDB away from home', 'lake/snapshot.ts', "import { DuckDBInstance } from '@duckdb/node-api';"],
    ['Fastify away from home', 'ingest/group-commit.ts', "import fastify from 'fastify';"],
    ['Ajv away from home', 'ingest/routes.ts', "import { Ajv2020 } from 'ajv/dist/2020.js';"],
    ['an access to files outside of the stores', 'stream/reader.ts', "import { readFile } from 'node:fs/promises';"],
    ['a folder without rules', 'plumbing/pipe.ts', "import { a } from '../runtime/clock.ts';"],
    ['a folder that says nothing', 'lake/utils/sort.ts', ''],
    ['a file that says nothing', 'lake/types.ts', ''],
    ['a barrel', 'lake/log.ts', "export * from './actions.ts';"],
    ['a name in camel case', 'lake/logFiles.ts', ''],
    ['a default export', 'lake/log.ts', 'export default function log() {}'],
    ['an enum', 'datasets/kinds.ts', 'export enum Kind { login }'],
    ['a long file', 'lake/log.ts', 'a();\n'.repeat(401)],
    ['folders made by the recursion of mkdir', 'lake/log.ts', 'await mkdir(folder, { recursive: true, mode: 0o700 });'],
    ['the process outside main', 'cli/start.ts', 'process.exit(1);'],
  ])('The check finds %s', (_what, file, text) => {
    expect(findBreaches([{ path: file, text }])).toHaveLength(1);
  });

  it('The check accepts permitted code', () => {
    expect(
      findBreaches([
        {
          path: 'compact/flush.ts',
          text: "import { openDuckdb } from '../lake/sql/duckdb.ts';\nimport type { Config } from '../config.ts';\nimport { type Column } from '../datasets/event-fields.ts';",
        },
        {
          path: 'composition.ts',
          text: "import { startIngest } from './ingest/ingest.ts';\nimport { parseConfig } from './config.ts';",
        },
        {
          path: 'lake/sql/duckdb.ts',
          text: "import { DuckDBInstance } from '@duckdb/node-api';\nimport path from 'node:path';",
        },
        { path: 'runtime/files/lock.ts', text: "import { openSync } from 'node:fs';" },
        { path: 'runtime/store/folder-store.ts', text: "import { open } from 'node:fs/promises';" },
        {
          path: 'compact/batch/flush.ts',
          text: "import { openBatchTables } from '../../lake/batch/batch-tables.ts';\nlog('took messages from the batch');",
        },
        { path: 'lake/batch/deduplicate.ts', text: "export const sql = 'SELECT r FROM dropped';" },
        { path: 'lake/log.ts', text: "// import { a } from '../stream/reader.ts';\n/* export default 1 */\n" },
      ]),
    ).toEqual([]);
  });

  it('The check reads imports over several lines, of types, for effect, and dynamic ones', () => {
    const text =
      "import {\n  a,\n  type B,\n} from './a.ts';\nimport type { C } from './c.ts';\nimport { type D } from './d.ts';\nimport './e.ts';\nconst f = await import('./f.ts');\n";
    expect(readImports(text)).toEqual([
      { from: './a.ts', typeOnly: false },
      { from: './c.ts', typeOnly: true },
      { from: './d.ts', typeOnly: true },
      { from: './e.ts', typeOnly: false },
      { from: './f.ts', typeOnly: false },
    ]);
  });
});
