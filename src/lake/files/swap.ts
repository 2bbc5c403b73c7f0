/**
 * The swap: how a sealed file gives its place to its rewrite while everybody reads.
 *
 * An erasure, or a repair of times, commits the rewrite (rewrite.ts) under a name of its own, outside the documented
 * glob: readers of the log use it from that version on, those of older versions and of the glob the file as it was.
 * When the retention has passed, so that no older version is read any more, a hard link of the rewrite is renamed over
 * the file, which a reader of the glob sees as one instant, and one more commit names the file again instead of the
 * rewrite.
 * Crash: between the rename and the commit the same is done again; the log alone says what is to be done.
 */
import { randomUUID } from 'node:crypto';
import { link, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { ensureFolders, syncFolders } from '../../runtime/files/durable-file.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { AppError } from '../../runtime/errors.ts';
import { decodePath, type Action, type AddAction } from '../log/actions.ts';
import { tableFolderMode } from '../../runtime/files/group-access.ts';
import { openStaging } from './staged-rewrite.ts';
import type { Table } from '../log/table.ts';
import type { TableState } from '../log/table-state.ts';
import { findFileDamage } from './verify-files.ts';

/** The steps of a swap at which a crash is tested. */
export const swapSteps = ['swap-linked', 'swap-renamed', 'swap-committed'] as const;

/** Folder of the rewrites that wait, relative to the table's; the underscore hides it from readers of folders. */
export const rewrittenFolder = '_rewritten';

/** A rewrite that waits for the place of a sealed file. */
export interface Swap {
  /** URL-encoded path of the sealed file. */
  readonly path: string;
  readonly rewrite: AddAction;
  /** Since when the log does not name the sealed file, Unix milliseconds. */
  readonly sinceMs: number;
}

/** Lists the rewrites of a table that wait. */
export function listSwaps(state: Readonly<TableState>): Swap[] {
  const swaps: Swap[] = [];
  for (const rewrite of state.files.values()) {
    const replaced = rewrite.tags?.['replaces'];
    if (replaced === undefined || replaced === null) continue;
    swaps.push({
      path: replaced,
      rewrite,
      sinceMs: state.tombstones.get(replaced)?.deletionTimestamp ?? rewrite.modificationTime,
    });
  }
  return swaps;
}

/** The actions of a swap: rows change their place, never their value. */
function swapActions({ path: place, rewrite }: Swap, nowMs: number): Action[] {
  const { replaces: _, ...tags } = rewrite.tags ?? {};
  return [
    { remove: { path: rewrite.path, deletionTimestamp: nowMs, dataChange: false } },
    { add: { ...rewrite, path: place, modificationTime: nowMs, dataChange: false, tags } },
  ];
}

export interface SwapOptions {
  readonly nowMs: number;
  /** How long the file as it was stays for those who read older versions. */
  readonly retentionMs: number;
  readonly stagingDir: string;
  readonly crashPoint: CrashPoint;
}

/** Lists the rewrites whose time has come. */
export function listDueSwaps(
  state: Readonly<TableState>,
  { nowMs, retentionMs }: Pick<SwapOptions, 'nowMs' | 'retentionMs'>,
): Swap[] {
  return listSwaps(state).filter(({ sinceMs }) => nowMs - sinceMs >= retentionMs);
}

function absolutePath(table: Table, encoded: string): string {
  const file = decodePath(encoded);
  if (file === undefined)
    throw new AppError('log_damaged', `the log names a file by a path that cannot be decoded: ${encoded}`, {
      hint: "Run 'tributary lake check', and restore what it names from a backup.",
    });
  return path.join(table.dir, file);
}

/**
 * Puts the rewrites whose time has come in their places, by one commit. Under the maintenance lock. Returns how many.
 * Errors: `log_damaged` when a rewrite is damaged, after the others are in place: the file as it was is then the only
 * copy, and stays.
 */
export async function swapDue(table: Table, options: SwapOptions): Promise<number> {
  const due: Swap[] = [];
  let damage: AppError | undefined;
  for (const swap of listDueSwaps(table.state(), options)) {
    const { path: encoded, size, tags } = swap.rewrite;
    const found = await findFileDamage({
      absolutePath: absolutePath(table, encoded),
      sizeBytes: size,
      sha256: tags?.['sha256'],
    });
    if (found === undefined) due.push(swap);
    damage ??= found;
  }
  if (due.length > 0) await carryOutSwaps(table, due, options);
  if (damage !== undefined) throw damage;
  return due.length;
}

async function carryOutSwaps(
  table: Table,
  due: readonly Swap[],
  { nowMs, stagingDir, crashPoint }: SwapOptions,
): Promise<void> {
  const absolute = (encoded: string): string => absolutePath(table, encoded);
  const commitId = randomUUID();
  const folder = await openStaging(stagingDir, commitId);
  try {
    for (const [index, swap] of due.entries())
      await link(absolute(swap.rewrite.path), path.join(folder, `${index}.parquet`));
    await crashPoint('swap-linked');
    const folders = due.map((swap) => path.dirname(absolute(swap.path)));
    await ensureFolders(folders, tableFolderMode);
    // Where a crash came after this, both are names of one file already, and rename(2) does nothing.
    for (const [index, swap] of due.entries()) await rename(path.join(folder, `${index}.parquet`), absolute(swap.path));
    await syncFolders(folders);
    await crashPoint('swap-renamed');
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  await table.commit((state) => {
    const gone = due.find(({ rewrite }) => !state.files.has(rewrite.path));
    if (gone !== undefined)
      throw new AppError(
        'log_damaged',
        `${gone.path} was to be replaced by its rewrite, and the log does not name that any more`,
        { hint: "Run 'tributary lake check', and restore what it names from a backup." },
      );
    return { cause: 'swap', actions: due.flatMap((swap) => swapActions(swap, nowMs)), metrics: { files: due.length } };
  }, commitId);
  await crashPoint('swap-committed');
}
