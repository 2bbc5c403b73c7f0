import type { Dataset } from '../../datasets/dataset.ts';
import { findEnrichedGroups } from '../../datasets/enriched-columns.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import { agentBudgetMs, forgetLookUps, lookUpRows, type EnrichedSelect } from '../files/enriched-rows.ts';
import type { Enricher } from '../files/enricher.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';

/**
 * Writes the rows of `batch` with what their addresses and User-Agents say. Whatever goes wrong with that, the rows are
 * written without it, and the enricher is told. Errors: those of `write` without enrichment.
 */
export async function writeEnriched<T>(
  duckdb: Duckdb,
  enricher: Enricher | undefined,
  dataset: Dataset,
  write: (select: EnrichedSelect | undefined) => Promise<T>,
): Promise<T> {
  if (enricher === undefined) return write(undefined);
  const source = `(SELECT * FROM batch WHERE NOT bad AND kind IN (${dataset.kinds.map(sqlText).join(', ')}))`;
  try {
    await enricher.refresh();
    // An imported event says nothing of a place or a device itself: only the service fills these columns.
    const rows = { source, groups: findEnrichedGroups(dataset), has: () => false };
    const { select, isCutShort } = await lookUpRows(duckdb, enricher, rows);
    const written = await write(select);
    if (isCutShort)
      enricher.failed(new AppError('overloaded', `the User-Agents of a batch took more than ${agentBudgetMs} ms`));
    else enricher.passed();
    return written;
  } catch (error) {
    // A full disk would meet the rows without it as well.
    if (isAppError(error, 'disk')) throw error;
    enricher.failed(error);
    return await write(undefined);
  } finally {
    await forgetLookUps(duckdb);
  }
}
