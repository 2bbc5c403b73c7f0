import { localFiles } from '../../runtime/store/open-store.ts';
import { describeError, isAppError, isDamage } from '../../runtime/errors.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { readFreeBytes } from '../../runtime/files/disk-watch.ts';
import { rewriteFiles } from '../../lake/files/rewrite.ts';
import { rowGroupBounds } from '../../lake/files/row-memory.ts';
import { listDeferredReplacements } from '../../lake/files/deferred-replacement.ts';
import { assertFilesIntact } from '../../lake/files/data-file.ts';
import type { MetaDataAction } from '../../lake/log/actions.ts';
import type { Change } from '../../lake/log/table.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { describeFileSql, hasColumns, sealedColumnsProperty } from '../../lake/table-schema.ts';
import { describeTable, sumBytes } from './seal-task.ts';
import { takeBounded } from '../compact-options.ts';
import { withMaintenanceLock, type TableDependencies } from './maintenance-task.ts';

/** Work of one run, ms. The table idles as long afterwards, so that a rewrite takes half a core. */
const budgetMs = 5000;
/** Limits the files and bytes of one commit: commands wait for the maintenance lock meanwhile. */
const maxFiles = 64;
const maxBytes = 128 * 1024 ** 2;
/** The rate before the first rewrite, bytes per ms, idle times included. */
const assumedRate = 5000;
/** Free space on the disk of staged files below which the rewrite pauses, long before imports are rejected, bytes. */
const reserveBytes = 1024 ** 3;

/** Files of another engine have no hash. */
const keyOf = ({ sha256, path }: DataFile): string => sha256 ?? path;

function createFileRecord({ table, logger }: TableDependencies) {
  /** True if a file lacks columns, or the reason why it cannot be rewritten: it then stays until the next start. */
  const known = new Map<string, boolean | string>();
  function giveUp(file: DataFile, error: unknown): void {
    known.set(keyOf(file), describeError(error));
    logger.warn({ file: file.path, error: describeError(error) }, 'cannot add columns to sealed file');
  }
  return {
    giveUp,
    /** Lists the files that lack columns (true), or were not checked (undefined), newest dates first. */
    list: (what: true | undefined): DataFile[] =>
      table
        .snapshot()
        .files.filter((file) => !file.young && known.get(keyOf(file)) === what)
        .toReversed(),
    failures: (): string[] =>
      table.snapshot().files.flatMap((file) => {
        const failure = known.get(keyOf(file));
        return typeof failure === 'string' ? [failure] : [];
      }),
    async inspect(duckdb: Duckdb, file: DataFile): Promise<void> {
      try {
        const described = await localFiles.use([file], ([local = '']) => duckdb.rows(describeFileSql(local)));
        known.set(keyOf(file), !hasColumns(described, table.snapshot().schemaString));
      } catch (error) {
        giveUp(file, error);
      }
    },
  };
}

/** Rewrites files with every column, in one commit; undefined if another process rewrites files of the table. */
async function addColumns(
  dependencies: TableDependencies,
  duckdb: Duckdb,
  batch: readonly DataFile[],
): Promise<number | undefined> {
  const { dataset, table, clock, crashPoint, paths } = dependencies;
  const rowGroup = rowGroupBounds(duckdb.memoryMb, dataset.columns.length);
  const work = { table, stagingDir: paths.staging, duckdb, clock, crashPoint, rowGroup };
  return await withMaintenanceLock(dependencies, async () => {
    const live = new Set(table.snapshot().files.map(({ path }) => path));
    const files = batch.filter(({ path }) => live.has(path));
    // A rewrite gets its own hash, which would hide damage.
    await assertFilesIntact(files);
    // The engine has one thread, so it keeps the order of the rows.
    const rewrites = files.map((file) => ({ file, rowsLeftOut: 0, toQuery: (rows: string) => `FROM ${rows}` }));
    return await rewriteFiles(work, rewrites, { cause: 'schema' });
  });
}

/** The remaining work of a table. `endMs`: when readers of folders see every column, Unix ms. */
interface Left {
  readonly left: readonly DataFile[];
  readonly waiting: number;
  readonly endMs: number;
  readonly failures: readonly string[];
  readonly isCrowded: boolean;
}

function describeLeft(dataset: Dataset, { left, waiting, endMs, failures, isCrowded }: Left): Problem {
  const size = `${Math.ceil(sumBytes(left) / 1024 ** 2)} MiB`;
  const end = left.length + waiting === 0 ? '' : `, until about ${new Date(endMs).toISOString()}`;
  const cause = failures.length === 0 ? '' : `; ${failures.length} cannot be rewritten: ${failures[0]}`;
  const action = isCrowded
    ? 'Free space on the disk of the data folder: the rewrite waits for it.'
    : 'Read folders with union_by_name until then, or read the log. The service rewrites the files in the background.';
  const repair =
    " For files that cannot be rewritten, run 'tributary lake check', restore damaged ones from a backup, then restart the service.";
  return {
    code: 'sealed_columns_missing',
    subject: dataset.table,
    message: `sealed files of ${describeTable(dataset)} lack columns that were added later: ${left.length} (${size}) are still to be rewritten, ${waiting} rewritten files wait to replace theirs${end}${cause}`,
    action: failures.length === 0 ? action : `${action}${repair}`,
  };
}

function buildSettled(metaData: MetaDataAction | undefined, columns: string): Change {
  const configuration = { ...metaData?.configuration, [sealedColumnsProperty]: columns };
  return { cause: 'schema', actions: metaData === undefined ? [] : [{ metaData: { ...metaData, configuration } }] };
}

/**
 * Creates the runs that rewrite the sealed files from before a column was added, so that all sealed files of a table
 * have one schema: readers of folders take the columns of the first file for those of all.
 */
export function createSchemaTask(dependencies: TableDependencies, retentionMs: number) {
  const { dataset, table, clock, paths } = dependencies;
  const columns = String(dataset.columns.length);
  const sealed = createFileRecord(dependencies);
  const done = { bytes: 0, workMs: 0 };
  let nextMs = 0;
  let isCrowded = false;
  let rewrittenAtMs: number | undefined;

  const isSettled = (): boolean => table.state().metaData?.configuration[sealedColumnsProperty] === columns;
  const listRewrites = (): DataFile[] =>
    table.snapshot().files.filter(({ sinceMs = Infinity }) => sinceMs <= (rewrittenAtMs ?? Number.MAX_VALUE));
  /** Lists the times since when rewrites wait for readers of the current files. */
  const listWaiting = (): number[] =>
    listRewrites()
      .map(({ sinceMs = 0 }) => sinceMs)
      .filter((sinceMs) => sinceMs + retentionMs > clock.nowMs());

  /** Rewrites a batch, or its files one by one; false if another process rewrites files of the table. */
  async function rewrite(duckdb: Duckdb, signal: AbortSignal, batch: readonly DataFile[]): Promise<boolean> {
    try {
      if ((await addColumns(dependencies, duckdb, batch)) === undefined) return false;
      rewrittenAtMs = undefined;
      done.bytes += sumBytes(batch);
    } catch (error) {
      if (signal.aborted || !(isDamage(error) || isAppError(error, 'memory') || isAppError(error, 'sql'))) throw error;
      const [first] = batch;
      if (batch.length === 1 && first !== undefined) sealed.giveUp(first, error);
      else for (const file of batch) if (!(await rewrite(duckdb, signal, [file]))) return false;
    }
    return true;
  }

  /** Records in the table that every sealed file has every column, once readers of folders see them. */
  async function settle(): Promise<void> {
    rewrittenAtMs ??= clock.nowMs();
    if (listWaiting().length + sealed.failures().length > 0) return;
    if ((await listDeferredReplacements(table.dir, listRewrites())).length > 0) return;
    await withMaintenanceLock(dependencies, async () => {
      // A change that was just completed may have added files.
      if (sealed.list(undefined).length > 0) return;
      await table.commit(({ metaData }) => buildSettled(metaData, columns));
    });
  }

  /** Returns when readers of folders see every column, Unix ms; an estimate while files are left to rewrite. */
  function estimateEndMs(left: readonly DataFile[]): number {
    if (left.length === 0) return Math.max(...listWaiting()) + retentionMs;
    const rate = done.bytes === 0 ? assumedRate : done.bytes / (2 * done.workMs);
    return clock.nowMs() + sumBytes(left) / rate + retentionMs;
  }

  return {
    /** Rewrites for a while, unless every sealed file has every column. Errors: the engine's, `disk`. */
    async run(duckdb: Duckdb, signal: AbortSignal): Promise<void> {
      if (isSettled() || performance.now() < nextMs) return;
      const begunMs = performance.now();
      const goesOn = (): boolean => !signal.aborted && performance.now() < begunMs + budgetMs;
      for (const file of sealed.list(undefined)) if (goesOn()) await sealed.inspect(duckdb, file);
      const isLooking = sealed.list(undefined).length > 0;
      for (let left = sealed.list(true); left.length > 0 && goesOn(); left = sealed.list(true)) {
        const batch = takeBounded(left, ({ sizeBytes }) => sizeBytes, maxFiles, maxBytes);
        isCrowded = (await readFreeBytes(paths.staging)) < reserveBytes + sumBytes(batch);
        if (isCrowded || !(await rewrite(duckdb, signal, batch))) break;
      }
      const workMs = performance.now() - begunMs;
      done.workMs += workMs;
      nextMs = performance.now() + workMs;
      if (!isLooking && !signal.aborted && sealed.list(true).length === 0) await settle();
    },
    notices(): Problem[] {
      if (isSettled()) return [];
      const left = sealed.list(true);
      const waiting = listWaiting().length;
      const failures = sealed.failures();
      if (left.length + waiting + failures.length === 0) return [];
      return [describeLeft(dataset, { left, waiting, endMs: estimateEndMs(left), failures, isCrowded })];
    },
  };
}
