/**
 * Erasure: removes the events of people, or of an app, from the lake and from all copies of its rows.
 *
 * In: a target (erase-target.ts). Out: commits that replace the files with such rows in each table, and the failed
 * events.
 * Order: the stream is drained (drain.ts), the tables are locked, files and failed events are rewritten table by table,
 * the last commit of each sets the end of the retention. Readers of older versions keep their files until then; the
 * maintenance loop removes those files and their log, and moves each sealed file's rewrite to its path
 * (lake/files/deferred-replacement.ts).
 * Crash: at any instruction; rewritten files stay, and the erasure can be repeated.
 */
import { localFiles } from '../../runtime/store/open-store.ts';
import type { ObjectLock } from '../../runtime/store/object-lock.ts';
import type { Clock } from '../../runtime/clock.ts';
import { events } from '../../datasets/dataset.ts';
import { mustDropErasedHistory } from '../../lake/cleanup.ts';
import { isCatalogueCurrent } from '../../lake/catalogue/refresh.ts';
import { areFirstSeenPartsCurrent } from '../../lake/first-seen/first-seen-parts.ts';
import { addErasedIds, valuesSql } from '../../lake/event-index/erased-ids.ts';
import { endRemoval, listRemovedRows } from '../../lake/event-index/erasure-list.ts';
import { assertTablesNamed, lakePaths, listOtherTables, openDatasetTable } from '../../lake/lake.ts';
import { listLog } from '../../lake/log/log-files.ts';
import { readSnapshot, withEmptyFile } from '../../lake/log/snapshot.ts';
import { drainStream, waitUntil, type DrainDependencies } from './drain.ts';
import {
  eraseFailed,
  eraseQuarantined,
  findQuarantinedHits,
  listFailedIds,
  type EraseOutsideTablesDependencies,
  hadConcurrentLoad,
  type KnownLoads,
} from './erase-outside-tables.ts';
import {
  findFilesToErase,
  findUserIdScopes,
  isInRemovedFiles,
  listHitIdsSql,
  rewriteHits,
  sumHits,
  type FileToErase,
  type TableErasure,
  type UserIdScope,
} from './erase-table.ts';
import { targetParts, type ErasureTarget } from './erase-target.ts';
import { listLoadStates } from '../../lake/log/lake-state.ts';
import { lockTable, settleTable, stagingOf } from '../tables.ts';

/** Steps at which a crash is tested, in addition to those of the rewrites. */
export const eraseSteps = ['erase-drained', 'erase-rewritten', 'erase-committed'] as const;

interface EraseDependencies extends DrainDependencies, EraseOutsideTablesDependencies {
  readonly clock: Clock;
}

export interface EraseOptions {
  /** Time for which readers keep older versions and the replaced files, ms. */
  readonly retentionMs: number;
  /** Returns when all is removed, without waiting for readers, whose queries may fail. */
  readonly now?: boolean;
  /** Throws to cancel, before anything is erased. */
  readonly assertMeant?: (found: readonly UserIdScope[]) => void;
}

interface ErasedFromTable {
  readonly rows: number;
  /** Bad rows of loads; absent if none matched. */
  readonly failedRows?: number;
  readonly filesRewritten: number;
  readonly historyFrom: number;
}

/** Counts of an erasure. Report files are removed when their links expire. */
export interface Erased {
  readonly rows: number;
  readonly failedEvents: number;
  readonly filesRewritten: number;
  readonly tables?: Readonly<Record<string, ErasedFromTable>>;
  /** Tables with concurrent loads, which may have added matching rows: to be repeated after them. Absent if none. */
  readonly tablesToRepeat?: readonly string[];
  /** The first version of the events table that stays readable; absent if nothing of it matched. */
  readonly historyFrom?: number;
  /** When the compactor removes the last traces, of earlier erasures too, ISO 8601; absent if nothing matched. */
  readonly finishesAt?: string;
}

interface FoundInTable {
  readonly erasure: TableErasure;
  readonly hits: readonly FileToErase[];
  readonly loads: KnownLoads;
  failed: number;
  /** The first kept version; undefined if nothing was erased. */
  historyFrom: number | undefined;
}

/** Locks, opens and settles the tables, the events first, and finds the rows to erase. Adds each lock to `locks`. */
async function lockTables(
  dependencies: EraseDependencies,
  target: ErasureTarget,
  retentionMs: number,
  locks: ObjectLock[],
): Promise<FoundInTable[]> {
  const { lakeDir, duckdb, clock, crashPoint } = dependencies;
  const found: FoundInTable[] = [];
  for (const dataset of [events, ...(await listOtherTables(lakeDir))]) {
    locks.push(await lockTable(lakeDir, dataset, 'an erasure'));
    const table =
      dataset === events
        ? dependencies.table
        : await openDatasetTable(lakeDir, dataset, { clock, crashPoint, retentionMs });
    await settleTable(table, lakeDir);
    const loads = listLoadStates(table.state().txns);
    const fileToErases = await findFilesToErase(duckdb, table.snapshot(), target);
    const erasure = { ...dependencies, dataset, table };
    found.push({ erasure, hits: fileToErases, loads, failed: 0, historyFrom: undefined });
  }
  return found;
}

/** Records the ids to erase, before their rows are removed. */
async function rememberErased(
  dependencies: EraseDependencies,
  found: readonly FoundInTable[],
  target: ErasureTarget,
): Promise<void> {
  const files = found.flatMap(({ erasure, hits }) =>
    withEmptyFile(
      erasure.table.snapshot(),
      hits.map(({ file }) => file),
    ),
  );
  await localFiles.use(files, async (paths) => {
    const selects: string[] = [];
    let from = 0;
    for (const { erasure, hits } of found) {
      const own = paths.slice(from, (from += 1 + hits.length));
      const { table, lakeDir } = erasure;
      const selectsOfTable = hits.length === 0 ? [] : listHitIdsSql(table.snapshot(), own, target);
      for (const select of selectsOfTable) selects.push(select);
      if (selectsOfTable.length > 0)
        await listRemovedRows({ ...dependencies, table }, stagingOf(table, lakeDir), selectsOfTable);
      const ids = await listFailedIds(erasure, target);
      if (ids.length > 0) selects.push(valuesSql(ids));
    }
    if (selects.length > 0) await addErasedIds(dependencies, lakePaths(dependencies.lakeDir), selects);
  });
}

/** Commits the first version that a table keeps, and returns it; undefined without history to drop. */
async function forgetHistory(
  { table, clock }: TableErasure,
  hasErased: boolean,
  forgetAtMs: number | undefined,
): Promise<number | undefined> {
  if (!hasErased && table.lake().erasing === undefined) return undefined;
  // An unfinished erasure with `now` must not be delayed by this one.
  const isUrgent = (await mustDropErasedHistory(table, clock.nowMs())) === 'now';
  const forget = forgetAtMs === undefined || isUrgent ? {} : { forgetAtMs };
  await table.commit(({ version }, { erasures }) => ({
    cause: 'erase',
    actions: [],
    forgetBefore: version + 1,
    erasedApps: [],
    ...forget,
    erasures: endRemoval(erasures, version + 1),
    metrics: { historyBefore: version + 1 },
  }));
  return table.lake().forgetBefore ?? 0;
}

function listErasedTables(found: readonly FoundInTable[]): Map<string, ErasedFromTable> {
  const tables = new Map<string, ErasedFromTable>();
  for (const { erasure, hits, failed: failedRows, historyFrom } of found.slice(1))
    if (historyFrom !== undefined)
      tables.set(erasure.dataset.table, {
        rows: sumHits(hits),
        ...(failedRows === 0 ? {} : { failedRows }),
        filesRewritten: hits.length,
        historyFrom,
      });
  return tables;
}

async function listConcurrentLoads(found: readonly FoundInTable[]): Promise<{ tablesToRepeat?: string[] }> {
  const tablesToRepeat: string[] = [];
  for (const { erasure, loads } of found.slice(1)) {
    const { dataset, table, lakeDir } = erasure;
    if (await hadConcurrentLoad(table, lakeDir, loads)) tablesToRepeat.push(dataset.table);
  }
  return tablesToRepeat.length === 0 ? {} : { tablesToRepeat };
}

/** Waits until the compactor has removed the old files, and what the catalogue and first-seen parts have of them. */
async function waitForRemoval({ lakeDir, signal }: EraseDependencies, found: readonly FoundInTable[]): Promise<void> {
  await waitUntil(signal, 'the old files and history to be removed', async () => {
    for (const { erasure, historyFrom = 0 } of found)
      if (((await listLog(erasure.table.dir)).commits[0] ?? historyFrom) < historyFrom) return false;
    return true;
  });
  const version = found[0]?.historyFrom;
  if (version === undefined) return;
  // It follows the clean-up of the log, so no earlier run of it is in progress.
  await waitUntil(signal, 'the catalogue of parameters to follow', () => isCatalogueCurrent(lakeDir, version));
  await waitUntil(signal, 'the first-seen parts to follow', async () =>
    areFirstSeenPartsCurrent(lakeDir, (await readSnapshot(lakePaths(lakeDir).table)).files),
  );
}

/**
 * Erases events from the stream, the live files of every table, quarantined files and failed events; the history
 * follows after the retention. Needs a running compactor, which commits the backlog first and removes old files later.
 * Events that arrive during the erasure are not erased. If nothing matches, the lake is unchanged. Errors: `overloaded`
 * if the compactor does not advance, `locked`, `file_damaged` if a file that may have such rows is damaged, `conflict`
 * for a table without a pipeline: nothing is rewritten then.
 */
export async function eraseEvents(
  dependencies: EraseDependencies,
  target: ErasureTarget,
  { retentionMs, now = false, assertMeant }: EraseOptions,
): Promise<Erased> {
  const { duckdb, clock, crashPoint } = dependencies;
  targetParts(target);
  await assertTablesNamed(dependencies.lakeDir);
  await drainStream(dependencies);
  await crashPoint('erase-drained');

  const locks: ObjectLock[] = [];
  let erased: Omit<Erased, 'historyFrom' | 'finishesAt'>;
  let found: FoundInTable[];
  let finishesAtMs: number;
  let pendingMs = 0;
  try {
    found = await lockTables(dependencies, target, retentionMs, locks);
    const quarantined = await findQuarantinedHits(dependencies, target);
    const meanings: UserIdScope[] = [];
    for (const { erasure, hits } of found)
      for (const one of await findUserIdScopes(duckdb, erasure.table.snapshot(), hits, target)) meanings.push(one);
    assertMeant?.(meanings);
    await rememberErased(dependencies, found, target);
    for (const { erasure, hits } of found) await rewriteHits(erasure, hits, target);
    await eraseQuarantined(dependencies, quarantined, target);
    for (const one of found) one.failed = await eraseFailed(one.erasure, target);
    await crashPoint('erase-rewritten');

    finishesAtMs = clock.nowMs() + (now ? 0 : retentionMs);
    for (const one of found) {
      const { erasure, hits } = one;
      const { forgetAtMs = 0, expiryDay } = erasure.table.lake();
      const others = one.failed + (erasure.dataset === events ? quarantined.length : 0);
      // Removed files may have matching rows until their retention has passed.
      const mayBePending = now || expiryDay !== undefined || forgetAtMs > clock.nowMs();
      const isPending = hits.length === 0 && mayBePending && (await isInRemovedFiles(duckdb, erasure.table, target));
      if (isPending) pendingMs = Math.max(pendingMs, expiryDay === undefined ? forgetAtMs : finishesAtMs);
      const hasErased = hits.length + others > 0 || (now && isPending);
      one.historyFrom = await forgetHistory(erasure, hasErased, now ? undefined : finishesAtMs);
    }
    const result = {
      rows: found.reduce((sum, { hits }) => sum + sumHits(hits), 0),
      failedEvents: found.reduce((sum, { failed }) => sum + failed, 0),
      filesRewritten: found.reduce((sum, { hits }) => sum + hits.length, 0),
      ...(await listConcurrentLoads(found)),
    };
    const tables = listErasedTables(found);
    erased = tables.size === 0 ? result : { ...result, tables: Object.fromEntries(tables) };
    if (found.every(({ historyFrom }) => historyFrom === undefined))
      return pendingMs === 0 ? erased : { ...erased, finishesAt: new Date(pendingMs).toISOString() };
    await crashPoint('erase-committed');
  } finally {
    for (const lock of locks) await lock.release();
  }
  if (now) await waitForRemoval(dependencies, found);
  const historyFrom = found[0]?.historyFrom;
  return {
    ...erased,
    ...(historyFrom === undefined ? {} : { historyFrom }),
    finishesAt: new Date(finishesAtMs).toISOString(),
  };
}
