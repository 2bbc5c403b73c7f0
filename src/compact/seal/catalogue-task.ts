import { describeError, isAppError } from '../../runtime/errors.ts';
import { localFiles } from '../../runtime/store/open-store.ts';
import { cataloguePaths } from '../../lake/catalogue/catalogue-files.ts';
import { openPacks, type Packs } from '../../lake/catalogue/packs.ts';
import { listSources, type SummarySource } from '../../lake/catalogue/file-summaries.ts';
import {
  digestOf,
  findMergedCatalogue,
  isCatalogueRemoved,
  refreshCatalogue,
  refreshNotices,
  removeCatalogueLeftovers,
  removeCatalogue,
} from '../../lake/catalogue/refresh.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import { withEmptyFile } from '../../lake/log/snapshot.ts';
import { takeBounded } from '../compact-options.ts';
import type { TableDependencies } from './maintenance-task.ts';

/** Time per run for files that are not in the catalogue yet, ms. Rows are sealed between the runs. */
const budgetMs = 2000;
const maxFiles = 64;
const maxRows = 2_000_000;
/** Idle time after a fold, or a check for notices, which read all parts: this multiple of its duration. */
const restAfter = 20;
const hourMs = 3_600_000;

/** Returns the newest date whose events are sealed by now, except late ones. */
function sealedDay(nowMs: number, sealAgeMs: number): string {
  return new Date(nowMs - 25 * hourMs - 2 * sealAgeMs).toISOString().slice(0, 10);
}

/** Creates the parts of the catalogue in one process; files that cannot be read are skipped until the next start. */
function createPartMaker({ table, logger }: TableDependencies, packs: Packs) {
  const unreadable = new Set<string>();

  async function addBatch(duckdb: Duckdb, batch: readonly SummarySource[], signal: AbortSignal): Promise<void> {
    const { emptyFile } = table.snapshot();
    try {
      await packs.add(duckdb, batch, emptyFile);
    } catch (error) {
      // A stop interrupts the query: the files may be intact.
      if (signal.aborted || (!isAppError(error, 'sql') && !isAppError(error, 'memory'))) throw error;
      // Throws if the engine has failed permanently: the files may be intact.
      await localFiles.use(withEmptyFile({ emptyFile }), ([local = '']) =>
        duckdb.rows(`SELECT count(*) AS n FROM read_parquet(${sqlText(local)})`),
      );
      if (batch.length > 1) {
        for (const source of batch) await addBatch(duckdb, [source], signal);
        return;
      }
      const [source] = batch;
      if (source !== undefined) unreadable.add(source.key);
      logger.warn(
        { file: source?.file.absolutePath, error: describeError(error) },
        'file left out of the parameter catalogue',
      );
    }
  }

  return {
    keep: (duckdb: Duckdb): Promise<boolean> =>
      packs.keep(duckdb, new Set(listSources(table.snapshot().files).map(({ key }) => key))),
    /** Adds missing parts, newest dates first, until the time of the run has passed; returns how many are left. */
    async add(duckdb: Duckdb, signal: AbortSignal): Promise<number> {
      const sources = listSources(table.snapshot().files);
      const endMs = performance.now() + budgetMs;
      for (;;) {
        const keys = packs.keys();
        const missing = sources.filter(({ key }) => !keys.has(key) && !unreadable.has(key));
        if (missing.length === 0 || signal.aborted || performance.now() >= endMs) return missing.length;
        await addBatch(
          duckdb,
          takeBounded(missing, ({ rows }) => rows, maxFiles, maxRows),
          signal,
        );
      }
    },
    unreadable: () => unreadable.size,
  };
}

function createThrottle(leastMs: number) {
  let nextMs = 0;
  return {
    isDue: () => performance.now() >= nextMs,
    async run(work: () => Promise<void>): Promise<void> {
      const begunMs = performance.now();
      await work();
      nextMs = performance.now() + Math.max(leastMs, restAfter * (performance.now() - begunMs));
    },
  };
}

/** Compares the published fold with the parts. One from before an erasure that waits for its version is obsolete. */
async function compareFold(
  { table, lakeDir }: TableDependencies,
  packs: Packs,
): Promise<'current' | 'outdated' | 'obsolete'> {
  if (packs.files().length === 0) return (await isCatalogueRemoved(lakeDir)) ? 'current' : 'obsolete';
  const folded = await findMergedCatalogue(lakeDir);
  if (folded === undefined || folded.tableVersion < (table.lake().forgetBefore ?? 0)) return 'obsolete';
  return folded.parts === digestOf(packs.keys()) ? 'current' : 'outdated';
}

interface Opened {
  readonly packs: Packs;
  readonly parts: ReturnType<typeof createPartMaker>;
}

/** Creates the runs that keep the parameter catalogue near the sealed files of the events table. */
export function createCatalogueTask(dependencies: TableDependencies, sealAgeMs: number) {
  const { table, clock, crashPoint, logger, lakeDir } = dependencies;
  const everyMs = Math.max(50, Math.min(sealAgeMs / 10, 30_000));
  const [folds, looks, checks] = [createThrottle(everyMs), createThrottle(everyMs), createThrottle(everyMs)];
  let opened: Opened | undefined;
  const startedMs = performance.now();
  let noticed = '';
  /** True if a part was removed that is still in the fold. */
  let mustFold = false;
  let settledVersion: number | undefined;

  async function open(duckdb: Duckdb): Promise<Opened> {
    await removeCatalogueLeftovers(lakeDir);
    const packs = await openPacks(cataloguePaths(lakeDir).packs, duckdb, crashPoint);
    return { packs, parts: createPartMaker(dependencies, packs) };
  }

  /** Reports, at intervals, whether the catalogue was removed or its record damaged. */
  async function isGone({ packs }: Opened): Promise<boolean> {
    let isCurrent = true;
    if (checks.isDue())
      await checks.run(async () => void (isCurrent = (await compareFold(dependencies, packs)) === 'current'));
    return !isCurrent;
  }

  async function fold(duckdb: Duckdb, { packs, parts }: Opened, tableVersion: number, missing: number): Promise<void> {
    if (packs.files().length === 0) return await removeCatalogue(lakeDir);
    const missingFiles = missing + parts.unreadable();
    await refreshCatalogue(lakeDir, duckdb, packs, { tableVersion, missingFiles, crashPoint });
  }

  /** Checks for notices. Before the backlog of the start can be sealed, every volume seems to have fallen. */
  async function notice(duckdb: Duckdb, { packs }: Opened): Promise<void> {
    if (performance.now() - startedMs < 2 * sealAgeMs || !looks.isDue()) return;
    const nowMs = clock.nowMs();
    const day = sealedDay(nowMs, sealAgeMs);
    const now = `${day} ${digestOf(packs.keys())}`;
    if (now === noticed) return;
    await looks.run(async () => {
      for (const found of await refreshNotices(lakeDir, duckdb, packs, { day, nowMs }))
        logger.info({ id: found.id, kind: found.kind, idApp: found.idApp }, 'catalogue notice created');
    });
    noticed = now;
  }

  async function renew(duckdb: Duckdb, signal: AbortSignal): Promise<void> {
    // Read first: all that follows is of this version or later.
    const { version } = table.state();
    const known = (opened ??= await open(duckdb));
    if (version === settledVersion && !(await isGone(known))) return await notice(duckdb, known);
    // A removed part must leave the fold at once, also if folding fails once.
    mustFold = (await known.parts.keep(duckdb)) || mustFold;
    const missing = await known.parts.add(duckdb, signal);
    if (signal.aborted) return;
    const state = await compareFold(dependencies, known.packs);
    if (state === 'outdated' && !mustFold && !folds.isDue()) return;
    if (state !== 'current') await folds.run(() => fold(duckdb, known, version, missing));
    mustFold = false;
    if (missing > 0) return;
    settledVersion = version;
    await notice(duckdb, known);
  }

  return {
    /**
     * Removes obsolete parts, adds missing ones for a while, and folds when it is due. Errors: the engine's, `disk`.
     */
    async run(duckdb: Duckdb, signal: AbortSignal): Promise<void> {
      try {
        await renew(duckdb, signal);
      } catch (error) {
        const isMended = !signal.aborted && isAppError(error, 'sql') && (await opened?.packs.mend(duckdb));
        if (isMended !== true) throw error;
        settledVersion = undefined;
        logger.warn({ error: describeError(error) }, 'cannot read parts of the catalogue, recreating them');
      }
    },
  };
}
