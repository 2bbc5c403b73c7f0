import type { Dataset } from '../../datasets/dataset.ts';
import { findEnrichedGroups, type EnrichedGroup } from '../../datasets/enriched-columns.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import {
  agentBudgetMs,
  createLookUps,
  type EnrichedRows,
  type EnrichedSelect,
  type LookUps,
  type Enricher,
} from '../files/enriched-rows.ts';
import { rememberMs } from '../files/text-tables.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';

const rowsOfBatch = ({ kinds }: Dataset): string =>
  `(SELECT * FROM batch WHERE NOT bad AND kind IN (${kinds.map(sqlText).join(', ')}))`;

/** Creates the enrichment of batches. Cached results are dropped after an idle time. */
export function createBatchEnrichment(duckdb: Duckdb, enricher: Enricher) {
  const byDataset = new Map<Dataset, LookUps>();
  let idle: NodeJS.Timeout | undefined;
  let forgetting = Promise.resolve();
  const forget = async (lookUps: LookUps): Promise<void> => {
    await lookUps.forget().catch((error: unknown) => enricher.failed(error));
  };
  const forgetAll = async (): Promise<void> => {
    for (const lookUps of byDataset.values()) await forget(lookUps);
  };

  /** Undefined if it fails. Error: `disk`. */
  async function lookUp(lookUps: LookUps, source: string, groups: readonly EnrichedGroup[]) {
    try {
      await enricher.refresh();
      // Only the service fills these columns of an imported event.
      return await lookUps.lookUp({ source, groups, has: () => false });
    } catch (error) {
      if (isAppError(error, 'disk')) throw error;
      enricher.failed(error);
      await forget(lookUps);
      return undefined;
    }
  }

  async function writeWith<T extends object>(
    { select, isCutShort }: EnrichedRows,
    lookUps: LookUps,
    write: (select: EnrichedSelect | undefined) => Promise<T>,
  ): Promise<T> {
    try {
      const written = select === undefined ? await write(undefined) : await lookUps.joined(() => write(select));
      if (isCutShort)
        enricher.failed(new AppError('overloaded', `the User-Agents of a batch took more than ${agentBudgetMs} ms`));
      else enricher.passed();
      return written;
    } catch (error) {
      // A full disk would fail again. Only the engine needs less without the enrichment.
      if (select === undefined || !(isAppError(error, 'memory') || isAppError(error, 'sql'))) throw error;
      enricher.failed(error);
      await forget(lookUps);
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
      const lookUps = byDataset.get(dataset) ?? createLookUps(duckdb, enricher, dataset.table);
      byDataset.set(dataset, lookUps);
      clearTimeout(idle);
      await forgetting;
      try {
        const found = await lookUp(lookUps, source, groups);
        return await (found === undefined ? write(undefined) : writeWith(found, lookUps, write));
      } finally {
        await lookUps.release().catch((error: unknown) => enricher.failed(error));
        idle = setTimeout(() => void (forgetting = forgetAll()), rememberMs).unref();
      }
    },
  };
}

export type BatchEnrichment = ReturnType<typeof createBatchEnrichment>;
