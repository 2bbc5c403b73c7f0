import { sqlList, sqlText } from './literals.ts';
import { events, type Dataset, datasets } from '../../datasets/dataset.ts';
import type { Clock } from '../../runtime/clock.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
import { findText, type ObjectStore } from '../../runtime/store/object-store.ts';
import { openStore } from '../../runtime/store/open-store.ts';

/**
 * Renders snapshot.sql, plain DuckDB SQL (>= 1.3) for `.read` in the CLI or any client. It lists the live files from
 * the newest checkpoint and later commits, and creates views of that snapshot.
 *
 * The list is stored as values of an ENUM type per table, because a type outlives the connection and a view can name
 * it. Variables end with their connection, and table functions take no subquery. The views are in the schema
 * `tributary`, and have plain names if those are free. A read-only database gets both in a second one in memory. SQL
 * has no IF, so that cases differ only in values (`SET schema = ...`).
 */

export interface SnapshotSqlOptions {
  /** The lake's folder, or the data folder: an absolute path or an address without a trailing slash. */
  readonly root: string;
  readonly secondaryDatasets: readonly Dataset[];
  readonly retentionMs: number;
  /**
   * When the file in the lake's folder was written, Unix ms. The text fails once that file is a minute newer, so that a
   * copy refuses to run. Undefined: the text reads `root` permanently.
   */
  readonly writtenAtMs?: number;
}

const fileName = 'snapshot.sql';
const writtenMark = '-- Written at ';

/** Tolerance between a text and the file it was read from, ms, since each commit rewrites the file. */
const currentForMs = 60_000;

/** Returns when a text was written, Unix ms, if stated. */
export function findWrittenAt(text: string): number | undefined {
  const [, digits] = new RegExp(`^${writtenMark}(\\d{1,15})$`, 'm').exec(text) ?? [];
  return digits === undefined ? undefined : Number(digits);
}

/** Returns a `glob` pattern that matches only this path: `[`, `*` and `?` are literal in brackets. */
const patternSql = (path: string): string => `regexp_replace(${path}, '([[*?])', '[\\1]', 'g')`;

/** Returns the name of a table's list: of its variable, and of its type. */
const filesOf = (table: string): string => (table === events.table ? 'tributary_files' : `tributary_files_${table}`);

const variable = (name: string): string => `getvariable('tributary_${name}')`;

/** Returns the SQL that names the folder. That of a file in a lake refuses to work from a copy. */
function rootSql({ root, writtenAtMs }: SnapshotSqlOptions): string {
  if (writtenAtMs === undefined) return `SET VARIABLE tributary_at = ${sqlText(root)};`;
  // Both open a file by name and list no folder, which the lake's group may not.
  const file = sqlText(`${root}/${fileName}`);
  const accepted = sqlText(`${writtenAtMs} ${root}`);
  const isGone = `The lake of this snapshot.sql is no longer at ${root}. Set its path with SET VARIABLE tributary_root = '/path/of/lake', or start its service once, which rewrites the file.`;
  const isCopy = `This is not the newest text of ${root}/snapshot.sql: it is from a copy of that lake, or outdated. Read that file again, or set the lake's path with SET VARIABLE tributary_root = '/path/of/lake'. For a text that stays valid, run 'tributary lake snapshot'.`;
  return `-- A text that has worked once stays valid on its connection. A pattern without a match is not an error, unlike a missing file.
SET VARIABLE tributary_newest = (SELECT coalesce(max(file), ${file} || '[.]') FROM glob(${file}));

SET VARIABLE tributary_accepted = (
  SELECT CASE
    WHEN ${variable('root')} IS NOT NULL OR ${variable('accepted')} = ${accepted} THEN ${variable('accepted')}
    WHEN count(*) = 0 THEN error(${sqlText(isGone)})
    WHEN abs(any_value(written) - ${writtenAtMs}) <= ${currentForMs} THEN ${accepted}
    ELSE error(${sqlText(isCopy)}) END
  FROM (SELECT TRY_CAST(regexp_extract(content, '${writtenMark}(\\d+)', 1) AS BIGINT) AS written
        FROM read_text(${variable('newest')})));

SET VARIABLE tributary_at = coalesce(rtrim(${variable('root')}, '/'), ${sqlText(root)});`;
}

const eventsTableSql = `SET VARIABLE tributary_at = (
  SELECT ${variable('at')} || CASE
    WHEN EXISTS (FROM glob(${patternSql(variable('at'))} || '/${events.table}/_delta_log/*.checkpoint.parquet')) THEN '/${events.table}'
    WHEN EXISTS (FROM glob(${patternSql(variable('at'))} || '/lake/${events.table}/_delta_log/*.checkpoint.parquet')) THEN '/lake/${events.table}'
    ELSE error('No lake in ' || ${variable('at')} || ': pass the folder that contains ''${events.table}'', or the data folder.') END);`;

/** Finds another table. If it is missing, as in a lake restored from an older backup, its view is empty. */
const otherTableSql = (table: string): string => `SET VARIABLE tributary_leader = ${variable('at')};
SET VARIABLE tributary_at = regexp_replace(${variable('leader')}, '[^/]+$', ${sqlText(table)});
SET VARIABLE tributary_at = (
  SELECT CASE WHEN EXISTS (FROM glob(${patternSql(variable('at'))} || '/_delta_log/*.checkpoint.parquet')) THEN ${variable('at')} ELSE ${variable('leader')} END);`;

/** Lists the live files of the table, as absolute paths if the root is. */
const filesSql = (
  table: string,
): string => `SET VARIABLE tributary_checkpoint = (SELECT max(file) FROM glob(${patternSql(variable('at'))} || '/_delta_log/*.checkpoint.parquet'));

-- A listing that is made while commits come may show one and not the one before it: each up to the last is read.
SET VARIABLE tributary_commits = (
  SELECT list(${variable('at')} || '/_delta_log/' || lpad(version::VARCHAR, 20, '0') || '.json' ORDER BY version)
  FROM (
    SELECT unnest(range(min(listed), max(listed) + 1)) AS version
    FROM (SELECT regexp_extract(file, '(\\d{20})[.]json$', 1)::BIGINT AS listed
          FROM glob(${patternSql(variable('at'))} || '/_delta_log/*.json') WHERE regexp_matches(file, '\\d{20}[.]json$'))
    WHERE listed >= regexp_extract(${variable('checkpoint')}, '(\\d{20})[.]checkpoint[.]parquet$', 1)::BIGINT));

SET VARIABLE ${filesOf(table)} = (
  WITH actions AS (
    SELECT '' AS commit, add.path AS path, true AS live
    FROM read_parquet(${variable('checkpoint')}, hive_partitioning = false) WHERE add.path IS NOT NULL
    UNION ALL
    SELECT filename, coalesce(add->>'path', remove->>'path'), add IS NOT NULL
    FROM read_json(${variable('commits')}, format = 'newline_delimited', filename = true,
      hive_partitioning = false, columns = {'add': 'JSON', 'remove': 'JSON'})
    WHERE add IS NOT NULL OR remove IS NOT NULL
  ), live AS (
    SELECT path FROM actions GROUP BY path HAVING arg_max(live, commit)
  )
  SELECT [epoch_ms(now())::VARCHAR, ${variable('at')} || '/_columns.parquet']
    || coalesce(list(${variable('at')} || '/' || url_decode(path) ORDER BY path)${table === events.table ? '' : ` FILTER (WHERE ${variable('at')} <> ${variable('leader')})`}, [])
  FROM live);`;

const placesSql = `ATTACH IF NOT EXISTS ':memory:' AS tributary_memory (READ_WRITE);
SET VARIABLE tributary_search_path = current_setting('search_path');
SET VARIABLE tributary_is_memory = (SELECT readonly OR type <> 'duckdb' FROM duckdb_databases() WHERE database_name = current_database());
SET VARIABLE tributary_here = '"' || replace(current_database(), '"', '""') || '"."' || replace(current_schema(), '"', '""') || '"';
SET VARIABLE tributary_home = CASE WHEN ${variable('is_memory')} THEN 'tributary_memory.main' ELSE ${variable('here')} END;
SET VARIABLE tributary_own = CASE WHEN ${variable('is_memory')} THEN 'tributary_memory' ELSE '"' || replace(current_database(), '"', '""') || '"' END || '.tributary';
SET schema = ${variable('home')};
CREATE SCHEMA IF NOT EXISTS tributary;
SET VARIABLE tributary_taken = (
  SELECT coalesce(list(name), []) FROM (
    SELECT database_name, schema_name, table_name AS name FROM duckdb_tables()
    UNION ALL
    SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT contains(sql, 'tributary_files'))
  WHERE database_name = current_database() AND schema_name = current_schema());`;

/** Minimum lifetime of the views, ms, since their creation takes time too. */
const minimumMs = 10_000;

interface View {
  readonly name: string;
  readonly table: string;
  readonly where: string;
}

/** Each view opens every file when it is created and when it is read, so there are few. */
function viewSql({ name, table, where }: View, retentionMs: number): string {
  const files = `enum_range(NULL::${filesOf(table)})`;
  const time =
    retentionMs < 3_600_000 ? `${retentionMs / 1000} seconds` : `${Math.round(retentionMs / 36_000) / 100} hours`;
  const isOld = `This view is outdated, because the lake keeps the files of older versions for ${time} only: run snapshot.sql again.`;
  return `CREATE OR REPLACE VIEW ${name} AS SELECT * FROM read_parquet(
  CASE WHEN epoch_ms(now()) < ${files}[1]::BIGINT + ${Math.max(retentionMs, minimumMs)} THEN ${files}[2:] ELSE error(${sqlText(isOld)}) END,
  union_by_name = true, hive_partitioning = false)${where};`;
}

/** Lists the views of a lake: a table's rows, and those of each kind of events. */
function listViews(tables: readonly string[]): readonly View[] {
  const [first = events.table, ...others] = tables;
  return [
    { name: first, table: first, where: '' },
    ...events.kinds.map((kind) => ({ name: kind, table: events.table, where: ` WHERE kind = ${sqlText(kind)}` })),
    ...others.map((table) => ({ name: table, table, where: '' })),
  ];
}

/** Renders the views over local copies of the files of each table, the imported events first. */
export function localViewsSql(files: ReadonlyMap<string, readonly string[]>): string {
  return listViews([...files.keys()])
    .map(({ name, table, where }) => {
      const read = `read_parquet(${sqlList(files.get(table) ?? [])}, union_by_name = true, hive_partitioning = false)`;
      return `CREATE VIEW ${name} AS SELECT * FROM ${read}${where};`;
    })
    .join('\n');
}

/** Renders the text, which is the same for every state of a lake with these tables. */
export function snapshotSql(options: SnapshotSqlOptions): string {
  const { retentionMs, writtenAtMs, root, secondaryDatasets } = options;
  const tables = [events, ...secondaryDatasets].map(({ table }) => table);
  const tableViews = tables.map((table): View => ({ name: table, table, where: '' }));
  const views = listViews(tables);
  const names = views.map(({ name }) => name);
  const types = tables
    .map(
      (table) => `CREATE OR REPLACE TYPE ${filesOf(table)} AS ENUM (SELECT unnest(getvariable('${filesOf(table)}')));`,
    )
    .join('\n');
  const plain = views.map(
    (view) =>
      `SET schema = CASE WHEN list_contains(${variable('taken')}, ${sqlText(view.name)}) THEN ${variable('own')} ELSE ${variable('home')} END;\n${viewSql(view, retentionMs)}`,
  );
  const lists = secondaryDatasets.flatMap(({ table }) => [
    otherTableSql(table),
    filesSql(table),
    `SET VARIABLE tributary_at = ${variable('leader')};`,
  ]);
  const used = [
    ...(writtenAtMs === undefined ? [] : ['newest']),
    ...(secondaryDatasets.length === 0 ? [] : ['leader']),
    'at',
    'checkpoint',
    'commits',
    'search_path',
    'is_memory',
    'here',
    'home',
    'own',
    'taken',
  ].map((name) => `tributary_${name}`);
  const about =
    writtenAtMs === undefined
      ? `-- Reads the lake at ${JSON.stringify(root)}.`
      : `-- Reads the lake of its folder. For a copy whose service has not started yet: SET VARIABLE tributary_root = '/path/of/lake' first.
${writtenMark}${writtenAtMs}`;
  return `-- The imported events${secondaryDatasets.length === 0 ? '' : ', and the other tables of the lake,'} as of now, for DuckDB 1.3 or newer. Run it again for a newer snapshot.
-- Views: ${names.join(', ')}; always also tributary.${events.table}, and for example tributary.login if the database has a table of that name.
-- Other connections to a read-only database find them as tributary_memory.${events.table} and so on. Times are TIMESTAMPTZ.
${about}

${rootSql(options)}

${[eventsTableSql, filesSql(events.table), ...lists].join('\n\n')}

${placesSql}

SET schema = ${variable('own')};
${types}
${tableViews.map((view) => viewSql(view, retentionMs)).join('\n')}

SET schema = ${variable('home')};
${types}
${plain.join('\n')}

SET search_path = CASE
  WHEN NOT ${variable('is_memory')} THEN ${variable('search_path')}
  ELSE CASE ${variable('search_path')} WHEN '' THEN ${variable('here')} ELSE ${variable('search_path')} END || ',tributary_memory.main,tributary_memory.tributary' END;
${[...used, ...tables.map(filesOf)].map((name) => `RESET VARIABLE ${name};`).join('\n')}
`;
}

export interface SnapshotFileOptions {
  readonly root: string;
  readonly clock: Clock;
  readonly retentionMs: number;
}

const isSecondary = (dataset: Dataset): boolean => dataset !== events;

const openRoot = (root: string): ObjectStore => openStore(root, { mode: tableFileMode, isGrowing: true });

/** Returns the address of a lake for readers: its path, or its place in a bucket. */
export const addressOf = (root: string): string => openRoot(root).nameOf('').replace(/\/+$/, '');

async function writeSnapshotFile(
  { root, clock, retentionMs }: SnapshotFileOptions,
  tables: readonly Dataset[],
): Promise<void> {
  const secondaryDatasets = tables.filter(isSecondary);
  const text = snapshotSql({ root: addressOf(root), secondaryDatasets, retentionMs, writtenAtMs: clock.nowMs() });
  await openRoot(root).replace(fileName, Buffer.from(text), 'any');
}

/** Ensures that the file exists, names the lake's tables, and is not a copy, which names the original folder. */
export async function ensureSnapshotFile(options: SnapshotFileOptions, tables: readonly Dataset[]): Promise<void> {
  const { root, retentionMs } = options;
  const text = await findText(openRoot(root), fileName);
  const secondaryDatasets = tables.filter(isSecondary);
  if (
    text === undefined ||
    text !==
      snapshotSql({ root: addressOf(root), secondaryDatasets, retentionMs, writtenAtMs: findWrittenAt(text) ?? 0 })
  )
    await writeSnapshotFile(options, tables);
}

/** Rewrites the file when a table has advanced, so that a copied text is recognized. */
export interface SnapshotFile {
  renew(versions: ReadonlyMap<Dataset, number>): Promise<void>;
}

/** Keeps the time in snapshot.sql near that of the newest commit. For the one compactor. */
export function createSnapshotFile(options: SnapshotFileOptions): SnapshotFile {
  let written: string | undefined;
  return {
    async renew(versions) {
      const now = [...versions].map(([{ table }, version]) => `${table} ${version}`).join(', ');
      if (now === written) return;
      await writeSnapshotFile(
        options,
        [...datasets.values()].filter((dataset) => versions.has(dataset)),
      );
      written = now;
    },
  };
}
