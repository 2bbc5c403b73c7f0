import { localFiles } from '../../runtime/store/open-store.ts';
import { isClockBehind } from '../log/lake-state.ts';
import { newStepsFile, renderSteps } from '../log/version-points.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList } from '../sql/literals.ts';
import { rewriteFiles, withReplacedSince, type Rewrite, type RewriteDependencies } from '../files/rewrite.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import { assertFilesIntact } from '../files/data-file.ts';
/**
 * Changes `available_at` values in the future, stored while a clock was ahead, to past times.
 *
 * The new values are between the newest past one and now, as late as possible and in the old order. Incremental readers
 * therefore still find every row once. One commit rewrites the files, sealed ones too. Readers of the glob see old
 * times until the new files are shown (lake/files/deferred-replacement.ts). `event_time`, `received_at` and `date` stay.
 * Crash: all or nothing, by one change.
 */

/** The changed times, for readers by `available_at`. Times are ISO 8601. */
export interface Restamped {
  readonly rows: number;
  readonly files: number;
  /** The newest time in the past, up to which nothing has changed. Absent: no row has one. */
  readonly unchangedUpTo?: string;
  /** First and last old time. */
  readonly from: readonly [string, string];
  readonly to: readonly [string, string];
  readonly cursors: string;
}

/** Returns the newest `available_at` assigned, or in a file. */
function newestTime(table: Table): number {
  return table
    .snapshot()
    .files.reduce(
      (newest, file) => Math.max(newest, Date.parse(String(file.maxValues['available_at'])) || 0),
      table.lake().availableAtMs,
    );
}

/** An old value, Unix us, and the new one, Unix ms. */
interface Step {
  readonly oldUs: bigint;
  readonly newMs: number;
}

function hasFutureRows(file: DataFile, nowMs: number): boolean {
  const max = file.maxValues['available_at'];
  // Missing statistics never exclude.
  return typeof max !== 'string' || Date.parse(max) > nowMs;
}

const readSql = (paths: readonly string[]): string => `read_parquet(${sqlList(paths)}, hive_partitioning = false)`;

/** Maps the old values after `nowMs`, ascending, to distinct milliseconds between all past times and now. */
async function planSteps(
  duckdb: Duckdb,
  table: Table,
  files: readonly DataFile[],
  nowMs: number,
  newestMs: number,
): Promise<{ steps: Step[]; passedMs: number }> {
  const { rows, passed } = await localFiles.use(files, async (paths) => {
    const source = readSql(paths);
    const later = `SELECT DISTINCT epoch_us(available_at) AS us FROM ${source} WHERE epoch_ms(available_at) > ${nowMs} ORDER BY us`;
    const newest = `SELECT epoch_ms(max(available_at)) AS ms FROM ${source} WHERE epoch_ms(available_at) <= ${nowMs}`;
    return { rows: await duckdb.rows(later), passed: (await duckdb.rows(newest))[0] };
  });
  const others = table.snapshot().files.filter((file) => !hasFutureRows(file, nowMs));
  const passedMs = others.reduce(
    (newest, file) => Math.max(newest, Date.parse(String(file.maxValues['available_at'])) || 0),
    Math.max(newestMs, Number(passed?.['ms'] ?? 0)),
  );
  const lastMs = Math.max(nowMs, passedMs + rows.length);
  return {
    steps: rows.map((row, index) => ({ oldUs: BigInt(String(row['us'])), newMs: lastMs - rows.length + 1 + index })),
    passedMs,
  };
}

async function loadSteps(duckdb: Duckdb, steps: readonly Step[]): Promise<void> {
  await duckdb.run('CREATE OR REPLACE TEMP TABLE restamp (old_us BIGINT, new_ms BIGINT)');
  for (let from = 0; from < steps.length; from += 1000) {
    await duckdb.run(
      `INSERT INTO restamp VALUES ${steps
        .slice(from, from + 1000)
        .map(({ oldUs, newMs }) => `(${oldUs}, ${newMs})`)
        .join(', ')}`,
    );
  }
}

const iso = (ms: number): string => new Date(ms).toISOString();

function describe(steps: readonly Step[], passedMs: number, rows: number, files: number): Restamped {
  const [first, last] = [steps[0], steps.at(-1)];
  const oldTime = (step: Step | undefined): string => iso(Number((step?.oldUs ?? 0n) / 1000n));
  const from = [oldTime(first), oldTime(last)] as const;
  const to = [iso(first?.newMs ?? 0), iso(last?.newMs ?? 0)] as const;
  return {
    rows,
    files,
    ...(passedMs > 0 ? { unchangedUpTo: iso(passedMs) } : {}),
    from,
    to,
    cursors: `A reader by available_at that has read all rows changes a cursor of ${from[1]} or later to ${to[1]}. A reader that has not changes a cursor of ${from[0]} or later to ${passedMs > 0 ? iso(passedMs) : 'its start'}, and skips the event_ids that it has.`,
  };
}

/** Returns the query of a file with its new times. A join does not keep order, and sealed files are sorted. */
function toQuery(source: string): string {
  return `SELECT f.* REPLACE (coalesce(make_timestamptz(restamp.new_ms * 1000), f.available_at) AS available_at)
    FROM ${source} AS f LEFT JOIN restamp ON restamp.old_us = epoch_us(f.available_at) ORDER BY f.file_row_number`;
}

/** Runs one pass; undefined if no row is in the future. */
async function restampOnce(
  dependencies: RewriteDependencies,
  newestMs: number,
): Promise<{ restamped: Restamped; lastMs: number } | undefined> {
  const { table, duckdb, clock } = dependencies;
  await table.refresh();
  const nowMs = Math.max(clock.nowMs(), newestMs);
  const { availableAtMs: availableAtBackFromMs } = table.lake();
  const files = table.snapshot().files.filter((file) => hasFutureRows(file, nowMs));
  const { steps, passedMs } =
    files.length === 0 ? { steps: [], passedMs: newestMs } : await planSteps(duckdb, table, files, nowMs, newestMs);
  const lastMs = steps.at(-1)?.newMs;
  if (lastMs === undefined) return undefined;
  // A rewritten file gets a new hash, which would hide damage.
  await assertFilesIntact(files);
  await loadSteps(duckdb, steps);
  const rewrites: Rewrite[] = [];
  let rows = 0;
  for (const file of files) {
    const [counted] = await localFiles.use([file], (paths) =>
      duckdb.rows(`SELECT count(*) AS n FROM ${readSql(paths)} WHERE epoch_ms(available_at) > ${nowMs}`),
    );
    // A file without statistics may have none, such as one with all rows erased.
    if (Number(counted?.['n']) > 0) rewrites.push({ file, rowsLeftOut: 0, toQuery });
    rows += Number(counted?.['n']);
  }
  const restampSteps = newStepsFile();
  await rewriteFiles(
    dependencies,
    rewrites,
    {
      cause: 'restamp',
      availableAtBackToMs: lastMs,
      availableAtBackFromMs,
      restampSteps,
      metrics: { rows, files: rewrites.length },
    },
    { path: restampSteps, text: renderSteps(steps.map(({ oldUs, newMs }) => [Number(oldUs / 1000n), newMs])) },
  );
  return { restamped: describe(steps, passedMs, rows, rewrites.length), lastMs };
}

/** Sets removal times in the future beyond the clock tolerance to now. */
async function restampTombstones(table: Table, nowMs: number): Promise<boolean> {
  const late = [...table.state().tombstones.values()].filter((remove) => (remove.deletionTimestamp ?? 0) > nowMs);
  const waiting = [...table.state().files.values()].filter(({ tags }) => Number(tags?.['since']) > nowMs);
  const times = [
    ...late.map((remove) => remove.deletionTimestamp),
    ...waiting.map(({ tags }) => Number(tags?.['since'])),
  ];
  if (!times.some((ms) => isClockBehind(ms, nowMs))) return false;
  await table.commit(() => ({
    cause: 'restamp',
    actions: [
      ...late.map((remove) => ({ remove: { ...remove, deletionTimestamp: nowMs, dataChange: false } })),
      ...waiting.map((add) => ({ add: withReplacedSince({ ...add, dataChange: false }, nowMs) })),
    ],
  }));
  return true;
}

/** Resets the newest time if no row has it, directly after a pass without findings. */
async function setBack(table: Table, nowMs: number, newestMs: number): Promise<void> {
  const { availableAtMs } = table.lake();
  await table.commit(() => ({
    cause: 'restamp',
    actions: [],
    availableAtBackToMs: Math.max(newestMs, Math.min(nowMs, availableAtMs)),
    availableAtBackFromMs: availableAtMs,
  }));
}

/** Moves all rows in the future into the past, also rows that arrive meanwhile. */
async function restampRows(dependencies: RewriteDependencies): Promise<Restamped[]> {
  const { table, clock } = dependencies;
  const passes: Restamped[] = [];
  let newestMs = 0;
  for (;;) {
    const pass = await restampOnce(dependencies, newestMs);
    if (pass !== undefined) {
      passes.push(pass.restamped);
      newestMs = pass.lastMs;
      continue;
    }
    const nowMs = clock.nowMs();
    if (table.lake().availableAtMs <= Math.max(nowMs, newestMs)) return passes;
    await setBack(table, nowMs, newestMs);
  }
}

export interface LakeRestamp {
  readonly passes: readonly Restamped[];
  readonly hasMendedRemovals: boolean;
}

/**
 * Repairs future times beyond the clock tolerance, under the maintenance lock, also what a compactor commits meanwhile.
 * Needs the space of the rewritten files for the retention. Error: `file_damaged`.
 */
export async function restampLake(dependencies: RewriteDependencies): Promise<LakeRestamp> {
  const { table, clock } = dependencies;
  await table.refresh();
  const passes = isClockBehind(newestTime(table), clock.nowMs()) ? await restampRows(dependencies) : [];
  return { passes, hasMendedRemovals: await restampTombstones(table, clock.nowMs()) };
}
