import type { Dataset } from '../../datasets/dataset.ts';
import { findEnrichedGroups, type EnrichedGroup } from '../../datasets/enriched-columns.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import {
  agentBudgetMs,
  createRowLookups,
  type EnrichedRows,
  type EnrichedSelect,
  type RowLookups,
  type Enricher,
} from '../files/enriched-rows.ts';
import { cacheLifetimeMs } from '../files/lookup-cache.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';

const rowsOfBatch = ({ kinds }: Dataset): string =>
  `(SELECT * FROM batch WHERE NOT bad AND kind IN (${kinds.map(sqlText).join(', ')}))`;

/** Creates the enrichment of batches. Cached results are dropped after an idle time. */
export function createBatchEnrichment(duckdb: Duckdb, enricher: Enricher) {
  const byDataset = new Map<Dataset, RowLookups>();
  let idle: NodeJS.Timeout | undefined;
  let forgetting = Promise.resolve();
  const forget = async (rowLookups: RowLookups): Promise<void> => {
    await rowLookups.forget().catch((error: unknown) => enricher.failed(error));
  };
  const forgetAll = async (): Promise<void> => {
    for (const rowLookups of byDataset.values()) await forget(rowLookups);
  };

  /** Undefined if it fails. Error: `disk`. */
  async function lookUp(rowLookups: RowLookups, source: string, groups: readonly EnrichedGroup[]) {
    try {
      await enricher.refresh();
      // Only the service fills these columns of an imported event.
      return await rowLookups.lookUp({ source, groups, has: () => false });
    } catch (error) {
      if (isAppError(error, 'disk')) throw error;
      enricher.failed(error);
      await forget(rowLookups);
      return undefined;
    }
  }

  async function writeWith<T extends object>(
    { select, isCutShort }: EnrichedRows,
    rowLookups: RowLookups,
    write: (select: EnrichedSelect | undefined) => Promise<T>,
  ): Promise<T> {
    try {
      const written = select === undefined ? await write(undefined) : await rowLookups.joined(() => write(select));
      if (isCutShort)
        enricher.failed(new AppError('overloaded', `the User-Agents of a batch took more than ${agentBudgetMs} ms`));
      else enricher.passed();
      return written;
    } catch (error) {
      // A full disk would fail again. Only the engine needs less without the enrichment.
      if (select === undefined || !(isAppError(error, 'memory') || isAppError(error, 'sql'))) throw error;
      enricher.failed(error);
      await forget(rowLookups);
      return write(undefined);
    }
  }

  return {
    /** Writes the rows of `source` with enrichment, or without it if that fails. Errors: those of `write`. */
    async write<T extends object>(
      dataset: Dataset,
      write: (select: EnrichedSelect | undefined) => Promise<T>,
      source = rowsOfBatch(dataset),
    ): Promise<T> {
      const groups = findEnrichedGroups(dataset);
      if (groups.length === 0) return write(undefined);
      const rowLookups = byDataset.get(dataset) ?? createRowLookups(duckdb, enricher, dataset.table);
      byDataset.set(dataset, rowLookups);
      clearTimeout(idle);
      await forgetting;
      try {
        const found = await lookUp(rowLookups, source, groups);
        return await (found === undefined ? write(undefined) : writeWith(found, rowLookups, write));
      } finally {
        await rowLookups.release().catch((error: unknown) => enricher.failed(error));
        idle = setTimeout(() => void (forgetting = forgetAll()), cacheLifetimeMs).unref();
      }
    },
  };
}

export type BatchEnrichment = ReturnType<typeof createBatchEnrichment>;
