import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { dataPaths, type Config } from '../config.ts';
import { events } from '../datasets/dataset.ts';
import { lakePaths, listOtherTables, tablePaths } from '../lake/lake.ts';
import { listLog } from '../lake/log/log-files.ts';
import { readSnapshot, withEmptyFile } from '../lake/log/snapshot.ts';
import { addressOf, localViewsSql, snapshotSql } from '../lake/sql/snapshot-sql.ts';
import { viewsName } from '../lake/catalogue/catalogue-files.ts';
import { openReadOnlyEngine, type ReadOnlyEngine } from '../lake/sql/read-only-engine.ts';
import { splitSql } from '../lake/sql/literals.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import { findText } from '../runtime/store/object-store.ts';
import { foldersOfFiles, localFiles, openStore } from '../runtime/store/open-store.ts';
import { openScratchDir, type ScratchDir } from '../runtime/files/work-files.ts';
import { defineDataCommand, type CommandContext, queryScratchDir } from './command.ts';
import { engineLimits } from './lake-engine.ts';
import {
  chooseQueryFormat,
  queryFormats,
  showQueryTable,
  toQueryFile,
  writeQueryFile,
  writeQueryRows,
  type QueryFile,
  type QueryFormat,
  runQueryPrompt,
} from './query-output.ts';
import { file, oneOf, optional, positive, failUsage, text, withDefault } from './option-specs.ts';

const isAddress = (root: string): boolean => /^[a-z][a-z0-9+.-]+:\/\//i.test(root);

/**
 * Renders the SQL of the views over a lake. The root is the data folder's own lake, or the path or URL at which its
 * reader finds a copy; the views are those of the own lake's tables. Error: `not_found` if the data folder has no lake.
 */
export async function renderLakeSnapshot(config: Config, root: string | undefined): Promise<string> {
  const { root: own, table } = lakePaths(dataPaths(config.dataDir).lake);
  if (root === undefined) {
    const { commits, checkpoints } = await listLog(table);
    if (commits.length + checkpoints.length === 0)
      throw new AppError('not_found', `no lake found in ${config.dataDir}`, {
        hint: 'Pass the data folder with --data, or the lake with --root.',
      });
  }
  const at = root === undefined ? addressOf(own) : isAddress(root) ? root.replace(/\/+$/, '') : path.resolve(root);
  return snapshotSql({ root: at, secondaryDatasets: await listOtherTables(own), retentionMs: config.retentionMs });
}

const typedViews = /\bapp_\d+"?\s*\./;

interface QueryOutputOptions {
  readonly format: QueryFormat;
  readonly rows: number;
  readonly output?: QueryFile | undefined;
}

/** Opens a spill folder; removes leftovers of killed queries. */
async function openSpill(parent: string): Promise<ScratchDir> {
  try {
    return await openScratchDir(parent, 'a query');
  } catch {
    // Only a query that exceeds the memory needs it: a reader without write permission can query too.
    return { dir: path.join(parent, randomUUID()), close: () => Promise.resolve() };
  }
}

/** The views of an engine, and the folders of their files. */
interface QueryViews {
  readonly views: readonly string[];
  readonly folders: readonly string[];
  readonly release: () => void;
}

/** Fetches all live files of a lake in a bucket, and keeps their copies until `release`. */
async function openLocalViews(lake: string): Promise<QueryViews> {
  const tables = [events, ...(await listOtherTables(lake))];
  const snapshots = await Promise.all(tables.map((dataset) => readSnapshot(tablePaths(lake, dataset).table)));
  const files = snapshots.flatMap((snapshot) => withEmptyFile(snapshot, snapshot.files));
  return await new Promise((resolve, reject) => {
    const used = localFiles.use(files, async (paths) => {
      let from = 0;
      const byTable = tables.map(({ table }, index) => {
        const own = paths.slice(from, (from += 1 + (snapshots[index]?.files.length ?? 0)));
        return [table, own] as const;
      });
      await new Promise<void>((release) => {
        resolve({ views: [localViewsSql(new Map(byTable))], folders: foldersOfFiles(lake), release });
      });
    });
    used.catch(reject);
  });
}

/** Renders the views of snapshot.sql and, if `isTyped`, of views.sql. */
async function openViews(config: Config, isTyped: boolean): Promise<QueryViews> {
  const { lake } = dataPaths(config.dataDir);
  if (config.storage.lake !== undefined) return await openLocalViews(lake);
  const typed = isTyped ? await findText(openStore(lake), viewsName) : undefined;
  const views = [await renderLakeSnapshot(config, undefined), ...(typed === undefined ? [] : [typed])];
  return { views, folders: [lake], release: () => undefined };
}

/**
 * Opens an engine on the newest version, with the views of snapshot.sql and, if `isTyped`, of views.sql. `remove`
 * deletes its spilled rows. Errors: those of `openReadOnlyEngine`.
 */
async function openEngine(
  config: Config,
  isTyped: boolean,
  output: QueryFile | undefined,
): Promise<ReadOnlyEngine & { readonly remove: () => Promise<void> }> {
  const { spool } = dataPaths(config.dataDir);
  const { views, folders, release } = await openViews(config, isTyped);
  const room = await openSpill(queryScratchDir(spool));
  const engine = await openReadOnlyEngine({
    ...engineLimits(config, 128, 256),
    tempDir: path.join(room.dir, 'spill'),
    views,
    folders,
    ...(output === undefined ? {} : { outputFile: output.written }),
  }).catch(async (error: unknown) => {
    release();
    await room.close();
    throw error;
  });
  return {
    ...engine,
    async remove() {
      engine.close();
      release();
      await room.close();
    },
  };
}

/** Explains when a missing view of views.sql is created. */
function explainMissing(error: unknown, sql: string): unknown {
  if (!isAppError(error, 'sql') || !typedViews.test(sql) || !error.message.includes('does not exist')) return error;
  return new AppError('sql', error.message.replace(/!?\n.*|!$/s, ''), {
    cause: error.cause,
    hint: 'Query custom_event, which has every event. A typed view such as app_1.level_up() exists once events of that name are sealed (TRIBUTARY_SEAL_AGE_MS).',
  });
}

async function runStatement(
  engine: ReadOnlyEngine,
  sql: string,
  { format, rows, output }: QueryOutputOptions,
  context: CommandContext,
): Promise<void> {
  const { print, printMessage, screen } = context;
  try {
    const kind = await engine.check(sql);
    if (kind === 'explain') {
      const plan = await engine.stream(sql);
      for await (const piece of plan.rows) for (const row of piece) print((row.at(-1) ?? '').trimEnd());
      return;
    }
    const write: (piece: string) => Promise<void> = context.write ?? (async (piece) => print(piece.replace(/\n$/, '')));
    if (output !== undefined)
      return context.printResult({ file: output.file, rows: await writeQueryFile(engine, sql, output, format) });
    if (format === 'csv' || format === 'json')
      return void (await writeQueryRows(engine, sql, format, { ...context, write }));
    const startedAt = performance.now();
    const { shownRows, isCut } = await showQueryTable(engine, sql, rows, { print, columns: screen?.columns ?? 120 });
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(2);
    const more = isCut ? `; there are more: raise --rows, or use --format csv or -o FILE for all rows` : '';
    printMessage(`${isCut ? 'the first ' : ''}${shownRows} ${shownRows === 1 ? 'row' : 'rows'} in ${seconds} s${more}`);
  } catch (error) {
    throw explainMissing(error, sql);
  }
}

/** Interval of interrupts, ms: one may come just before a statement begins. */
const interruptEveryMs = 100;

/** Interrupts statements once the command is stopped, or its output is no longer read. */
function interruptOn(engine: ReadOnlyEngine, { stop, unread }: CommandContext): () => void {
  const end = AbortSignal.any(unread === undefined ? [stop] : [stop, unread]);
  const timer = setInterval(() => {
    if (end.aborted) engine.interrupt();
  }, interruptEveryMs);
  const interrupt = (): void => engine.interrupt();
  end.addEventListener('abort', interrupt, { once: true });
  return () => {
    clearInterval(timer);
    end.removeEventListener('abort', interrupt);
  };
}

async function readInput({ input }: CommandContext): Promise<string> {
  if (input === undefined) return '';
  const pieces: Uint8Array[] = [];
  for await (const piece of input()) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

async function runStatements(
  config: Config,
  sql: string,
  outputOptions: QueryOutputOptions,
  context: CommandContext,
): Promise<number> {
  const { statements, rest } = splitSql(sql);
  const all = rest === '' ? statements : [...statements, rest];
  if (all.length === 0) failUsage('no SQL given: pass it as an argument or on standard input');
  if (outputOptions.output !== undefined && all.length > 1) failUsage('-o needs exactly one statement');
  const engine = await openEngine(config, typedViews.test(sql), outputOptions.output);
  const settle = interruptOn(engine, context);
  try {
    for (const statement of all) await runStatement(engine, statement, outputOptions, context);
    return 0;
  } catch (error) {
    if (context.unread?.aborted === true) return 0;
    if (context.stop.aborted) throw new AppError('stopping', 'the query was interrupted');
    throw error;
  } finally {
    settle();
    await engine.remove();
  }
}

export const queryCommand = defineDataCommand({
  opens: 'lake',
  name: 'query',
  summary: 'run read-only SQL on the lake; without SQL, open a prompt',
  arguments: { SQL: optional(text('DuckDB statements, separated by semicolons (prompt, or standard input)')) },
  options: {
    format: oneOf(queryFormats, 'output format (table on a terminal, else JSON lines)'),
    output: { ...file('file for the rows of one statement'), letter: 'o' },
    rows: withDefault(positive('maximum number of rows of a table'), 200),
  },
  details: [
    'Views of snapshot.sql: events, registration, login, custom_event and one per other table, as of the start of the command.',
    'Views of views.sql, such as app_7.purchase(), exist once events of that name are sealed.',
    'Statements cannot use files outside the lake, extensions or the network.',
  ],
  examples: [
    'query "SELECT kind, count(*) FROM events GROUP BY kind"',
    'query "FROM custom_event LIMIT 10" --format csv',
    'query "SELECT * FROM login WHERE date = DATE \'2026-03-01\'" -o logins.parquet',
    'query < report.sql',
  ],
  async run({ SQL: sql, format, output: name, rows, json }, context) {
    const isForPerson = context.screen !== undefined && !json;
    const chosen = chooseQueryFormat(format, name, isForPerson);
    const output = name === undefined ? undefined : toQueryFile(name);
    const outputOptions = { format: chosen, rows, output };
    const { config, openPrompt } = context;
    if (sql !== undefined || openPrompt === undefined)
      return runStatements(config, sql ?? (await readInput(context)), outputOptions, context);
    if (output !== undefined) failUsage('-o needs a statement as an argument');
    return runQueryPrompt(openPrompt, {
      context,
      openEngine: () => openEngine(config, true, undefined),
      runStatement: (engine, statement) => runStatement(engine, statement, outputOptions, context),
    });
  },
});
