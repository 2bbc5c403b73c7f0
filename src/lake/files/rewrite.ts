/**
 * The rewrite of live files: the same rows with other values, or fewer of them, by one commit, while everybody reads.
 *
 * A young file gets a new one beside it; the old one waits for the retention. A sealed file stays where readers of the
 * glob find it, as it was: its rewrite lies outside, is what the log names, and takes the place in time (swap.ts). A
 * rewrite that still waits is replaced by the next one, which waits for the same place.
 * Crash: all or nothing, by one staged rewrite (staged-rewrite.ts).
 */
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { AppError } from '../../runtime/errors.ts';
import { writeNewFile } from '../../runtime/files/durable-file.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
import type { Action, AddAction } from '../log/actions.ts';
import { toAdd, writeDataFile, type RowGroup } from './data-file.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList } from '../sql/literals.ts';
import { carryOut, openStaging, type Move } from './staged-rewrite.ts';
import type { DataFile } from '../log/snapshot.ts';
import { rewrittenFolder } from './swap.ts';
import type { Change, Table } from '../log/table.ts';
import { youngFolder } from '../log/young-folder.ts';

export interface RewriteDependencies {
  readonly table: Table;
  readonly stagingDir: string;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  /** Bounds of the row groups of sealed files; none by default. */
  readonly rowGroup?: RowGroup;
}

/** A text that a rewrite brings to the table's folder with its files. */
export interface Companion {
  /** A new name, relative to the table's folder. */
  readonly path: string;
  readonly text: string;
}

/** A live file that is to be written again. */
export interface Rewrite {
  readonly file: DataFile;
  /** How many rows of the file are left out. */
  readonly rowsLeftOut: number;
  /**
   * Makes the query for the rows out of the SQL of the file, in the order they have there. Called when it is the file's
   * turn; what it throws gives everything up.
   */
  readonly toQuery: (source: string) => string;
}

/** Where the rewrite of a file goes, relative to the table's folder, and whose place it takes in time, if any. */
function placeRewrite(file: DataFile): { readonly to: string; readonly replaces: string | undefined } {
  if (file.young) return { to: `${youngFolder}/${randomUUID()}.parquet`, replaces: undefined };
  return { to: `${rewrittenFolder}/${randomUUID()}.parquet`, replaces: file.replaces ?? file.path };
}

/** Marks an added file as one that waits for the place of a sealed file. */
export function toWaiting(add: AddAction, replaces: string): AddAction {
  return { ...add, tags: { ...add.tags, replaces: encodeURI(replaces) } };
}

/**
 * Says whether a rewrite has no file: a sealed one that loses all rows has an empty one, since a name that goes would
 * be a missing file for who has just listed the glob.
 */
function isDropped({ file, rowsLeftOut }: Rewrite): boolean {
  return file.young && rowsLeftOut === file.numRecords;
}

const companionName = 'companion';

interface Written {
  readonly moves: readonly Move[];
  readonly actions: readonly Action[];
}

async function writeRewrite(
  { table, duckdb, clock, rowGroup }: RewriteDependencies,
  rewrite: Rewrite,
  staged: string,
  dataChange: boolean,
): Promise<Written> {
  const { file, rowsLeftOut, toQuery } = rewrite;
  const nowMs = clock.nowMs();
  const removal: Action = { remove: { path: encodeURI(file.path), deletionTimestamp: nowMs, dataChange } };
  if (isDropped(rewrite)) return { moves: [], actions: [removal] };
  const { emptyFile } = table.snapshot();
  const source = `read_parquet(${sqlList([emptyFile, file.absolutePath])}, union_by_name = true, hive_partitioning = false)`;
  const written = await writeDataFile(duckdb, toQuery(source), staged, file.young ? 'young' : 'sealed', rowGroup);
  if (file.numRecords !== undefined && written.numRecords + rowsLeftOut !== file.numRecords) {
    throw new AppError(
      'file_damaged',
      `the rewrite of ${file.path} has ${written.numRecords} rows, and ${rowsLeftOut} of ${file.numRecords} are to be left out`,
      { hint: "Run 'tributary lake check', and restore what it names from a backup." },
    );
  }
  const { to, replaces } = placeRewrite(file);
  const add = toAdd(to, written, nowMs, dataChange, file.keyless);
  return {
    moves: [{ name: path.basename(staged), to: path.join(table.dir, to) }],
    actions: [removal, { add: replaces === undefined ? add : toWaiting(add, replaces) }],
  };
}

/**
 * Writes files again, by one commit, whose other parts are `change`. Under the maintenance lock; the caller has seen
 * that the files are whole. Space: that of the files, until the retention has passed. Returns how many have a rewrite.
 * Errors: `file_damaged` when a rewrite has not the rows that were expected; then, and when `toQuery` throws, nothing
 * is left behind.
 */
export async function rewriteFiles(
  dependencies: RewriteDependencies,
  rewrites: readonly Rewrite[],
  change: Omit<Change, 'actions'>,
  companion?: Companion,
): Promise<number> {
  const { table, stagingDir, crashPoint } = dependencies;
  const commitId = randomUUID();
  const folder = await openStaging(stagingDir, commitId);
  const written: Written[] = [];
  try {
    for (const [index, rewrite] of rewrites.entries())
      written.push(
        // A new column changes no row.
        await writeRewrite(dependencies, rewrite, path.join(folder, `${index}.parquet`), change.cause !== 'schema'),
      );
    if (companion !== undefined) await writeNewFile(path.join(folder, companionName), companion.text, tableFileMode);
  } catch (error) {
    // Nothing is certain yet; on a disk that is full the room is needed at once.
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
  const files = written.flatMap((one) => one.moves);
  const beside = companion === undefined ? [] : [{ name: companionName, to: path.join(table.dir, companion.path) }];
  const moves = [...files, ...beside];
  const metrics = { ...change.metrics, filesIn: rewrites.length, filesOut: files.length };
  const actions = written.flatMap((one) => one.actions);
  await carryOut(
    table,
    stagingDir,
    { commitId, baseVersion: table.state().version, moves, change: { ...change, actions, metrics }, unlink: [] },
    crashPoint,
  );
  return files.length;
}
