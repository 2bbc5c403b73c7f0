/**
 * Removes the rows of a table that have exceeded their age limit, a few files per commit.
 *
 * In: the first kept dates (age-rules.ts) and the live sealed files. Out: commits that remove files of expired rows, and
 * replace files with others. Young files are left: their rows are sealed within a day.
 * Invariant: a commit removes expired rows only, and counts them as erased. The erasure list names their days.
 * Crash: all or nothing per commit (lake/files/change.ts). The next run continues.
 */
import type { Dataset } from '../../datasets/dataset.ts';
import { parsePartitionPath } from '../../datasets/partition.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { localFiles } from '../../runtime/store/open-store.ts';
import { prepareRemovedDays } from '../event-index/erasure-list.ts';
import { assertFilesIntact } from '../files/data-file.ts';
import { listDeferredReplacements } from '../files/deferred-replacement.ts';
import { rewriteFiles } from '../files/rewrite.ts';
import { rowGroupBounds } from '../files/row-memory.ts';
import { openStagingFolder } from '../files/staging.ts';
import type { Action } from '../log/actions.ts';
import { withEmptyFile, type DataFile, type Snapshot } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList } from '../sql/literals.ts';
import { dayOf, expiredSql, listRemovedDays, msOfDay, type Cutoffs } from './age-rules.ts';

/** Limits of a commit: removed files, and files and bytes that are read for a rewrite. */
const limits = { removedFiles: 256, rewrittenFiles: 8, rewrittenBytes: 256 * 1024 ** 2 } as const;

const parseMs = (value: unknown): number => (typeof value === 'string' ? Date.parse(value) : Number.NaN);

/** Returns the apps that a file may have: those with own limits, and undefined for any other. */
function listApps({ ownApps }: Cutoffs, least: number, greatest: number): (number | undefined)[] {
  const own = ownApps.filter((idApp) => idApp >= least && idApp <= greatest);
  return own.length > greatest - least ? own : [...own, undefined];
}

function listKinds(
  { kinds }: Cutoffs,
  { minValues: { kind: first }, maxValues: { kind: last } }: DataFile,
): readonly string[] {
  if (typeof first !== 'string' || typeof last !== 'string') return kinds;
  const within = kinds.filter((kind) => kind >= first && kind <= last);
  return within.length === 0 ? kinds : within;
}

/** Reports by the statistics of a file whether all, some or none of its rows may be expired. */
export function findExpired(file: DataFile, cutoffs: Cutoffs): 'all' | 'some' | 'none' {
  const { date } = parsePartitionPath(file.publishedPath ?? file.path) ?? {};
  // Most files are recent: their statistics need not be parsed.
  if (date !== undefined && msOfDay(date) >= cutoffs.latestMs) return 'none';
  const { minValues, maxValues, numRecords } = file;
  if (numRecords === 0) {
    // An erasure has left it for readers of folders.
    const firstKeptMs = Math.min(...cutoffs.kinds.map((kind) => cutoffs.findMs(undefined, kind)));
    return date !== undefined && msOfDay(date) < firstKeptMs ? 'all' : 'none';
  }
  const [least, greatest] = [minValues['id_app'], maxValues['id_app']];
  const apps = listApps(cutoffs, Number(least ?? Number.NEGATIVE_INFINITY), Number(greatest ?? Infinity));
  const times = listKinds(cutoffs, file).flatMap((kind) => apps.map((idApp) => cutoffs.findMs(idApp, kind)));
  const firstMs = parseMs(minValues['event_time']);
  if (firstMs >= Math.max(...times)) return 'none';
  // The log keeps milliseconds: a maximum may stand for up to one more. NaN compares as unknown.
  const isAll = parseMs(maxValues['event_time']) + 1 <= Math.min(...times);
  return isAll && numRecords !== undefined ? 'all' : 'some';
}

interface Expired {
  readonly file: DataFile;
  readonly rows: number;
}

const readSql = (paths: readonly string[], more = ''): string =>
  `read_parquet(${sqlList(paths)}, union_by_name = true, hive_partitioning = false${more})`;

/** Counts the expired rows of files. */
async function countExpired(
  duckdb: Duckdb,
  snapshot: Pick<Snapshot, 'emptyFile'>,
  files: readonly DataFile[],
  cutoffs: Cutoffs,
): Promise<Expired[]> {
  return localFiles.use(withEmptyFile(snapshot, files), async (paths) => {
    const rows = await duckdb.rows(
      `SELECT filename, count(*) AS n FROM ${readSql(paths, ', filename = true')} WHERE ${expiredSql(cutoffs)} GROUP BY filename`,
    );
    const counts = new Map(rows.map((row) => [String(row['filename']), Number(row['n'])]));
    return files.map((file, index) => ({ file, rows: counts.get(paths[index + 1] ?? '') ?? 0 }));
  });
}

export interface ExpiryDependencies {
  readonly dataset: Dataset;
  readonly table: Table;
  readonly stagingDir: string;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

/** Files without expired rows on a day, by path, so that they are read once. */
export type Settled = Set<string>;

interface Chosen {
  readonly removed: readonly Expired[];
  readonly rewritten: readonly Expired[];
}

function sumRows(expired: readonly Expired[]): number {
  return expired.reduce((sum, { rows }) => sum + rows, 0);
}

const firstMsOf = ({ minValues }: DataFile): number => parseMs(minValues['event_time']) || 0;

/** Lists the sealed files that may have expired rows, oldest first. `settled`: known files without. */
export function listDue(files: readonly DataFile[], cutoffs: Cutoffs, settled: Settled = new Set()) {
  const due = files
    .filter((file) => !file.young && !settled.has(file.path))
    .map((file) => ({ file, verdict: findExpired(file, cutoffs) }))
    .filter(({ verdict }) => verdict !== 'none');
  return due.toSorted((a, b) => firstMsOf(a.file) - firstMsOf(b.file));
}

const isWhole = ({ file, rows }: Expired): boolean => rows === file.numRecords;

/**
 * Chooses the files of the next commit: those to remove first, then a few to rewrite. `continue`: the files that were
 * read have no expired rows, and others may. `wait`: all files left are rewrites that are not shown yet; without them,
 * erased rows would stay at their paths.
 */
async function choose(
  { table, duckdb }: ExpiryDependencies,
  cutoffs: Cutoffs,
  settled: Settled,
): Promise<Chosen | 'continue' | 'wait' | undefined> {
  const snapshot = table.snapshot();
  const all = listDue(snapshot.files, cutoffs, settled);
  const files = all.map(({ file }) => file);
  const unshown = new Set(await listDeferredReplacements(table.dir, files));
  const due = all.filter(({ file }) => !unshown.has(file));
  const whole = due.filter(({ verdict }) => verdict === 'all').slice(0, limits.removedFiles);
  if (whole.length > 0)
    return { removed: whole.map(({ file }) => ({ file, rows: file.numRecords ?? 0 })), rewritten: [] };
  if (due.length === 0) return unshown.size > 0 ? 'wait' : undefined;
  const some: DataFile[] = [];
  let bytes = 0;
  for (const { file } of due) {
    bytes += file.sizeBytes;
    if (some.length > 0 && (some.length === limits.rewrittenFiles || bytes > limits.rewrittenBytes)) break;
    some.push(file);
  }
  // A rewrite gets its own hash, which would hide damage.
  await assertFilesIntact(some);
  const counted = await countExpired(duckdb, snapshot, some, cutoffs);
  for (const { file, rows } of counted) if (rows === 0) settled.add(file.path);
  const expired = counted.filter(({ rows }) => rows > 0);
  if (expired.length === 0) return 'continue';
  return { removed: expired.filter(isWhole), rewritten: expired.filter((one) => !isWhole(one)) };
}

/** The least and greatest app of files; unbounded without statistics. */
function appRange(files: readonly DataFile[]): readonly [number, number] {
  const least = files.map(({ minValues }) => Number(minValues['id_app'] ?? -Infinity));
  const greatest = files.map(({ maxValues }) => Number(maxValues['id_app'] ?? Infinity));
  return [Math.min(...least), Math.max(...greatest)];
}

/** Figures of a commit that removed expired rows. */
export interface ExpiredRows {
  readonly rows: number;
  readonly filesRemoved: number;
  readonly filesRewritten: number;
}

/**
 * Removes the expired rows of some files by one commit, under the maintenance lock; undefined if no sealed file has any.
 * `continue`: a few files were read and have none. `wait`: erasures in the files left are to be shown first.
 * Errors: `file_damaged`, `commit_conflict`, `disk`, `sql`.
 */
export async function expireSome(
  dependencies: ExpiryDependencies,
  cutoffs: Cutoffs,
  settled: Settled,
): Promise<ExpiredRows | 'continue' | 'wait' | undefined> {
  const { dataset, table, stagingDir, duckdb, clock, crashPoint } = dependencies;
  const chosen = await choose(dependencies, cutoffs, settled);
  if (chosen === undefined || typeof chosen === 'string') return chosen;
  const { removed, rewritten } = chosen;
  const rows = sumRows(removed) + sumRows(rewritten);
  const work = await openStagingFolder(stagingDir, 'the age limit');
  try {
    const days = listRemovedDays(cutoffs, appRange([...removed, ...rewritten].map(({ file }) => file)));
    const list =
      rows === 0 || days.length === 0 ? undefined : await prepareRemovedDays({ table, duckdb }, work.folder, days);
    const keptSql = `NOT (${expiredSql(cutoffs)})`;
    const toRemoval = ({ file }: Expired): Action => ({
      remove: { path: encodeURI(file.path), deletionTimestamp: clock.nowMs(), dataChange: true },
    });
    const figures = { rows, filesRemoved: removed.length, filesRewritten: rewritten.length };
    await rewriteFiles(
      {
        table,
        stagingDir,
        duckdb,
        clock,
        crashPoint,
        rowGroup: rowGroupBounds(duckdb.memoryMb, dataset.columns.length),
      },
      rewritten.map(({ file, rows: rowsLeftOut }) => ({
        file,
        rowsLeftOut,
        // The engine keeps the order of its input, without a sort.
        toQuery: (source) => `SELECT * FROM ${source} WHERE ${keptSql}`,
      })),
      ({ version }, lake) => ({
        cause: 'expire',
        actions: removed.map(toRemoval),
        totals: { stored: -rows, erased: rows },
        erasures: list?.toState(lake, version + 1),
        expiryDay: cutoffs.day,
        metrics: { ...figures, day: cutoffs.day },
      }),
      list?.file,
    );
    return figures;
  } finally {
    await work.close();
  }
}

/** Expired rows of an app in a table. */
interface ExpiredApp {
  readonly idApp: number;
  readonly rows: number;
  /** First and last day (UTC). */
  readonly from: string;
  readonly to: string;
}

/** Counts of rows and sealed files of a table that the age limits would remove. */
export interface ExpiryDryRun {
  readonly rows: number;
  readonly filesToRemove: number;
  readonly filesToRewrite: number;
  readonly apps: readonly ExpiredApp[];
}

const filesAtOnce = 64;

/** Counts what the age limits would remove. Changes nothing. */
export async function dryRunExpiry(duckdb: Duckdb, snapshot: Snapshot, cutoffs: Cutoffs): Promise<ExpiryDryRun> {
  const due = listDue(snapshot.files, cutoffs).map(({ file }) => file);
  const apps = new Map<number, ExpiredApp>();
  let [filesToRemove, filesToRewrite] = [0, 0];
  for (let from = 0; from < due.length; from += filesAtOnce) {
    const some = due.slice(from, from + filesAtOnce);
    for (const { file, rows } of await countExpired(duckdb, snapshot, some, cutoffs)) {
      if (rows === file.numRecords) filesToRemove += 1;
      else if (rows > 0) filesToRewrite += 1;
    }
    const found = await localFiles.use(withEmptyFile(snapshot, some), (paths) =>
      duckdb.rows(
        `SELECT id_app, count(*) AS n, epoch_ms(min(event_time)) AS first, epoch_ms(max(event_time)) AS last
         FROM ${readSql(paths)} WHERE ${expiredSql(cutoffs)} AND id_app IS NOT NULL GROUP BY id_app`,
      ),
    );
    for (const row of found) {
      const [idApp, rows] = [Number(row['id_app']), Number(row['n'])];
      const [first, last] = [dayOf(Number(row['first'])), dayOf(Number(row['last']))];
      const known = apps.get(idApp) ?? { idApp, rows: 0, from: first, to: last };
      apps.set(idApp, {
        idApp,
        rows: known.rows + rows,
        from: first < known.from ? first : known.from,
        to: last > known.to ? last : known.to,
      });
    }
  }
  const listed = [...apps.values()].toSorted((a, b) => a.idApp - b.idApp);
  return { rows: listed.reduce((sum, { rows }) => sum + rows, 0), filesToRemove, filesToRewrite, apps: listed };
}
