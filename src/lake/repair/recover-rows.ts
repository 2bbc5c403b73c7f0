import path from 'node:path';
import { localFiles } from '../../runtime/store/open-store.ts';
import type { Action, AddAction } from '../log/actions.ts';
import { keyOf } from '../files/change-record.ts';
import { lakeStore, toAdd, writeDataFile } from '../files/data-file.ts';
import { sqlList, sqlName, sqlText } from '../sql/literals.ts';
import { openChange, type NewFile } from '../files/change.ts';
import { findPublished } from '../files/deferred-replacement.ts';
import type { MissingFile } from './missing-files.ts';
import { pruneFiles } from '../files/prune.ts';
import { rewrittenPath, withReplacedSince, type RewriteDependencies } from '../files/rewrite.ts';
import { withEmptyFile, type DataFile } from '../log/snapshot.ts';
import type { Change } from '../log/table.ts';
import { parseSchemaString } from '../table-schema.ts';

/** Returns a condition for the rows that missing files may have had, by the log's statistics. */
function boundsSql(missing: readonly DataFile[]): string {
  // An empty rewrite has no bounds.
  const parts = missing
    .filter((file) => file.numRecords !== 0)
    .map(({ minValues, maxValues }) => {
      const within = (column: string, type: string): string =>
        `c.${column} BETWEEN ${sqlText(String(minValues[column]))}::${type} AND ${sqlText(String(maxValues[column]))}::${type}`;
      return `(${within('event_id', 'VARCHAR')} AND ${within('available_at', 'TIMESTAMPTZ')})`;
    });
  return parts.length === 0 ? 'false' : parts.join(' OR ');
}

/** Removes copies whose rows are all in the table, since erased users must not stay readable. */
export async function dropKnownCopies(
  { table, duckdb }: RewriteDependencies,
  copies: readonly string[],
): Promise<string[]> {
  const snapshot = table.snapshot();
  const lakeDir = path.dirname(table.dir);
  const dropped: string[] = [];
  const hasOnlyKnownRows = async (emptyFile: string, copy: string): Promise<boolean> => {
    const [range] = await duckdb.rows(
      `SELECT count(*) AS n, epoch_ms(min(available_at)) AS low, epoch_ms(max(available_at)) AS high FROM ${readSql(emptyFile, [copy])}`,
    );
    if (range === undefined || range['low'] === null) return Number(range?.['n']) === 0;
    const near = pruneFiles(snapshot.files, {
      availableAt: { fromMs: Number(range['low']), toMs: Number(range['high']) },
    });
    const [row] = await localFiles.use(near, (paths) =>
      duckdb.rows(
        `SELECT count(*) AS n FROM ${readSql(emptyFile, [copy])} AS c ANTI JOIN ${readSql(emptyFile, paths)} AS t ON t.event_id = c.event_id`,
      ),
    );
    return Number(row?.['n']) === 0;
  };
  for (const copy of copies) {
    // Unreadable copies, and those with other columns, stay.
    const isKnown = localFiles.use(withEmptyFile(snapshot, [{ absolutePath: copy }]), ([emptyFile = '', local = '']) =>
      hasOnlyKnownRows(emptyFile, local),
    );
    if (!(await isKnown.catch(() => false))) continue;
    await lakeStore(lakeDir).remove([keyOf(lakeDir, copy)]);
    dropped.push(copy);
  }
  return dropped;
}

function readSql(emptyFile: string, list: readonly string[]): string {
  return `read_parquet(${sqlList([emptyFile, ...list])}, union_by_name = true, hive_partitioning = false)`;
}

interface Recovery {
  readonly missing: readonly DataFile[];
  /** The missing rewrite of a file that is still shown. That file stays in the glob until the new one replaces it. */
  readonly rewrite?: DataFile;
}

/** Plans a young file for missing ones, and rewrites of shown files, whose rows the glob would otherwise have twice. */
async function planRecoveries({ table }: RewriteDependencies, missing: readonly MissingFile[]): Promise<Recovery[]> {
  const missingPaths = new Set(missing.map((file) => file.path));
  const plain: DataFile[] = [];
  const recoveries: Recovery[] = [];
  for (const file of table.snapshot().files.filter((one) => missingPaths.has(one.path))) {
    const isWaiting = file.sinceMs !== undefined && (await findPublished(table.dir, file)) === 'another';
    if (isWaiting) recoveries.push({ missing: [file], rewrite: file });
    else plain.push(file);
  }
  return plain.length === 0 ? recoveries : [...recoveries, { missing: plain }];
}

/** Local paths of the empty file, of copies, and of present files. */
interface RecoverySources {
  readonly emptyFile: string;
  readonly copies: readonly string[];
  readonly present: readonly string[];
}

/** Returns SQL of the copies' rows that a missing file may have had, and no present file has. */
function recoverySql(
  { table }: RewriteDependencies,
  recovery: Recovery,
  recoveries: readonly Recovery[],
  { emptyFile, copies, present }: RecoverySources,
): string {
  const { schemaString } = table.snapshot();
  const shownPath = ({ publishedPath = '' }: DataFile): string => path.join(table.dir, publishedPath);
  const { rewrite } = recovery;
  const rewrittenPaths = recoveries.flatMap((other) =>
    rewrite !== undefined || other.rewrite === undefined ? [] : [shownPath(other.rewrite)],
  );
  const known = [...present, ...rewrittenPaths];
  const columns =
    schemaString === undefined
      ? 'c.*'
      : parseSchemaString(schemaString)
          .map(({ name, type }) => `CAST(c.${sqlName(name)} AS ${type}) AS ${sqlName(name)}`)
          .join(', ');
  const own =
    rewrite === undefined
      ? ''
      : `SEMI JOIN ${readSql(emptyFile, [shownPath(rewrite)])} AS s ON s.event_id = c.event_id`;
  const order = rewrite === undefined ? '' : 'ORDER BY c.id_app, c.event_time';
  return `SELECT ${columns} FROM ${readSql(emptyFile, copies)} AS c ANTI JOIN ${readSql(emptyFile, known)} AS t ON t.event_id = c.event_id ${own} WHERE ${boundsSql(recovery.missing)} ${order}`;
}

/**
 * Recovers rows of missing files from copies by another engine, such as its OPTIMIZE before a VACUUM: rows that a
 * missing file may have had, and no present one has. Commits them as a young file, or as rewrites of missing rewrites.
 * Changes nothing if their number differs from the log's; `partly` accepts fewer, and the rest counts as erased.
 * Returns the number of rows. Under the maintenance lock.
 */
export async function recoverRows(
  dependencies: RewriteDependencies,
  missing: readonly MissingFile[],
  copies: readonly string[],
  partly: boolean,
): Promise<number> {
  const { table, stagingDir, duckdb, clock, crashPoint } = dependencies;
  const wanted = missing.reduce((sum, file) => sum + file.rows, 0);
  const recoveries = await planRecoveries(dependencies, missing);
  const open = await openChange(table, stagingDir, 'a repair', crashPoint);
  const nowMs = clock.nowMs();
  const missingFiles = new Set(recoveries.flatMap((recovery) => recovery.missing));
  const presentFiles = table.snapshot().files.filter((file) => !missingFiles.has(file));
  const files: NewFile[] = [];
  const adds: AddAction[] = [];
  let found = 0;
  try {
    for (const [index, recovery] of recoveries.entries()) {
      const file = path.join(open.folder, `${index}.parquet`);
      const { rewrite } = recovery;
      const written = await localFiles.use(
        withEmptyFile(table.snapshot(), [...copies.map((copy) => ({ absolutePath: copy })), ...presentFiles]),
        ([emptyFile = '', ...paths]) => {
          const sources = {
            emptyFile,
            copies: paths.slice(0, copies.length),
            present: paths.slice(copies.length),
          };
          return writeDataFile(duckdb, recoverySql(dependencies, recovery, recoveries, sources), file);
        },
      );
      found += written.numRecords;
      // Without a rewrite nothing would replace the shown file, whose rows no longer belong to the table.
      if (written.numRecords === 0 && rewrite === undefined) continue;
      const to = rewrittenPath(rewrite ?? { young: true, publishedPath: undefined }, open.id, index);
      const add = toAdd(to, written, nowMs, true);
      files.push({ file, path: to });
      adds.push(rewrite === undefined ? add : withReplacedSince(add, rewrite.sinceMs ?? nowMs));
    }
    if (found > wanted || (found < wanted && (!partly || found === 0))) return found;
    const lost = wanted - found;
    const dataChange = lost > 0;
    const actions: Action[] = [
      ...missing.map((file) => ({ remove: { path: encodeURI(file.path), deletionTimestamp: nowMs, dataChange } })),
      ...adds.map((add) => ({ add: { ...add, dataChange } })),
    ];
    const change: Change = {
      cause: 'repair',
      actions,
      totals: { stored: -lost, erased: lost },
      metrics: { rows: found, lost, filesIn: missing.length },
    };
    // A truncated file breaks readers of the glob, and all of its rows were found.
    const missingSealed = recoveries.flatMap((recovery) => recovery.missing).filter((file) => !file.young);
    const unlink = missingSealed.flatMap(({ absolutePath, path: relative, publishedPath = relative, sinceMs }) =>
      sinceMs === undefined ? [absolutePath, path.join(table.dir, publishedPath)] : [absolutePath],
    );
    await open.commit(files, () => change, { unlink: lost > 0 ? [] : [...new Set(unlink)] });
    return found;
  } finally {
    await open.close();
  }
}
