/**
 * Rewrites live files with other values or fewer rows by one atomic change (change.ts), concurrently with readers.
 * Readers of the glob see a new sealed file after the retention (deferred-replacement.ts).
 */
import path from 'node:path';
import { localFiles } from '../../runtime/store/open-store.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { AppError } from '../../runtime/errors.ts';
import { writeNewFile } from '../../runtime/files/durable-file.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
import type { Action, AddAction } from '../log/actions.ts';
import type { LakeState } from '../log/lake-state.ts';
import { withEmptyFile, type DataFile } from '../log/snapshot.ts';
import type { Change, Table } from '../log/table.ts';
import type { TableState } from '../log/table-state.ts';
import { isMergedPath, sealedPath, youngFolder } from '../log/young-folder.ts';
import { sqlList } from '../sql/literals.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { openChange, type NewFile, type OpenChange } from './change.ts';
import { toAdd, writeDataFile, type RowGroup } from './data-file.ts';
import { mergedGroups } from './row-group-hashes.ts';
import { passOnSince } from './deferred-replacement.ts';

export interface RewriteDependencies {
  readonly table: Table;
  readonly stagingDir: string;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly rowGroup?: RowGroup;
}

export interface Companion {
  /** A new name, relative to the table's folder. */
  readonly path: string;
  readonly text: string;
}

export interface Rewrite {
  readonly file: DataFile;
  readonly rowsLeftOut: number;
  /** Returns the query for the rows, in order, from the SQL of the file. An error aborts the rewrite. */
  readonly toQuery: (source: string) => string;
}

/** Other parts of the commit. Their actions precede those of the files. */
export type RewriteChange = Omit<Change, 'actions'> & { readonly actions?: readonly Action[] };

/** Returns the path of a rewritten file, relative to the table's folder. */
export function rewrittenPath(
  { young, publishedPath }: Pick<DataFile, 'young' | 'publishedPath'>,
  id: string,
  index: number,
): string {
  return young || publishedPath === undefined
    ? `${youngFolder}/${id}-${index}.parquet`
    : sealedPath(publishedPath, { id, index });
}

/** Adds to an add when the file shown at its path left the table. */
export function withReplacedSince(add: AddAction, sinceMs: number): AddAction {
  return { ...add, tags: { ...add.tags, since: String(sinceMs) } };
}

type ToActions = (nowMs: number) => Action[];

interface Written {
  readonly files: readonly NewFile[];
  readonly toActions: ToActions;
}

/** Reports whether a rewrite has no file. A sealed one is kept without rows, for readers that have listed the glob. */
function isDropped({ file, rowsLeftOut }: Rewrite): boolean {
  return file.young && rowsLeftOut === file.numRecords;
}

async function writeRewrite(
  { table, duckdb, rowGroup }: RewriteDependencies,
  rewrite: Rewrite,
  { id, folder }: OpenChange,
  index: number,
): Promise<Written> {
  const { file, rowsLeftOut, toQuery } = rewrite;
  const toRemoval = (nowMs: number): Action => ({
    remove: { path: encodeURI(file.path), deletionTimestamp: nowMs, dataChange: true },
  });
  if (isDropped(rewrite)) return { files: [], toActions: (nowMs) => [toRemoval(nowMs)] };
  const staged = path.join(folder, `${index}.parquet`);
  const written = await localFiles.use(withEmptyFile(table.snapshot(), [file]), (paths) => {
    const source = `read_parquet(${sqlList(paths)}, union_by_name = true, hive_partitioning = false)`;
    const ofMerge = isMergedPath(file.publishedPath ?? '') ? mergedGroups : {};
    return writeDataFile(duckdb, toQuery(source), staged, file.young ? 'young' : 'sealed', { ...rowGroup, ...ofMerge });
  });
  if (file.numRecords !== undefined && written.numRecords + rowsLeftOut !== file.numRecords) {
    throw new AppError(
      'file_damaged',
      `the rewrite of ${file.path} has ${written.numRecords} rows, expected ${file.numRecords} minus ${rowsLeftOut}`,
      { hint: "Run 'tributary lake check', and restore the files that it lists from a backup." },
    );
  }
  const to = rewrittenPath(file, id, index);
  const shownUntil = file.young ? undefined : await passOnSince(table.dir, file);
  return {
    files: [{ file: staged, path: to }],
    toActions: (nowMs) => {
      const add = toAdd(to, written, nowMs, true, file.keyless);
      return [
        toRemoval(nowMs),
        { add: file.young ? add : withReplacedSince(add, Math.min(shownUntil ?? nowMs, nowMs)) },
      ];
    },
  };
}

function withoutDataChange({ add, remove, ...rest }: Action): Action {
  return {
    ...rest,
    ...(add === undefined ? {} : { add: { ...add, dataChange: false } }),
    ...(remove === undefined ? {} : { remove: { ...remove, dataChange: false } }),
  };
}

/**
 * Rewrites verified files by one commit under the maintenance lock. `toChange` returns its other parts. `companion`:
 * another new file of the table, or its text. Returns the number of rewrites. Errors: `file_damaged` for unexpected rows, those of the change and `toChange`.
 */
export async function rewriteFiles(
  dependencies: RewriteDependencies,
  rewrites: readonly Rewrite[],
  toChange: RewriteChange | ((state: Readonly<TableState>, lake: LakeState) => RewriteChange),
  companion?: Companion | NewFile,
): Promise<number> {
  const { table, stagingDir, clock, crashPoint } = dependencies;
  const open = await openChange(table, stagingDir, 'a rewrite', crashPoint);
  try {
    const written: Written[] = [];
    for (const [index, rewrite] of rewrites.entries())
      written.push(await writeRewrite(dependencies, rewrite, open, index));
    const files = written.flatMap((one) => one.files);
    const companionFiles: NewFile[] = [];
    if (companion !== undefined && 'file' in companion) companionFiles.push(companion);
    else if (companion !== undefined) {
      const file = path.join(open.folder, 'companion');
      await writeNewFile(file, companion.text, tableFileMode);
      companionFiles.push({ file, path: companion.path });
    }
    await open.commit([...files, ...companionFiles], (state, lake) => {
      const change = typeof toChange === 'function' ? toChange(state, lake) : toChange;
      const nowMs = clock.nowMs();
      const actions = [...(change.actions ?? []), ...written.flatMap(({ toActions }) => toActions(nowMs))];
      return {
        ...change,
        actions: change.cause === 'schema' ? actions.map(withoutDataChange) : actions,
        metrics: { ...change.metrics, filesIn: rewrites.length, filesOut: files.length },
      };
    });
    return files.length;
  } finally {
    await open.close();
  }
}
