import { describeError, isAppError, isDamage } from '../../runtime/errors.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { readFreeBytes } from '../../runtime/files/disk-watch.ts';
import { rewriteFiles } from '../../lake/files/rewrite.ts';
import { rowGroupBounds } from '../../lake/files/row-memory.ts';
import { listUnshown } from '../../lake/files/places.ts';
import { assertFilesWhole } from '../../lake/files/data-file.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import type { Table } from '../../lake/log/table.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { describeFileSql, hasColumns, sealedColumnsProperty } from '../../lake/table-schema.ts';
import { assertOwner } from '../lake-owner.ts';
import { describeTable } from './seal-turns.ts';
import { underMaintenanceLock, type TableDependencies } from './maintenance-task.ts';

/**
 * Rewrites the sealed files from before a column was added, so that all sealed files of a table have one schema: readers
 * of folders take the columns of the first file for those of all.
 */
export interface SchemaTurns {
  /** Rewrites for a while, unless every sealed file has every column. Errors: the engine's, `disk`. */
  turn(duckdb: Duckdb, signal: AbortSignal): Promise<void>;
  /** Reports how far the rewrite of the table is. */
  notices(): Problem[];
}

/** Work of one turn, milliseconds. As long a rest of the table follows: one table takes half of a core. */
const budgetMs = 5000;
/** Most that one commit rewrites, files and bytes: commands wait for the maintenance lock meanwhile. */
const mostFiles = 64;
const mostBytes = 128 * 1024 ** 2;
/** The rate before anything was rewritten, bytes per millisecond, rests included. */
const assumedRate = 5000;
/** Bytes of the disk that the rewrite leaves free: imports are refused long after it pauses. */
const reserveBytes = 1024 ** 3;

const sumBytes = (files: readonly DataFile[]): number => files.reduce((sum, file) => sum + file.sizeBytes, 0);

/** Files of another engine have no hash. */
const keyOf = ({ sha256, path }: DataFile): string => sha256 ?? path;

/** The files of the next commit. */
function nextBatch(files: readonly DataFile[]): DataFile[] {
  let bytes = 0;
  const end = files.findIndex((file, index) => index > 0 && (bytes += file.sizeBytes) > mostBytes);
  return files.slice(0, Math.min(mostFiles, end === -1 ? files.length : end));
}

/** What is known of the sealed files of a table. */
function createFileRecord({ table, logger }: TableDependencies) {
  /** Whether a file lacks columns, by its hash, or what keeps it from being rewritten. */
  const known = new Map<string, boolean | string>();
  /** A file that cannot be rewritten stays as it is until the next start. */
  function giveUp(file: DataFile, error: unknown): void {
    known.set(keyOf(file), describeError(error));
    logger.warn({ file: file.path, error: describeError(error) }, 'cannot add columns to sealed file');
  }
  return {
    giveUp,
    /** Lists the files of which one thing is known, the newest dates first. */
    list: (what: boolean | undefined): DataFile[] =>
      table
        .snapshot()
        .files.filter((file) => !file.young && known.get(keyOf(file)) === what)
        .toReversed(),
    /** Lists what keeps files from being rewritten. */
    failures: (): string[] =>
      table.snapshot().files.flatMap((file) => {
        const failure = known.get(keyOf(file));
        return typeof failure === 'string' ? [failure] : [];
      }),
    async look(duckdb: Duckdb, file: DataFile): Promise<void> {
      try {
        const described = await duckdb.rows(describeFileSql(file.absolutePath));
        known.set(keyOf(file), !hasColumns(described, table.snapshot().schemaString));
      } catch (error) {
        giveUp(file, error);
      }
    },
  };
}

/** Rewrites files with every column, by one commit. Undefined where another rewrites files of the table. */
async function addColumns(
  dependencies: TableDependencies,
  duckdb: Duckdb,
  batch: readonly DataFile[],
): Promise<number | undefined> {
  const { dataset, table, leader, writer, clock, crashPoint, paths } = dependencies;
  const rowGroup = rowGroupBounds(duckdb.memoryMb, dataset.columns.length);
  const work = { table, stagingDir: paths.staging, duckdb, clock, crashPoint, rowGroup };
  return await underMaintenanceLock(dependencies, async () => {
    assertOwner(leader.lake(), writer);
    const live = new Set(table.snapshot().files.map(({ path }) => path));
    const files = batch.filter(({ path }) => live.has(path));
    // What is rewritten gets a hash of its own: damage would be believed from then on.
    await assertFilesWhole(files);
    // One thread reads one file in its order.
    const rewrites = files.map((file) => ({ file, rowsLeftOut: 0, toQuery: (rows: string) => `FROM ${rows}` }));
    return await rewriteFiles(work, rewrites, { cause: 'schema' });
  });
}

/** What is left to do in a table, and until when, Unix milliseconds. */
interface Left {
  readonly toRewrite: readonly DataFile[];
  readonly waiting: number;
  readonly endMs: number;
  readonly failures: readonly string[];
  readonly isCrowded: boolean;
}

function describeLeft(dataset: Dataset, { toRewrite, waiting, endMs, failures, isCrowded }: Left): Problem {
  const size = `${Math.ceil(sumBytes(toRewrite) / 1024 ** 2)} MiB`;
  const end = toRewrite.length + waiting === 0 ? '' : `, until about ${new Date(endMs).toISOString()}`;
  const cause = failures.length === 0 ? '' : `; ${failures.length} cannot be rewritten: ${failures[0]}`;
  return {
    code: 'sealed_columns_missing',
    subject: dataset.table,
    what: `sealed files of ${describeTable(dataset)} lack columns that were added later: ${toRewrite.length} (${size}) are still to be rewritten, ${waiting} rewritten files wait to replace theirs${end}${cause}`,
    todo: isCrowded
      ? 'Free space on the disk of the data folder: the rewrite waits for it.'
      : 'Read folders with union_by_name until then, or read the log. The service rewrites the files in the background.',
  };
}

/** When the files that rewrites up to a time replace have left the table. */
function listSince(table: Table, upToMs = Infinity): number[] {
  return table.snapshot().files.flatMap(({ sinceMs }) => (sinceMs !== undefined && sinceMs <= upToMs ? [sinceMs] : []));
}

/** Reports whether every rewrite up to a time is at its place. */
async function areShown(table: Table, upToMs: number): Promise<boolean> {
  const files = table.snapshot().files.filter(({ sinceMs }) => sinceMs !== undefined && sinceMs <= upToMs);
  return (await listUnshown(table.dir, files)).length === 0;
}

/** Creates the turns of a table. */
export function createSchemaTurns(dependencies: TableDependencies, retentionMs: number): SchemaTurns {
  const { dataset, table, clock } = dependencies;
  const columns = String(dataset.columns.length);
  const sealed = createFileRecord(dependencies);
  const done = { bytes: 0, workMs: 0 };
  let nextMs = 0;
  let isCrowded = false;
  /** Since when no file is left to rewrite; what was rewritten before takes its place in time. */
  let rewrittenAtMs: number | undefined;

  const isSettled = (): boolean => table.state().metaData?.configuration[sealedColumnsProperty] === columns;
  /** Since when rewrites wait: as long as readers of the files that are shown have time. */
  const listWaiting = (): number[] =>
    listSince(table, rewrittenAtMs).filter((sinceMs) => sinceMs + retentionMs > clock.nowMs());

  /** Returns whether it may go on: nobody else rewrites files of the table. */
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

  /** Notes in the table that every sealed file has every column, once readers of folders see that. */
  async function settle(): Promise<void> {
    rewrittenAtMs ??= clock.nowMs();
    if (listWaiting().length + sealed.failures().length > 0 || !(await areShown(table, rewrittenAtMs))) return;
    await underMaintenanceLock(dependencies, async () => {
      // What was interrupted, and has just been finished, may have brought files.
      if (sealed.list(undefined).length > 0) return;
      await table.commit(({ metaData }) => {
        const configuration = { ...metaData?.configuration, [sealedColumnsProperty]: columns };
        return {
          cause: 'schema',
          actions: metaData === undefined ? [] : [{ metaData: { ...metaData, configuration } }],
        };
      });
    });
  }

  /** When readers of folders see every column, Unix milliseconds: an estimate while files are left to rewrite. */
  function estimateEndMs(left: readonly DataFile[]): number {
    if (left.length === 0) return Math.max(...listWaiting()) + retentionMs;
    const rate = done.bytes === 0 ? assumedRate : done.bytes / (2 * done.workMs);
    return clock.nowMs() + sumBytes(left) / rate + retentionMs;
  }

  return {
    async turn(duckdb, signal) {
      if (isSettled() || performance.now() < nextMs) return;
      const begunMs = performance.now();
      const goesOn = (): boolean => !signal.aborted && performance.now() < begunMs + budgetMs;
      for (const file of sealed.list(undefined)) if (goesOn()) await sealed.look(duckdb, file);
      const isLooking = sealed.list(undefined).length > 0;
      for (let left = sealed.list(true); left.length > 0 && goesOn(); left = sealed.list(true)) {
        const batch = nextBatch(left);
        isCrowded = (await readFreeBytes(table.dir)) < reserveBytes + sumBytes(batch);
        if (isCrowded || !(await rewrite(duckdb, signal, batch))) break;
      }
      const workMs = performance.now() - begunMs;
      done.workMs += workMs;
      nextMs = performance.now() + workMs;
      if (!isLooking && !signal.aborted && sealed.list(true).length === 0) await settle();
    },
    notices() {
      if (isSettled()) return [];
      const toRewrite = sealed.list(true);
      const waiting = listWaiting().length;
      const failures = sealed.failures();
      if (toRewrite.length + waiting + failures.length === 0) return [];
      return [describeLeft(dataset, { toRewrite, waiting, endMs: estimateEndMs(toRewrite), failures, isCrowded })];
    },
  };
}
