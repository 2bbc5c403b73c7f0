/**
 * Erasure: takes the events of people, or of an app, out of the lake and out of everything beside it.
 *
 * In: a target (erase-target.ts). Out: commits that replace the files that have such rows, in each table of the lake,
 * and the failed events.
 * Order: the stream is drained (drain.ts), the tables are locked, files and failed events are rewritten table by table,
 * the last commit of each says when the retention is over. Readers of versions before keep their files until then; the
 * compactor's maintenance loop removes those files and the log that names them, and puts each sealed file's rewrite in
 * its place (lake/files/places.ts).
 * Crash: at any instruction; what was rewritten stays so, and the erasure can be repeated.
 */
import { waitForLock, type Lock } from '../../runtime/files/lock.ts';
import type { Clock } from '../../runtime/clock.ts';
import { events, type Dataset } from '../../datasets/dataset.ts';
import { recoverChanges } from '../../lake/files/change.ts';
import { mustForget } from '../../lake/clean.ts';
import { hasFollowed } from '../../lake/catalogue/renew.ts';
import { addErasedIds, valuesSql } from '../../lake/find/erased-ids.ts';
import { assertTablesNamed, lakePaths, listOtherTables, openDatasetTable, tablePaths } from '../../lake/lake.ts';
import { listLog } from '../../lake/log/log-files.ts';
import { readSnapshot, type Snapshot } from '../../lake/log/snapshot.ts';
import { drainStream, waitUntil, type DrainDependencies } from './drain.ts';
import {
  countFailedHits,
  eraseFailed,
  eraseOrphans,
  findOrphanHits,
  listFailedIds,
  type EraseAsideDependencies,
  hadLoadBeside,
  listKnownLoads,
  type KnownLoads,
} from './erase-aside.ts';
import {
  findHits,
  findMeanings,
  isInRemovedFiles,
  listHitIdsSql,
  rewriteHits,
  sumHits,
  type Hit,
  type TableErasure,
  type UserMeaning,
} from './erase-table.ts';
import { targetParts, type ErasureTarget } from './erase-target.ts';

/** The steps of an erasure at which a crash is tested, beside those of its rewrites. */
export const eraseSteps = ['erase-drained', 'erase-rewritten', 'erase-committed'] as const;

export interface EraseDependencies extends DrainDependencies, EraseAsideDependencies {
  readonly clock: Clock;
}

export interface EraseOptions {
  /** How long those who still read older versions and the sealed files as they were keep them, milliseconds. */
  readonly retentionMs: number;
  /**
   * Waits for nobody: what still reads those ends with an error. The erasure then returns when all is gone, also what an
   * erasure before it has left for readers.
   */
  readonly now?: boolean;
  /** Looks at what would be erased, before anything is; throws to have nothing erased. */
  readonly assertMeant?: (found: readonly UserMeaning[]) => void;
}

/**
 * What an erasure would take out of what the lake has now; events that still wait in the stream are not looked through.
 */
export interface ErasureSurvey {
  /** Of all tables. */
  readonly rows: number;
  /** Bad rows of loads among them. */
  readonly failedEvents: number;
  readonly filesToRewrite: number;
  readonly meanings: readonly UserMeaning[];
  /** The part of the tables beside that of the events, by name: those with rows that match. */
  readonly tables?: Readonly<Record<string, { readonly rows: number; readonly filesToRewrite: number }>>;
}

/** What an erasure took out of a table beside that of the events. */
export interface ErasedFromTable {
  readonly rows: number;
  /** Bad rows of loads; absent when none matched. */
  readonly failedRows?: number;
  readonly filesRewritten: number;
  /** As that of the table of the events. */
  readonly historyFrom: number;
}

/** What an erasure did. Exported report files are not its matter: they end with their links. */
export interface Erased {
  /** Of all tables. */
  readonly rows: number;
  /** Bad rows of loads among them. */
  readonly failedEvents: number;
  /** Files of the tables that were rewritten. */
  readonly filesRewritten: number;
  /** The part of the tables beside that of the events, by name: those that were changed. */
  readonly tables?: Readonly<Record<string, ErasedFromTable>>;
  /**
   * Tables into which files were being loaded meanwhile: such a load may have brought rows that the erasure has not
   * seen, so it is to be repeated when those loads have ended. Absent when there was none.
   */
  readonly repeatAfterLoads?: readonly string[];
  /**
   * The first version of the table of the events that readers can travel back to when the erasure is finished; absent
   * when nothing of it matched.
   */
  readonly historyFrom?: number;
  /**
   * When the running compactor removes the last traces, ISO 8601, also those of an erasure before; absent when nothing
   * matched.
   */
  readonly finishesAt?: string;
}

const waitForLockMs = 120_000;

/** Adds the tables beside that of the events to an answer, where there are any. */
function withTables<A extends object, T>(
  answer: A,
  tables: ReadonlyMap<string, T>,
): A & { tables?: Record<string, T> } {
  return tables.size === 0 ? answer : { ...answer, tables: Object.fromEntries(tables) };
}

/**
 * Looks what an erasure would take out, and changes nothing. Needs neither the broker nor the compactor. Errors:
 * `file_damaged` and `conflict` as `eraseEvents`.
 */
export async function surveyErasure(
  { table, lakeDir, duckdb }: EraseAsideDependencies,
  target: ErasureTarget,
): Promise<ErasureSurvey> {
  targetParts(target);
  await assertTablesNamed(lakeDir);
  await table.refresh();
  const tables = new Map<string, { rows: number; filesToRewrite: number }>();
  const meanings: UserMeaning[] = [];
  let failedEvents = 0;
  const look = async (dataset: Dataset, snapshot: Snapshot): Promise<{ rows: number; filesToRewrite: number }> => {
    const hits = await findHits(duckdb, snapshot, target);
    meanings.push(...(await findMeanings(duckdb, snapshot, hits, target)));
    failedEvents += await countFailedHits(lakeDir, dataset, snapshot, target);
    return { rows: sumHits(hits), filesToRewrite: hits.length };
  };
  const all = [await look(events, table.snapshot())];
  for (const dataset of await listOtherTables(lakeDir)) {
    const found = await look(dataset, await readSnapshot(tablePaths(lakeDir, dataset).table));
    all.push(found);
    if (found.rows > 0) tables.set(dataset.table, found);
  }
  const survey = {
    rows: all.reduce((sum, { rows }) => sum + rows, 0),
    failedEvents,
    filesToRewrite: all.reduce((sum, one) => sum + one.filesToRewrite, 0),
    meanings,
  };
  return withTables(survey, tables);
}

/** A table, and its files with rows to erase. */
interface FoundInTable {
  readonly erasure: TableErasure;
  readonly hits: readonly Hit[];
  /** The loads whose rows were looked through. */
  readonly loads: KnownLoads;
}

/**
 * Opens and locks the tables, the events first, finishes what a crash has left there, and finds the rows to erase.
 * `locks` takes each lock as it is taken.
 */
async function lockTables(
  dependencies: EraseDependencies,
  target: ErasureTarget,
  retentionMs: number,
  locks: Lock[],
): Promise<FoundInTable[]> {
  const { lakeDir, duckdb, clock, crashPoint } = dependencies;
  const found: FoundInTable[] = [];
  for (const dataset of [events, ...(await listOtherTables(lakeDir))]) {
    const paths = tablePaths(lakeDir, dataset);
    locks.push(await waitForLock(paths.maintenanceLock, 'an erasure', waitForLockMs));
    const table =
      dataset === events
        ? dependencies.table
        : await openDatasetTable(lakeDir, dataset, { clock, crashPoint, retentionMs });
    await table.refresh();
    await recoverChanges(table, paths.staging);
    const loads = listKnownLoads(table);
    const hits = await findHits(duckdb, table.snapshot(), target);
    found.push({ erasure: { ...dependencies, dataset, table }, hits, loads });
  }
  return found;
}

/** Writes down which ids go, so that they are known as erased: before they do. */
async function rememberErased(
  dependencies: EraseDependencies,
  found: readonly FoundInTable[],
  target: ErasureTarget,
): Promise<void> {
  const selects: string[] = [];
  for (const { erasure, hits } of found) {
    selects.push(...listHitIdsSql(erasure.table.snapshot(), hits, target));
    const ids = await listFailedIds(erasure, target);
    if (ids.length > 0) selects.push(valuesSql(ids));
  }
  if (selects.length === 0) return;
  await addErasedIds(dependencies, lakePaths(dependencies.lakeDir), selects);
}

/**
 * Commits from which version on a table's history is kept. Returns it; undefined where there is nothing to forget: an
 * erasure that was killed has left the history to the one that repeats it.
 */
async function forgetHistory(
  { table, clock }: TableErasure,
  hasErased: boolean,
  forgetAtMs: number | undefined,
): Promise<number | undefined> {
  if (!hasErased && table.lake().erasing === undefined) return undefined;
  // An erasure that waits for no reader, and is not finished, is not put off by this one.
  const isUrgent = (await mustForget(table, clock.nowMs())) === 'now';
  const forget = forgetAtMs === undefined || isUrgent ? {} : { forgetAtMs };
  await table.commit(({ version }) => ({
    cause: 'erase',
    actions: [],
    forgetBefore: version + 1,
    erasedApps: [],
    ...forget,
    metrics: { historyBefore: version + 1 },
  }));
  return table.lake().forgetBefore ?? 0;
}

/** A table that was changed, and the version from which on its history is kept. */
interface KeptHistory {
  readonly erasure: TableErasure;
  readonly historyFrom: number;
}

/** What was taken out of the tables beside that of the events: those that were changed, by name. */
function listErasedTables(
  found: readonly FoundInTable[],
  failed: ReadonlyMap<Dataset, number>,
  historyOf: ReadonlyMap<Dataset, KeptHistory>,
): Map<string, ErasedFromTable> {
  const tables = new Map<string, ErasedFromTable>();
  for (const { erasure, hits } of found.slice(1)) {
    const history = historyOf.get(erasure.dataset);
    if (history === undefined) continue;
    const failedRows = failed.get(erasure.dataset) ?? 0;
    tables.set(erasure.dataset.table, {
      rows: sumHits(hits),
      ...(failedRows === 0 ? {} : { failedRows }),
      filesRewritten: hits.length,
      historyFrom: history.historyFrom,
    });
  }
  return tables;
}

/** Names the tables into which files were loaded beside the erasure. */
async function listLoadsBeside(found: readonly FoundInTable[]): Promise<{ repeatAfterLoads?: string[] }> {
  const repeatAfterLoads: string[] = [];
  for (const { erasure, loads } of found.slice(1)) {
    const { dataset, table, lakeDir } = erasure;
    if (await hadLoadBeside(table, lakeDir, loads)) repeatAfterLoads.push(dataset.table);
  }
  return repeatAfterLoads.length === 0 ? {} : { repeatAfterLoads };
}

/** Waits until the running compactor has removed the old files, and what the catalogue of parameters had of them. */
async function waitForRemoval(
  { lakeDir, signal }: EraseDependencies,
  historyOf: ReadonlyMap<Dataset, KeptHistory>,
): Promise<void> {
  await waitUntil(signal, 'the old files and history to be removed', async () => {
    for (const { erasure, historyFrom } of historyOf.values())
      if (((await listLog(erasure.table.dir)).commits[0] ?? historyFrom) < historyFrom) return false;
    return true;
  });
  const version = historyOf.get(events)?.historyFrom;
  if (version === undefined) return;
  // Its turn comes behind that of the log, so it is not in the midst of one that began before.
  await waitUntil(signal, 'the catalogue of parameters to follow', () => hasFollowed(lakeDir, version));
}

/**
 * Erases events from the stream, the live files of every table, the files put aside and the failed events, and lets the
 * history follow in time. A compactor must run on the lake: it takes in the stream first, and removes what readers no
 * longer need. Events that arrive during the erasure are not its matter. Where nothing matches, the lake stays as it
 * is, history and all. Errors: `overloaded` when no compactor moves on, `locked`, `file_damaged` when a file that may
 * have such rows is damaged, `conflict` when no pipeline names a table: nothing is rewritten then.
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

  const historyOf = new Map<Dataset, KeptHistory>();
  const locks: Lock[] = [];
  let erased: Omit<Erased, 'historyFrom' | 'finishesAt'>;
  let finishesAtMs: number;
  let pendingMs = 0;
  try {
    const found = await lockTables(dependencies, target, retentionMs, locks);
    const orphans = await findOrphanHits(dependencies, target);
    const meanings: UserMeaning[] = [];
    for (const { erasure, hits } of found)
      meanings.push(...(await findMeanings(duckdb, erasure.table.snapshot(), hits, target)));
    assertMeant?.(meanings);
    await rememberErased(dependencies, found, target);
    for (const { erasure, hits } of found) await rewriteHits(erasure, hits, target);
    await eraseOrphans(dependencies, orphans, target);
    const failed = new Map<Dataset, number>();
    for (const { erasure } of found) failed.set(erasure.dataset, await eraseFailed(erasure, target));
    await crashPoint('erase-rewritten');

    finishesAtMs = clock.nowMs() + (now ? 0 : retentionMs);
    for (const { erasure, hits } of found) {
      const beside = (failed.get(erasure.dataset) ?? 0) + (erasure.dataset === events ? orphans.length : 0);
      // Rows that were taken out before stay for readers of older versions, until those are not waited for any more.
      const mayBePending = now || (erasure.table.lake().forgetAtMs ?? 0) > clock.nowMs();
      const isPending = hits.length === 0 && mayBePending && (await isInRemovedFiles(duckdb, erasure.table, target));
      if (isPending) pendingMs = Math.max(pendingMs, erasure.table.lake().forgetAtMs ?? 0);
      const hasErased = hits.length + beside > 0 || (now && isPending);
      const historyFrom = await forgetHistory(erasure, hasErased, now ? undefined : finishesAtMs);
      if (historyFrom !== undefined) historyOf.set(erasure.dataset, { erasure, historyFrom });
    }
    erased = withTables(
      {
        rows: found.reduce((sum, { hits }) => sum + sumHits(hits), 0),
        failedEvents: [...failed.values()].reduce((sum, one) => sum + one, 0),
        filesRewritten: found.reduce((sum, { hits }) => sum + hits.length, 0),
        ...(await listLoadsBeside(found)),
      },
      listErasedTables(found, failed, historyOf),
    );
    if (historyOf.size === 0)
      return pendingMs === 0 ? erased : { ...erased, finishesAt: new Date(pendingMs).toISOString() };
    await crashPoint('erase-committed');
  } finally {
    for (const lock of locks) lock.release();
  }
  if (now) await waitForRemoval(dependencies, historyOf);
  const historyFrom = historyOf.get(events)?.historyFrom;
  return {
    ...erased,
    ...(historyFrom === undefined ? {} : { historyFrom }),
    finishesAt: new Date(finishesAtMs).toISOString(),
  };
}
