import { randomUUID } from 'node:crypto';
import { AppError } from '../runtime/errors.ts';
import type { LakeState } from '../lake/log/lake-state.ts';
import { ensureFolder } from '../runtime/files/durable-file.ts';
import { lockObjects, tryLockObjects, type ObjectLock } from '../runtime/store/object-lock.ts';
import { openStore } from '../runtime/store/open-store.ts';
import type { Closers } from '../runtime/lifecycle.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { recoverFailed } from '../lake/files/failed-events.ts';
import { describeUnloggedErasedIds } from '../lake/event-index/erased-ids.ts';
import { compactorLease, type LakeOptions, lakePaths, openLake } from '../lake/lake.ts';
import type { Table, TableOptions } from '../lake/log/table.ts';
import type { CompactOptions } from './compact-options.ts';

export interface OwnedLake {
  readonly dir: string;
  readonly table: Table;
  readonly writer: string;
  /** Throws if the folder of the lake is no longer the one that this compactor has locked, or its lease is lost. */
  readonly assertFolder: () => void;
  /** Aborts when the lease of the lake is lost. */
  readonly lost: AbortSignal | undefined;
}

/** Throws `fenced` unless this compactor still owns the lake; `cause` is the error that made the caller check. */
export function assertOwner(lake: LakeState, writer: string, cause?: unknown): void {
  if (lake.writer === writer) return;
  throw new AppError('fenced', 'another compactor has taken over the lake', {
    cause,
    hint: 'Let only one compactor run on a data folder.',
  });
}

const defaultLockWaitMs = 15_000;

/** Claims the lake: after this commit, an earlier compactor can neither flush nor advance the position. */
async function claim(table: Table, writer: string, erasedIdsFile: string): Promise<void> {
  const unnamed = table.lake().erasedIds === undefined ? await describeUnloggedErasedIds(erasedIdsFile) : undefined;
  await table.commit((_, { erasedIds = unnamed }) => ({ cause: 'start', actions: [], writer, erasedIds }));
}

/** Locks the lake. In a bucket, another host may hold it for as long as it runs. Errors: `locked`, `standby`. */
async function lockLake(lakeDir: string, waitMs: number): Promise<ObjectLock> {
  const { compactorLock } = lakePaths(lakeDir);
  const options = { lease: compactorLease, holder: 'the compactor' };
  if (!openStore(compactorLock).isShared) return await lockObjects(compactorLock, options, waitMs);
  const lock = await tryLockObjects(compactorLock, options);
  if (lock !== undefined) return lock;
  throw new AppError('standby', `the compactor of another host works on the lake`, {
    hint: 'This one takes over when that one stops or fails.',
  });
}

/** Locks the lake, empties the spool folder, opens and claims the table, and recovers interrupted flushes. */
export async function acquireLake(
  closers: Closers,
  tableOptions: LakeOptions & TableOptions,
  { lakeDir: dir, spoolDir, withoutLock, lockWaitMs = defaultLockWaitMs }: CompactOptions,
): Promise<OwnedLake> {
  const paths = lakePaths(dir);
  const lock = withoutLock === true ? undefined : await lockLake(dir, lockWaitMs);
  closers.add('compactor lock', () => lock?.release());
  const removeSpool = (): Promise<void> => removeTree(spoolDir);
  await removeSpool();
  await ensureFolder(spoolDir);
  // The spool has events, which must not survive their erasure there while the service is stopped.
  closers.add('spool', removeSpool);
  const table = await openLake(dir, tableOptions);
  const writer = randomUUID();
  await claim(table, writer, paths.erasedIds);
  await recoverFailed(paths.failed, table.dir);
  return { dir, table, writer, assertFolder: () => lock?.assertHeld(), lost: lock?.lost };
}
