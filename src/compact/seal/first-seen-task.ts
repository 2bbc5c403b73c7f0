import { describeError, isAppError } from '../../runtime/errors.ts';
import { findFileDamage } from '../../lake/files/data-file.ts';
import { openFirstSeenParts, type FirstSeenParts, type StoredPart } from '../../lake/first-seen/first-seen-parts.ts';
import {
  findObsolete,
  listUncovered,
  planMerge,
  takeBatch,
  type UncoveredFile,
} from '../../lake/first-seen/plan-parts.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import type { TableDependencies } from './maintenance-task.ts';

/** Time per run for new and merged parts, ms. Rows are sealed between the runs. */
const budgetMs = 2000;
/** Limits of the delay after a change of the table, ms. Several seals then share a part. */
const delayLimits = { min: 1000, max: 30_000 };

type FirstSeenDependencies = Pick<
  TableDependencies,
  'table' | 'clock' | 'crashPoint' | 'logger' | 'lakeDir' | 'ageLimits'
>;

/** Creates the addition of parts; files that cannot be read are left out until the next start. */
function createAdditions({ table, logger }: Pick<FirstSeenDependencies, 'table' | 'logger'>) {
  /** Hashes of files that cannot be read. */
  const unreadable = new Set<string>();

  function skip({ file, cover }: UncoveredFile, error: unknown, level: 'debug' | 'warn' = 'warn'): void {
    unreadable.add(cover.hash);
    logger[level]({ file: file.absolutePath, error: describeError(error) }, 'file left out of the first-seen parts');
  }

  /** Adds a part of files; those that are damaged are skipped. */
  async function add(
    duckdb: Duckdb,
    known: FirstSeenParts,
    batch: readonly UncoveredFile[],
    today: string,
    signal: AbortSignal,
  ): Promise<void> {
    const intact: UncoveredFile[] = [];
    for (const each of batch) {
      const damage = await findFileDamage(each.file);
      if (damage === undefined) intact.push(each);
      // A file that was replaced meanwhile may be missing.
      else skip(each, damage, damage.retryable ? 'debug' : 'warn');
    }
    if (intact.length === 0) return;
    try {
      await known.add(duckdb, intact, table.snapshot().emptyFile, today);
    } catch (error) {
      // A stop interrupts the query, and a failed engine reads no file.
      if (signal.aborted || (!isAppError(error, 'sql') && !isAppError(error, 'memory'))) throw error;
      await duckdb.rows('SELECT 1');
      const [one] = intact;
      if (intact.length === 1 && one !== undefined) return skip(one, error);
      for (const each of intact) await add(duckdb, known, [each], today, signal);
    }
  }

  return { add, isReadable: ({ cover }: UncoveredFile): boolean => !unreadable.has(cover.hash) };
}

/** Creates the runs that keep the first-seen parts near the sealed files of the events table. */
export function createFirstSeenTask(
  { table, clock, crashPoint, logger, lakeDir, ageLimits }: FirstSeenDependencies,
  sealAgeMs: number,
) {
  const everyMs = Math.max(delayLimits.min, Math.min(sealAgeMs / 10, delayLimits.max));
  const additions = createAdditions({ table, logger });
  /** Ids of parts whose merge needs more memory than there is. */
  const unmerged = new Set<string>();
  let opened: FirstSeenParts | undefined;
  let settled = '';
  let forgotten: number | undefined;
  let nextMs = 0;

  /** Makes one change; returns whether one was due. */
  async function step(duckdb: Duckdb, known: FirstSeenParts, today: string, signal: AbortSignal): Promise<boolean> {
    const parts = await known.list();
    const { files } = table.snapshot();
    const obsolete = findObsolete<StoredPart>(parts, files);
    if (obsolete.length > 0) {
      await known.remove(obsolete);
      return true;
    }
    const largest = ageLimits?.isActive() === true ? 'month' : 'year';
    const batch = takeBatch(listUncovered(parts, files).filter(additions.isReadable), today, largest);
    if (batch.length > 0) {
      await additions.add(duckdb, known, batch, today, signal);
      return true;
    }
    const merge = planMerge(
      parts.filter(({ id }) => !unmerged.has(id)),
      today,
      largest,
    );
    if (merge === undefined) return false;
    await known.merge(duckdb, merge, today).catch((error: unknown) => {
      if (!isAppError(error, 'memory')) throw error;
      for (const { id } of merge) unmerged.add(id);
      logger.warn({ parts: merge.length, error: describeError(error) }, 'first-seen parts stay apart');
    });
    return true;
  }

  return {
    /** Removes obsolete parts, adds missing ones and merges them for a while. Errors: the engine's, `disk`. */
    async run(duckdb: Duckdb, signal: AbortSignal): Promise<void> {
      const today = new Date(clock.nowMs()).toISOString().slice(0, 10);
      const now = `${table.state().version} ${today}`;
      const { forgetBefore } = table.lake();
      // An erasure waits for the removal of obsolete parts.
      if (now === settled || (forgetBefore === forgotten && performance.now() < nextMs)) return;
      const endMs = performance.now() + budgetMs;
      opened ??= await openFirstSeenParts(lakeDir, crashPoint, signal);
      while (performance.now() < endMs) {
        if (signal.aborted) return;
        if (await step(duckdb, opened, today, signal)) continue;
        [settled, forgotten] = [now, forgetBefore];
        nextMs = performance.now() + everyMs;
        return;
      }
    },
  };
}
