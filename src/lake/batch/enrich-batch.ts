import type { Dataset } from '../../datasets/dataset.ts';
import { findEnrichedGroups } from '../../datasets/enriched-columns.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import {
  agentBudgetMs,
  forgetLookUps,
  lookUpRows,
  type EnrichedRows,
  type EnrichedSelect,
} from '../files/enriched-rows.ts';
import type { Enricher } from '../files/enricher.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';

/**
 * Writes the rows of `batch` with what their addresses and User-Agents say. Whatever goes wrong with that, the rows are
 * written without it, and the enricher is told. Errors: those of `write` without enrichment.
 */
export async function writeEnriched<T extends object>(
  duckdb: Duckdb,
  enricher: Enricher | undefined,
  dataset: Dataset,
  write: (select: EnrichedSelect | undefined) => Promise<T>,
): Promise<T> {
  if (enricher === undefined) return write(undefined);
  try {
    const found = await lookUpBatch(duckdb, enricher, dataset);
    const written = await write(found?.select).catch((error: unknown) => {
      // The rows without it would meet the same disk: only the engine has more to do with it than without.
      if (found?.select === undefined || !(isAppError(error, 'memory') || isAppError(error, 'sql'))) throw error;
      enricher.failed(error);
      return undefined;
    });
    if (written === undefined) return await write(undefined);
    if (found?.isCutShort === true)
      enricher.failed(new AppError('overloaded', `the User-Agents of a batch took more than ${agentBudgetMs} ms`));
    else if (found !== undefined) enricher.passed();
    return written;
  } finally {
    await forgetLookUps(duckdb);
  }
}

/** Looks up what the rows of `batch` say; undefined, and the enricher is told, where that fails. Error: `disk`. */
async function lookUpBatch(duckdb: Duckdb, enricher: Enricher, dataset: Dataset): Promise<EnrichedRows | undefined> {
  const source = `(SELECT * FROM batch WHERE NOT bad AND kind IN (${dataset.kinds.map(sqlText).join(', ')}))`;
  try {
    await enricher.refresh();
    // An imported event says nothing of a place or a device itself: only the service fills these columns.
    return await lookUpRows(duckdb, enricher, { source, groups: findEnrichedGroups(dataset), has: () => false });
  } catch (error) {
    if (isAppError(error, 'disk')) throw error;
    enricher.failed(error);
    return undefined;
  }
}
