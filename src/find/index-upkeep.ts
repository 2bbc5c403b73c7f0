import { pause } from '../runtime/async/retry.ts';
import { type DatasetTable, mayHoldHashed } from '../lake/find/find-rows.ts';
import type { IdIndex } from '../lake/find/id-index.ts';
import type { DataFile } from '../lake/log/snapshot.ts';
import { type Duckdb, type DuckdbOptions, openDuckdb } from '../lake/sql/duckdb.ts';

interface IndexUpkeepOptions {
  /** Of a separate engine: lookups do not wait for it. */
  readonly engine: DuckdbOptions;
  /** Reports whether lookups may be waiting for the index. */
  readonly isAsked?: () => boolean;
}

/** Maintains the index of ids: indexes new files, removes unneeded parts, merges small ones. */
interface IndexUpkeep {
  /**
   * Processes new versions of the tables. Errors: of the first file that cannot be indexed, after the others and the
   * merges.
   */
  run(index: IdIndex, tables: readonly DatasetTable[], signal: AbortSignal): Promise<void>;
}

/** Pauses as multiples of the work, so that flushes are not slowed down. */
const restsFor = { asked: 1, otherwise: 4 } as const;

export function createIndexUpkeep({ engine, isAsked }: IndexUpkeepOptions): IndexUpkeep {
  /** Versions that the index is of. */
  let keptUpTo = '';

  const rest = (workedMs: number, signal: AbortSignal): Promise<void> =>
    pause(workedMs * (isAsked?.() === true ? restsFor.asked : restsFor.otherwise), signal);

  async function addAll(duckdb: Duckdb, index: IdIndex, files: readonly DataFile[], signal: AbortSignal) {
    const failures: unknown[] = [];
    for (const file of files) {
      if (signal.aborted) break;
      const startedAt = performance.now();
      await index.add(duckdb, file).catch((error: unknown) => failures.push(error));
      await rest(performance.now() - startedAt, signal);
    }
    return failures;
  }

  return {
    async run(index, tables, signal) {
      const upTo = JSON.stringify(tables.map(({ dataset, snapshot }) => [dataset.table, snapshot.version]));
      if (upTo === keptUpTo) return;
      const live = tables.flatMap(({ dataset, snapshot }) =>
        snapshot.files.filter((file) => mayHoldHashed(dataset, file)),
      );
      const duckdb = await openDuckdb(engine);
      try {
        const failures = await addAll(duckdb, index, await index.keepOnly(duckdb, live), signal);
        for (const merge of index.planMerges(live)) {
          if (signal.aborted) return;
          const startedAt = performance.now();
          await index.merge(duckdb, merge);
          await rest(performance.now() - startedAt, signal);
        }
        if (failures.length > 0) throw failures[0];
      } finally {
        duckdb.close();
      }
      if (signal.aborted) return;
      keptUpTo = upTo;
    },
  };
}
