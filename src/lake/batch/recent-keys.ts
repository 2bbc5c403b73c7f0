import { isSystemError, type AppError } from '../../runtime/errors.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList } from '../sql/literals.ts';
import { findLakeState } from '../log/lake-state.ts';
import { readCommit } from '../log/log-files.ts';
import { pruneFiles } from '../files/prune.ts';
import type { DataFile, Snapshot } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import { findFileDamage } from '../files/verify-files.ts';
import { createDedupeTables, dedupeWindowMs, readKeyedHours, readKeysSql } from './deduplicate.ts';

const hourMs = 3_600_000;
/**
 * Keys this much older than the window are kept: so far the clocks of ingest's processes may differ without a look into
 * the lake.
 */
const slackMs = hourMs;

/** Times of receipt, Unix milliseconds, both ends included. */
interface Range {
  readonly fromMs: number;
  readonly toMs: number;
}

/** The parts of a range that others do not cover. `covered` is in order and without overlaps. */
export function findUncovered({ fromMs, toMs }: Range, covered: readonly Range[]): Range[] {
  const gaps: Range[] = [];
  let next = fromMs;
  for (const range of covered) {
    if (range.toMs < next) continue;
    if (range.fromMs > toMs) break;
    if (range.fromMs > next) gaps.push({ fromMs: next, toMs: range.fromMs - 1 });
    next = range.toMs + 1;
  }
  if (next <= toMs) gaps.push({ fromMs: next, toMs });
  return gaps;
}

/** Joins ranges that touch. */
export function joinRanges(ranges: readonly Range[]): Range[] {
  const joined: Range[] = [];
  for (const range of ranges.toSorted((a, b) => a.fromMs - b.fromMs)) {
    const last = joined.at(-1);
    if (last !== undefined && range.fromMs <= last.toMs + 1)
      joined[joined.length - 1] = { fromMs: last.fromMs, toMs: Math.max(last.toMs, range.toMs) };
    else joined.push(range);
  }
  return joined;
}

/**
 * The compactor's memory of the events stored under Idempotency-Keys, in the table `recent_keys` of its engine: some 50
 * bytes an event, gone with the engine, read from the lake again where it is asked for. What it covers goes by the time
 * of receipt; it is never short of what a batch needs, whatever the clock or a backlog has made of those times.
 */
export interface RecentKeys {
  /**
   * The lake's `keysCommit` up to which the memory is complete; a commit that finds another one there has to judge
   * again.
   */
  seen(): string | undefined;
  /** Loads what a batch received now would need, ahead of it: reading files takes time. Errors: as `cover`. */
  warmUp(nowMs: number, signal: AbortSignal): Promise<void>;
  /**
   * Makes the memory complete for the rows of `batch`: what other processes have committed, and what was received
   * within the window around each of its rows. Errors: `file_damaged`, `retryable`, when a file was replaced meanwhile.
   */
  cover(): Promise<void>;
  /**
   * Takes in what `batch_keys` has of the batch, now that it is committed; forgets what is too old. `added`: the
   * commit, where it added keys.
   */
  remember(added: { readonly version: number; readonly keysCommit: string } | undefined): Promise<void>;
}

export interface RecentKeysDependencies {
  readonly duckdb: Duckdb;
  readonly table: Table;
  /** Told of files that could not be trusted: their keys are not known, so a repeat of one would be stored again. */
  readonly onDamage: (damages: readonly AppError[]) => void;
}

/**
 * Leaves out the files that cannot be trusted. Errors: `file_damaged`, `retryable`, when one was replaced: its keys are
 * in another file.
 */
async function findWhole(
  table: Table,
  files: readonly DataFile[],
  onDamage: RecentKeysDependencies['onDamage'],
  signal?: AbortSignal,
): Promise<DataFile[]> {
  const whole: DataFile[] = [];
  const damages: AppError[] = [];
  for (const file of files) {
    signal?.throwIfAborted();
    const damage = await findFileDamage(file);
    if (damage === undefined) {
      whole.push(file);
      continue;
    }
    if (damage.retryable) await table.refresh();
    if (damage.retryable && !table.snapshot().files.some(({ path }) => path === file.path)) throw damage;
    damages.push(damage);
  }
  if (damages.length > 0) onDamage(damages);
  return whole;
}

/** Loads keys of the files that can be trusted. */
async function loadKeys(
  { duckdb, table, onDamage }: RecentKeysDependencies,
  files: readonly DataFile[],
  where: string,
  signal?: AbortSignal,
): Promise<void> {
  const whole = await findWhole(table, files, onDamage, signal);
  if (whole.length === 0) return;
  try {
    await duckdb.run(
      `INSERT INTO recent_keys ${readKeysSql(`read_parquet(${sqlList(whole.map((file) => file.absolutePath))}, hive_partitioning = false)`, where)}`,
    );
  } catch (error) {
    // A file that was whole a moment ago may have been replaced since.
    await findWhole(table, whole, onDamage, signal);
    throw error;
  }
}

/** SQL of a time. The engine would multiply small numbers as 32-bit ones, and JavaScript large ones as doubles. */
const timeSql = (ms: number): string => `make_timestamptz(${BigInt(ms) * 1000n})`;

/** Opens the memory, empty. */
export async function openRecentKeys(dependencies: RecentKeysDependencies): Promise<RecentKeys> {
  const { duckdb, table } = dependencies;
  await createDedupeTables(duckdb);
  let covered: Range[] = [];
  let seenVersion = -1;
  let seenCommit: string | undefined;

  async function load(range: Range, signal?: AbortSignal): Promise<void> {
    const snapshot = table.snapshot();
    const gaps = findUncovered(range, covered);
    if (covered.length === 0) [seenVersion, seenCommit] = [snapshot.version, snapshot.lake?.keysCommit];
    for (const { fromMs, toMs } of gaps) {
      const bounds = Number.isFinite(toMs) ? { fromMs, toMs } : { fromMs };
      const upTo = Number.isFinite(toMs) ? ` AND received_at <= ${timeSql(toMs)}` : '';
      await loadKeys(
        dependencies,
        pruneFiles(snapshot.files, { receivedAt: bounds }),
        `received_at >= ${timeSql(fromMs)}${upTo}`,
        signal,
      );
      covered = joinRanges([...covered, { fromMs, toMs }]);
    }
  }

  async function forgetAll(): Promise<void> {
    await duckdb.run('DELETE FROM recent_keys');
    covered = [];
  }

  /**
   * The files that commits after the one seen last have added keyed events in; undefined when some are not there any
   * more.
   */
  async function findNewFiles(snapshot: Snapshot): Promise<DataFile[] | undefined> {
    const files: DataFile[] = [];
    for (let version = seenVersion + 1; version <= snapshot.version; version += 1) {
      const commit = await readCommit(table.dir, version).catch((error: unknown) => {
        if (isSystemError(error, 'ENOENT')) return undefined;
        throw error;
      });
      if (commit === undefined) return undefined;
      const state = findLakeState(commit.actions.find((action) => action.commitInfo !== undefined)?.commitInfo);
      if (state === undefined || state.keysCommit !== state.commitId) continue;
      for (const { add } of commit.actions) {
        if (add === undefined) continue;
        const file = snapshot.files.find(({ path }) => encodeURI(path) === add.path);
        // Sealed or erased since: what it held is in other files.
        if (file === undefined) return undefined;
        files.push(file);
      }
    }
    return files;
  }

  /** Takes in what others have committed: a replay, or a flush of our own whose end we did not see. */
  async function catchUp(): Promise<void> {
    const snapshot = table.snapshot();
    if (covered.length === 0 || snapshot.lake?.keysCommit === seenCommit) return;
    const files = await findNewFiles(snapshot);
    if (files === undefined) return forgetAll();
    await loadKeys(dependencies, files, 'true');
    [seenVersion, seenCommit] = [snapshot.version, snapshot.lake?.keysCommit];
  }

  async function forgetOld(): Promise<void> {
    const [first] = await readKeyedHours(duckdb, hourMs);
    if (first === undefined) return;
    const fromMs = first - dedupeWindowMs - slackMs;
    if (fromMs <= (covered[0]?.fromMs ?? fromMs)) return;
    await duckdb.run(`DELETE FROM recent_keys WHERE ms < ${fromMs}`);
    covered = covered.flatMap((range) =>
      range.toMs < fromMs ? [] : [{ fromMs: Math.max(range.fromMs, fromMs), toMs: range.toMs }],
    );
  }

  return {
    seen: () => seenCommit,
    warmUp: (nowMs, signal) =>
      load({ fromMs: nowMs - dedupeWindowMs - slackMs, toMs: Number.POSITIVE_INFINITY }, signal),
    async cover() {
      const hours = await readKeyedHours(duckdb, hourMs);
      if (hours.length === 0) return;
      await table.refresh();
      await catchUp();
      for (const hour of joinRanges(
        hours.map((fromMs) => ({ fromMs: fromMs - dedupeWindowMs, toMs: fromMs + hourMs + dedupeWindowMs })),
      ))
        await load(hour);
    },
    async remember(added) {
      await duckdb.run('INSERT INTO recent_keys SELECT * FROM batch_keys');
      if (added !== undefined) [seenVersion, seenCommit] = [added.version, added.keysCommit];
      await forgetOld();
    },
  };
}
