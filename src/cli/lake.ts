import { pruneFiles } from '../lake/files/prune.ts';
import { findSinceMs, nextPlace, parsePlace } from '../lake/log/change-feed.ts';
import { openDuckdb, type Duckdb } from '../lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../lake/sql/literals.ts';
import { readMarkedSnapshot } from '../lake/watermark.ts';
import { machineClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { openEnrichment } from '../enrichment/enrichment.ts';
import { openCommandEngine } from '../lake/command-engine.ts';
import { enrichLake } from '../operate/enrich.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { repairLake } from '../lake/repair/repair-lake.ts';
import { tablePaths } from '../lake/lake.ts';
import { checkLake } from '../lake/check.ts';
import { readHistory, readLakeStats } from '../lake/history.ts';
import { datasets, events } from '../datasets/dataset.ts';
import { readSnapshot } from '../lake/log/snapshot.ts';
import { verb, type CommandContext, type Group, type OpenData, openLake } from './command.ts';
import { flag, oneOf, positive, text, withDefault } from './words.ts';

/** What came to a table since a place in its history. */
interface Changes {
  /** The version that was read. */
  readonly version: number;
  readonly rows: number;
  /** SQL that gives the rows, for as long as the files that it names are there: the retention. */
  readonly sql: string;
  /** The place to ask from next time. */
  readonly next: string;
  /**
   * Every event that was acknowledged before this is in the version, ISO 8601, by the broker's clock; absent where that
   * is not known, as of a table that gets no imported events.
   */
  readonly watermark?: string;
}

/**
 * Finds what came to a table since a place, or everything. Errors: `usage` for a text that is no place, those of
 * `findSinceMs`.
 */
export async function readChanges(tableDir: string, since: string | undefined): Promise<Changes> {
  const place = parsePlace(since ?? '0');
  if (place === undefined)
    throw new AppError('usage', `'${since}' is no place in the history of a table`, {
      hint: "Give a version, or what the last answer of 'tributary lake changes' has as next.",
    });
  const { snapshot, watermarkMs } = await readMarkedSnapshot(tableDir, machineClock);
  const sinceMs = since === undefined ? 0 : await findSinceMs(place, snapshot);
  const kept = pruneFiles(snapshot.files, { availableAt: { fromMs: sinceMs } }).map(({ absolutePath }) => absolutePath);
  const files = snapshot.version < 0 ? [] : [snapshot.emptyFile, ...kept];
  const named = {
    next: nextPlace(snapshot),
    ...(watermarkMs === undefined ? {} : { watermark: new Date(watermarkMs).toISOString() }),
  };
  const version = Math.max(snapshot.version, 0);
  if (files.length === 0) return { version, rows: 0, sql: 'SELECT 1 WHERE false', ...named };
  const from = `read_parquet(${sqlList(files)}, union_by_name = true, hive_partitioning = false)`;
  const where = `available_at > TIMESTAMPTZ ${sqlText(new Date(sinceMs).toISOString())}`;
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    const [counted] = await duckdb.rows(`SELECT count(*) AS n FROM ${from} WHERE ${where}`);
    return { version, rows: Number(counted?.['n']), sql: `SELECT * FROM ${from} WHERE ${where}`, ...named };
  } finally {
    duckdb.close();
  }
}

/** Runs work on the lake with an engine of its own, with the service running or stopped. */
async function withEngine<T>(opened: OpenData, work: (duckdb: Duckdb, opened: OpenData) => Promise<T>): Promise<T> {
  const { config, paths } = opened;
  const engine = await openCommandEngine(paths.lake, { memoryMb: config.duckdbMemoryMb, threads: 2 });
  try {
    return await work(engine.duckdb, opened);
  } finally {
    await engine.close();
  }
}

/**
 * Fills what rows do not say. Answers the date of the database that places came from. Errors: those of `enrichLake`, and
 * `geo_database_damaged` where the database cannot be read: nothing is changed then.
 */
async function enrichAll(opened: OpenData, signal: AbortSignal) {
  const { config, paths, clock } = opened;
  const enricher = await openEnrichment(config);
  try {
    const { databaseDate: geoDate } = enricher;
    if (geoDate === undefined)
      throw new AppError('geo_database_damaged', enricher.problems()[0]?.what ?? 'there is no geo database', {
        hint: 'Name a good MMDB file by TRIBUTARY_GEO_DB, or leave it out for the database of the package.',
      });
    const common = { lakeDir: paths.lake, enricher, clock, crashPoint: noCrashPoint, signal };
    const { retentionMs } = config;
    return { geoDate, tables: await withEngine(opened, (duckdb) => enrichLake({ ...common, duckdb, retentionMs })) };
  } finally {
    enricher.close();
  }
}

const table = withDefault(oneOf([...datasets.keys()], 'the table', 'NAME'), events.table);

/** The folder of a table of the lake. Errors: those of `openLake`. */
const openTableDir = (data: string | undefined, name: string, context: CommandContext): string =>
  tablePaths(openLake(data, context).paths.lake, datasets.get(name) ?? events).table;

const check = verb({
  name: 'check',
  summary: 'read every live file, the log and the hashes of erased ids, and list what is wrong',
  examples: ['lake check'],
  exitCodes: { 1: 'something is wrong: the answer lists it' },
  async run({ data }, context) {
    const report = await checkLake(openLake(data, context).paths.lake);
    context.answer(report);
    if (report.ok) return 0;
    context.note(
      "restore missing and damaged files from a backup, under the same paths; 'tributary lake repair' undoes what another engine has committed (foreign_commit); an orphan_file says itself what to do with it",
    );
    return 1;
  },
});

const stats = verb({
  name: 'stats',
  summary: 'show rows and bytes by kind and date, and by table',
  examples: ['lake stats'],
  async run({ data }, context) {
    context.answer(await readLakeStats(openLake(data, context).paths.lake));
  },
});

const files = verb({
  name: 'files',
  summary: 'list the live files of a table',
  isList: true,
  options: { table },
  examples: ['lake files', 'lake files --table payments'],
  async run({ table: name, data }, context) {
    const snapshot = await readSnapshot(openTableDir(data, name, context));
    for (const { path, sizeBytes, numRecords, young, minValues, maxValues } of snapshot.files)
      context.answer({ path, sizeBytes, numRecords, young, minValues, maxValues });
  },
});

const log = verb({
  name: 'log',
  summary: 'list the newest commits of a table',
  isList: true,
  options: { limit: withDefault(positive('so many'), 50), table },
  examples: ['lake log --limit 10'],
  async run({ limit, table: name, data }, context) {
    const { lake } = openLake(data, context).paths;
    for (const entry of await readHistory(lake, limit, datasets.get(name) ?? events)) context.answer(entry);
  },
});

const changes = verb({
  name: 'changes',
  summary: 'show how many rows came since a place in the history, and SQL that reads them',
  details: ['Answers the place to ask from next time, and up to when what it read is complete, too.'],
  options: { since: text('a version, or `next` of the last answer; all rows when it is left out', 'PLACE'), table },
  examples: ['lake changes --since 12'],
  async run({ since, table: name, data }, context) {
    context.answer(await readChanges(openTableDir(data, name, context), since));
  },
});

const repair = verb({
  name: 'repair',
  summary: 'undo what another engine has committed, and give rows of a clock that was ahead a time that has passed',
  options: { acceptLoss: flag('takes files out of the table that are missing and nowhere to be found') },
  examples: ['lake repair'],
  exitCodes: { 1: 'files are missing that only a backup can bring back' },
  async run({ acceptLoss, data }, context) {
    const repaired = await withEngine(openLake(data, context), (duckdb, { paths, clock }) =>
      repairLake({ lakeDir: paths.lake, duckdb, clock, crashPoint: noCrashPoint }, acceptLoss),
    );
    context.answer(repaired);
    if ([repaired, ...Object.values(repaired.tables ?? {})].every(({ missing }) => missing.length === 0)) return 0;
    context.note(
      "files that the table names are missing: put them back from a backup, or, when there is none, run 'tributary lake repair --accept-loss'",
    );
    return 1;
  },
});

const enrich = verb({
  name: 'enrich',
  summary:
    'fill countries, systems, devices and browsers where rows do not say them and their addresses and User-Agents do',
  examples: ['lake enrich'],
  async run({ data }, context) {
    context.answer(await enrichAll(openLake(data, context), context.stop));
  },
});

const snapshot = verb({
  name: 'snapshot',
  summary: 'print the SQL of the views over the lake',
  options: { root: text('where its reader finds the lake', 'DIR_OR_URL') },
  examples: ['lake snapshot > lake.sql', 'lake snapshot --root s3://bucket/lake'],
  async run({ root, data }, context) {
    const { config } = openLake(data, context);
    const { renderLakeSnapshot } = await import('./query.ts');
    context.print(await renderLakeSnapshot(config, root));
  },
});

/** `tributary lake`: reads the lake, and mends it, whether the service runs or not. */
export const lakeCommand: Group = {
  name: 'lake',
  summary: 'verify the lake, show its files, history, rows and what came since; mend it',
  verbs: [check, stats, files, log, changes, repair, enrich, snapshot],
};
