/**
 * The erasure list of a table: which rows were removed since a version, for readers that keep a copy.
 *
 * In: the rows that an erasure or the undoing of a load is about to remove, and the days that the age limit has removed.
 * Out: a Parquet file in the table's folder, which the lake's state names with its hash. A row has `version`,
 * `id_app`, and either an `event_id`, or a `before` date with an optional `kind`, or neither: too many ids of the app.
 * It has no field of an event.
 * Invariant: a removal is listed before its rows are removed. Its `version` is NULL until the next list; the state has
 * it when the removal ends.
 * Crash: the listed rows may still exist. The removal is repeated, and lists them again.
 */
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { AppError } from '../../runtime/errors.ts';
import { localFiles } from '../../runtime/store/open-store.ts';
import { openChange, type NewFile } from '../files/change.ts';
import { findFileDamage, writeDataFile } from '../files/data-file.ts';
import { findErased, type ErasureListState, type LakeState } from '../log/lake-state.ts';
import { listLog, tableStore } from '../log/log-files.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';

/** Folder of the lists. Their names end so that no reader takes them for rows. */
export const erasureListFolder = '_erasures';

/** Limit of listed rows: about 20 MB. The oldest removals are left out, and the list then begins after them. */
const maxRows = 1_000_000;
/** Limit of ids of an app in one removal. Of more, the app alone is listed. */
const maxIdsOfApp = 100_000;
/** Rows of a row group: readers of few apps read few groups. */
const groupRows = 20_480;
/** Version of a removal in progress. */
const newest = Number.MAX_SAFE_INTEGER;

/** Rows of an app, or of a kind of it, before a date (UTC), which the age limit removes. */
export interface RemovedDays {
  readonly idApp: number;
  readonly kind?: string;
  /** YYYY-MM-DD, exclusive. */
  readonly before: string;
}

/** Returns the first version whose cursors have a complete list. Versions before 0.4 listed nothing. */
function erasuresSince(lake: Pick<LakeState, 'erasures' | 'forgetBefore' | 'erasing' | 'erasedBefore'>): number {
  return lake.erasures?.since ?? findErased(lake, undefined).before;
}

/** Returns the list as a file that can be verified and read; undefined without one. */
export function erasureListFile(tableDir: string, { erasures }: Pick<LakeState, 'erasures'>): DataFile | undefined {
  if (erasures === undefined) return undefined;
  const { file, sizeBytes, sha256, rows: numRecords } = erasures;
  const absolutePath = path.join(path.resolve(tableDir), file);
  return { path: file, absolutePath, sizeBytes, sha256, numRecords, minValues: {}, maxValues: {}, young: false };
}

/** SQL of the version up to which a listed row was removed; a removal in progress is later than any cursor. */
export const removedBySql = ({ removedBy }: Pick<ErasureListState, 'removedBy'>): string =>
  `coalesce(version, ${removedBy ?? newest})`;

/** Returns the state of a list when its newest removal has ended at a version. */
export function endRemoval(erasures: ErasureListState | undefined, version: number): ErasureListState | undefined {
  return erasures === undefined || erasures.removedBy !== undefined ? erasures : { ...erasures, removedBy: version };
}

interface ListDependencies {
  readonly table: Table;
  readonly duckdb: Duckdb;
}

/** A list that is written and not committed. */
export interface PreparedList {
  readonly file: NewFile;
  /** Returns the state of the commit that publishes the file. `removedBy`: its version, if it removes the rows too. */
  toState(lake: LakeState, removedBy?: number): ErasureListState;
}

const columns = 'id_app, event_id, kind, before';

/** Collects the ids of queries of `id_app` and `event_id`; of an app with too many, a row without an id. */
async function collectIds(duckdb: Duckdb, selects: readonly string[]): Promise<void> {
  const counts = new Map<number, number>();
  for (const select of selects) {
    const rows = await duckdb.rows(
      `SELECT id_app, count(*) AS n FROM (${select}) WHERE id_app IS NOT NULL GROUP BY id_app`,
    );
    for (const row of rows) {
      const idApp = Number(row['id_app']);
      counts.set(idApp, (counts.get(idApp) ?? 0) + Number(row['n']));
    }
  }
  const large = [...counts].flatMap(([idApp, n]) => (n > maxIdsOfApp ? [idApp] : []));
  const isSmall = large.length === 0 ? 'true' : `id_app NOT IN (${large.join(', ')})`;
  for (const select of selects)
    await duckdb.run(
      `INSERT INTO erased_now SELECT id_app, event_id, NULL, NULL FROM (${select}) WHERE id_app IS NOT NULL AND event_id IS NOT NULL AND ${isSmall}`,
    );
  for (const idApp of large) await duckdb.run(`INSERT INTO erased_now VALUES (${idApp}, NULL, NULL, NULL)`);
}

async function collectDays(duckdb: Duckdb, days: readonly RemovedDays[]): Promise<void> {
  for (const { idApp, kind, before } of days)
    await duckdb.run(
      `INSERT INTO erased_now VALUES (${idApp}, NULL, ${kind === undefined ? 'NULL' : sqlText(kind)}, DATE ${sqlText(before)})`,
    );
}

/** Returns the version up to which removals are left out, so that the list keeps to its limit; 0 if none. */
async function findLeftOut(duckdb: Duckdb, local: string, known: string, room: number): Promise<number> {
  const rows = await duckdb.rows(
    `SELECT ${known} AS version, count(*) AS n FROM read_parquet(${sqlText(local)}) WHERE event_id IS NOT NULL GROUP BY ALL ORDER BY 1 DESC`,
  );
  let sum = 0;
  for (const row of rows) {
    sum += Number(row['n']);
    if (sum > room) return Number(row['version']);
  }
  return 0;
}

/**
 * Query of the next list. `former`: query of the rows that stay. A removal up to a date is dropped only if another, at
 * least as new, goes as far: after a limit was raised, a new removal ends earlier.
 */
const nextListSql = (former: string): string => `
  WITH all_rows AS (${former}SELECT NULL::BIGINT AS version, ${columns} FROM erased_now)
  SELECT version, ${columns} FROM all_rows WHERE event_id IS NOT NULL
  UNION ALL (SELECT version, ${columns} FROM all_rows WHERE event_id IS NULL
    QUALIFY coalesce(version, ${newest}) > coalesce(max(coalesce(version, ${newest})) OVER (
      PARTITION BY id_app, kind, before IS NULL ORDER BY before DESC, version DESC NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), -1))
  ORDER BY id_app, event_id, kind`;

async function prepareList(
  { table, duckdb }: ListDependencies,
  workDir: string,
  fill: () => Promise<void>,
): Promise<PreparedList> {
  const lake = table.lake();
  const found = erasureListFile(table.dir, lake);
  // Without it, the list begins at this version: a lost list must not prevent an erasure.
  const isLost = found !== undefined && (await findFileDamage(found)) !== undefined;
  const former = isLost || found === undefined ? [] : [found];
  // A removal that was killed has ended by now.
  const now = table.state().version + 1;
  const known = removedBySql({ removedBy: lake.erasures?.removedBy ?? now });
  const name = `v${now}-${randomUUID()}.list`;
  const staged = path.join(workDir, name);
  await duckdb.run(
    'CREATE OR REPLACE TEMP TABLE erased_now (id_app BIGINT, event_id VARCHAR, kind VARCHAR, before DATE)',
  );
  await fill();
  const [counted] = await duckdb.rows('SELECT count(*) AS n FROM erased_now');
  const { written, leftOut } = await localFiles.use(former, async ([local]) => {
    const after = local === undefined ? 0 : await findLeftOut(duckdb, local, known, maxRows - Number(counted?.['n']));
    const kept =
      local === undefined
        ? ''
        : `SELECT * FROM (SELECT ${known} AS version, ${columns} FROM read_parquet(${sqlText(local)})) WHERE event_id IS NULL OR version > ${after} UNION ALL `;
    return {
      written: await writeDataFile(duckdb, nextListSql(kept), staged, 'sealed', { rows: groupRows }),
      leftOut: after,
    };
  });
  await duckdb.run('DROP TABLE erased_now');
  const file = { file: staged, path: `${erasureListFolder}/${name}` };
  const { sizeBytes, sha256, numRecords: rows } = written;
  return {
    file,
    toState: (current, removedBy) => ({
      file: file.path,
      sizeBytes,
      sha256,
      rows,
      since: Math.max(erasuresSince(current), leftOut, isLost ? now : 0),
      ...(removedBy === undefined ? {} : { removedBy }),
    }),
  };
}

/** Returns the version that a list was prepared for; 0 for names before 0.4. */
const versionOf = (key: string): number => Number(/\/v(\d+)-[^/]+$/.exec(key)?.[1] ?? 0);

/** Removes former lists that were replaced before the log begins: exports may be reading the others. */
export async function removeFormerLists(table: Table): Promise<void> {
  const current = table.lake().erasures?.file;
  if (current === undefined) return;
  const store = tableStore(table.dir);
  const keys = await store.list(`${erasureListFolder}/`);
  const {
    commits: [oldest = 0],
  } = await listLog(table.dir);
  const inOrder = keys.toSorted((a, b) => versionOf(a) - versionOf(b));
  await store.remove(
    inOrder.filter((key, index) => {
      const next = inOrder[index + 1];
      return key !== current && next !== undefined && versionOf(next) < oldest;
    }),
  );
}

/**
 * Prepares the list with rows of a table that will be removed, in a work folder next to the table. Under the maintenance
 * lock. `selects`: queries of their `id_app` and `event_id`.
 */
export async function prepareRemovedRows(
  dependencies: ListDependencies,
  workDir: string,
  selects: readonly string[],
): Promise<PreparedList> {
  await removeFormerLists(dependencies.table);
  return prepareList(dependencies, workDir, () => collectIds(dependencies.duckdb, selects));
}

/** Prepares the list with days whose rows the age limit will remove, as `prepareRemovedRows`. */
export async function prepareRemovedDays(
  dependencies: ListDependencies,
  workDir: string,
  days: readonly RemovedDays[],
): Promise<PreparedList> {
  await removeFormerLists(dependencies.table);
  return prepareList(dependencies, workDir, () => collectDays(dependencies.duckdb, days));
}

/** Commits the list with rows that several commits will remove; the last one calls `endRemoval`. */
export async function listRemovedRows(
  { crashPoint, ...dependencies }: ListDependencies & { readonly crashPoint: CrashPoint },
  stagingDir: string,
  selects: readonly string[],
): Promise<void> {
  const { table } = dependencies;
  const open = await openChange(table, stagingDir, 'the list of erased rows', crashPoint);
  try {
    const list = await prepareRemovedRows(dependencies, open.folder, selects);
    await open.commit([list.file], (_state, lake) => {
      const erasures = list.toState(lake);
      return { cause: 'erasures', actions: [], erasures, metrics: { listed: erasures.rows } };
    });
  } finally {
    await open.close();
  }
}

/** Throws `not_found` if the list of a version does not reach back to a cursor. */
export function assertListed(lake: LakeState | undefined, version: number): void {
  const since = lake === undefined ? 0 : erasuresSince(lake);
  if (version >= since) return;
  throw new AppError('not_found', `the list of erased rows begins at version ${since}`, {
    hint: 'Replace the copy: read all rows without a cursor, then continue from the returned cursor.',
  });
}
