import { randomUUID } from 'node:crypto';
import { AppError } from '../runtime/errors.ts';
import type { LakeState } from '../lake/log/lake-state.ts';
import { ensureFolder } from '../runtime/files/durable-file.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import type { Closers } from '../runtime/lifecycle.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { recoverFailed } from '../lake/files/failed-events.ts';
import { describeUnnamedErasedIds } from '../lake/find/erased-ids.ts';
import { lakePaths, openLake } from '../lake/lake.ts';
import type { Table, TableOptions } from '../lake/log/table.ts';
import type { CompactOptions } from './compact-options.ts';

/** The lake that a compactor has taken. */
export interface OwnLake {
  readonly dir: string;
  readonly table: Table;
  /** The claim on it. */
  readonly writer: string;
  /** Throws when the lake's folder is not the one that this compactor has locked any more. */
  readonly assertFolder: () => void;
}

/** Throws `fenced` unless this compactor still owns the lake; `cause` is the error that made the caller look. */
export function assertOwner(lake: LakeState, writer: string, cause?: unknown): void {
  if (lake.writer === writer) return;
  throw new AppError('fenced', 'another compactor has taken over the lake', {
    cause,
    hint: 'Let only one compactor run on a data folder.',
  });
}

const defaultLockWaitMs = 15_000;

/** Claims the lake: from this commit on, a compactor that ran before can neither flush nor move the position. */
async function claim(table: Table, writer: string, erasedIdsFile: string): Promise<void> {
  const unnamed = table.lake().erasedIds === undefined ? await describeUnnamedErasedIds(erasedIdsFile) : undefined;
  await table.commit((_, { erasedIds = unnamed }) => ({ cause: 'start', actions: [], writer, erasedIds }));
}

/**
 * Locks the lake, empties the spool folder, opens the table and claims it, and settles what a crash has left of
 * flushes.
 */
export async function takeLake(
  closers: Closers,
  tableOptions: TableOptions,
  options: CompactOptions,
): Promise<OwnLake> {
  const { lakeDir: dir, spoolDir, retentionMs } = options;
  const paths = lakePaths(dir);
  const lock =
    options.withoutLock === true
      ? undefined
      : await waitForLock(paths.compactorLock, 'the compactor', options.lockWaitMs ?? defaultLockWaitMs);
  closers.add('compactor lock', () => lock?.release());
  const removeSpool = (): Promise<void> => removeTree(spoolDir);
  await removeSpool();
  await ensureFolder(spoolDir);
  // What was pulled last are events like any other: none may outlive its erasure there, while the service is stopped.
  closers.add('spool', removeSpool);
  const table = await openLake(dir, { ...tableOptions, retentionMs });
  const writer = randomUUID();
  await claim(table, writer, paths.erasedIds);
  await recoverFailed(paths.failed, table.dir);
  return { dir, table, writer, assertFolder: () => lock?.assertHeld() };
}
