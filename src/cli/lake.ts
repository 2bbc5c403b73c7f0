import { pruneFiles } from '../lake/files/prune.ts';
import { assertListed, erasureListFile, removedBySql } from '../lake/event-index/erasure-list.ts';
import { assertFilesIntact } from '../lake/files/data-file.ts';
import { findSinceMs, nextCursor, parseCursor, type ChangeCursor } from '../lake/log/change-feed.ts';
import { openDuckdb } from '../lake/sql/duckdb.ts';
import { sqlText } from '../lake/sql/literals.ts';
import { readSnapshotWithWatermark } from '../lake/watermark.ts';
import { localFiles } from '../runtime/store/open-store.ts';
import { machineClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { withFormerNames } from '../runtime/former-names.ts';
import { openEnrichment } from '../enrichment/enrichment.ts';
import { enrichLake } from '../admin/enrich.ts';
import { readFilesSql } from '../admin/tables.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { repairLake } from '../lake/repair/repair-lake.ts';
import { tablePaths } from '../lake/lake.ts';
import { checkLake } from '../lake/check.ts';
import { readHistory, readLakeStats } from '../lake/history.ts';
import { datasets, events } from '../datasets/dataset.ts';
import { tableStore } from '../lake/log/log-files.ts';
import { emptyFileName, readSnapshot, withEmptyFile } from '../lake/log/snapshot.ts';
import { defineDataCommand, type DataContext, type CommandGroup, type OpenData } from './command.ts';
import { withEngine } from './lake-engine.ts';
import { expireCommand } from './lake-expire.ts';
import { moveCommand } from './lake-move.ts';
import { flag, oneOf, positive, text, withDefault } from './option-specs.ts';

function toCursor(since: string): ChangeCursor {
  const cursor = parseCursor(since);
  if (cursor !== undefined) return cursor;
  throw new AppError('usage', `'${since}' is not a valid cursor`, {
    hint: "Pass a version, or 'next' of the last output of 'tributary lake changes'.",
  });
}

/**
 * Counts the rows that were removed since a cursor, and returns SQL that reads their list. Errors: `usage` for an invalid
 * cursor; `not_found` if the list begins later, and those of `findSinceMs`.
 */
export async function readErasures(tableDir: string, since: string) {
  const cursor = toCursor(since);
  const snapshot = await readSnapshot(tableDir);
  await findSinceMs(cursor, snapshot);
  assertListed(snapshot.lake, cursor.version);
  const named = { version: Math.max(snapshot.version, 0), next: nextCursor(snapshot) };
  const { lake } = snapshot;
  const list = lake === undefined ? undefined : erasureListFile(tableDir, lake);
  if (list === undefined || lake?.erasures === undefined) return { ...named, erasures: 0, sql: 'SELECT 1 WHERE false' };
  const toSql = (file: string): string =>
    `SELECT DISTINCT id_app, event_id, kind, before FROM read_parquet(${sqlText(file)}) WHERE ${removedBySql(lake.erasures ?? {})} > ${cursor.version}`;
  await assertFilesIntact([list]);
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    const [counted] = await localFiles.use([list], ([local = '']) =>
      duckdb.rows(`SELECT count(*) AS n FROM (${toSql(local)})`),
    );
    return { ...named, erasures: Number(counted?.['n']), sql: toSql(tableStore(snapshot.tableDir).nameOf(list.path)) };
  } finally {
    duckdb.close();
  }
}

/**
 * Counts the rows since a cursor, or all rows. Returns also the version, the next cursor, SQL that reads the rows until the
 * retention has passed, and the watermark if the table gets imported events. Errors: `usage` for an invalid cursor; those
 * of `findSinceMs`.
 */
export async function readChanges(tableDir: string, since: string | undefined) {
  const cursor = toCursor(since ?? '0');
  const { snapshot, watermarkMs } = await readSnapshotWithWatermark(tableDir, machineClock);
  const sinceMs = since === undefined ? 0 : await findSinceMs(cursor, snapshot);
  const files = pruneFiles(snapshot.files, { availableAt: { fromMs: sinceMs } });
  const named = {
    next: nextCursor(snapshot),
    ...(watermarkMs === undefined ? {} : { watermark: new Date(watermarkMs).toISOString() }),
  };
  const version = Math.max(snapshot.version, 0);
  if (snapshot.version < 0) return { version, rows: 0, sql: 'SELECT 1 WHERE false', ...named };
  const where = `available_at > TIMESTAMPTZ ${sqlText(new Date(sinceMs).toISOString())}`;
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    const [counted] = await localFiles.use(withEmptyFile(snapshot, files), (paths) =>
      duckdb.rows(`SELECT count(*) AS n FROM ${readFilesSql(paths)} WHERE ${where}`),
    );
    const store = tableStore(snapshot.tableDir);
    const names = [emptyFileName, ...files.map((file) => file.path)].map((key) => store.nameOf(key));
    const sql = `SELECT * FROM ${readFilesSql(names)} WHERE ${where}`;
    return { version, rows: Number(counted?.['n']), sql, ...named };
  } finally {
    duckdb.close();
  }
}

const engineLimits = ({ config }: OpenData) => ({ memoryMb: config.duckdbMemoryMb, threads: 2 });

/**
 * Fills enriched columns. Returns the date of the geo database, too. Errors: those of `enrichLake`;
 * `geo_database_damaged`, before anything is changed.
 */
async function enrichAll(context: DataContext) {
  const { config, paths, clock, stop: signal } = context;
  const enricher = await openEnrichment(config);
  try {
    const { databaseDate: geoDate } = enricher;
    if (geoDate === undefined)
      throw new AppError('geo_database_damaged', enricher.problems()[0]?.message ?? 'no geo database found', {
        hint: 'Set TRIBUTARY_GEO_DB to a valid MMDB file, or unset it to use the bundled database.',
      });
    const common = { lakeDir: paths.lake, enricher, clock, crashPoint: noCrashPoint, signal };
    const { retentionMs } = config;
    const tables = await withEngine(context, engineLimits(context), (duckdb) =>
      enrichLake({ ...common, duckdb, retentionMs }),
    );
    return { geoDate, tables };
  } finally {
    enricher.close();
  }
}

const table = withDefault(oneOf([...datasets.keys()], 'table name', 'NAME'), events.table);

const tableDirOf = ({ paths }: OpenData, name: string): string =>
  tablePaths(paths.lake, datasets.get(name) ?? events).table;

const check = defineDataCommand({
  opens: 'lake',
  name: 'check',
  summary: 'verify every live file, the log and the hashes of erased ids',
  examples: ['lake check'],
  exitCodes: { 1: 'problems were found; the output lists them' },
  async run(_given, { paths, printResult, printMessage }) {
    const report = await checkLake(paths.lake);
    printResult({ ...report, problems: report.problems.map((finding) => withFormerNames('finding', finding)) });
    if (report.ok) return 0;
    printMessage(
      "restore missing and damaged files from a backup to the same paths; run 'tributary lake repair' for foreign_commit; other problems have the action in 'detail'",
    );
    return 1;
  },
});

const stats = defineDataCommand({
  opens: 'lake',
  name: 'stats',
  summary: 'show rows and bytes by kind and date, and by table',
  examples: ['lake stats'],
  run: (_given, { paths }) => readLakeStats(paths.lake),
});

const files = defineDataCommand({
  opens: 'lake',
  name: 'files',
  summary: 'list the live files of a table',
  isList: true,
  options: { table },
  examples: ['lake files', 'lake files --table payments'],
  async run({ table: name }, context) {
    const { files: live } = await readSnapshot(tableDirOf(context, name));
    return live.map(({ path, sizeBytes, numRecords, young, minValues, maxValues }) => {
      return { path, sizeBytes, numRecords, young, minValues, maxValues };
    });
  },
});

const log = defineDataCommand({
  opens: 'lake',
  name: 'log',
  summary: 'list the newest commits of a table',
  isList: true,
  options: { limit: withDefault(positive('maximum number of commits'), 50), table },
  examples: ['lake log --limit 10'],
  run: ({ limit, table: name }, { paths }) => readHistory(paths.lake, limit, datasets.get(name) ?? events),
});

const changes = defineDataCommand({
  opens: 'lake',
  name: 'changes',
  summary: 'count the rows after a cursor, and print SQL that reads them',
  details: ['Also prints the next cursor and the completeness watermark.'],
  options: {
    since: text("version, or 'next' of the last output (all rows)", 'CURSOR'),
    erasures: flag('rows that were removed after the cursor instead'),
    table,
  },
  examples: ['lake changes --since 12', 'lake changes --since 12 --erasures'],
  run({ since, erasures, table: name }, context) {
    const tableDir = tableDirOf(context, name);
    return erasures ? readErasures(tableDir, since ?? '0') : readChanges(tableDir, since);
  },
});

const repair = defineDataCommand({
  opens: 'lake',
  name: 'repair',
  summary: 'revert commits of other engines and repair future timestamps',
  options: { acceptLoss: flag('give up missing files and hashes of erased ids that cannot be restored') },
  examples: ['lake repair'],
  exitCodes: { 1: 'files are missing that only a backup can restore' },
  async run({ acceptLoss }, context) {
    const { paths, clock } = context;
    const repaired = await withEngine(context, engineLimits(context), (duckdb) =>
      repairLake({ lakeDir: paths.lake, duckdb, clock, crashPoint: noCrashPoint }, acceptLoss),
    );
    context.printResult(repaired);
    if ([repaired, ...Object.values(repaired.tables ?? {})].every(({ missing }) => missing.length === 0)) return 0;
    context.printMessage(
      "live files are missing: restore them from a backup, or run 'tributary lake repair --accept-loss' if there is none",
    );
    return 1;
  },
});

const enrich = defineDataCommand({
  opens: 'lake',
  name: 'enrich',
  summary: 'fill missing countries, systems, devices and browsers from IP address and User-Agent',
  examples: ['lake enrich'],
  run: (_given, context) => enrichAll(context),
});

const snapshot = defineDataCommand({
  opens: 'lake',
  name: 'snapshot',
  summary: 'print the SQL of the views over the lake',
  options: { root: text('path or URL of the lake for its reader', 'DIR_OR_URL') },
  examples: ['lake snapshot > lake.sql', 'lake snapshot --root s3://bucket/lake'],
  async run({ root }, { config, print }) {
    const { renderLakeSnapshot } = await import('./query.ts');
    print(await renderLakeSnapshot(config, root));
  },
});

export const lakeCommand: CommandGroup = {
  name: 'lake',
  summary: 'verify, inspect, enrich, repair and move the lake',
  commands: [check, stats, files, log, changes, expireCommand, repair, enrich, snapshot, moveCommand],
};
