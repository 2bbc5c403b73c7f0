import { openDuckdb, type Duckdb, type DuckdbOptions } from '../../lake/sql/duckdb.ts';

/** An engine that can be replaced: an internal error spoils one for good. */
export interface ReplaceableEngine {
  get(): Duckdb;
  /** Opens another in its place; where that fails, it stays. */
  replace(): Promise<void>;
}

/** Opens one. Errors: those of `openDuckdb`. */
export async function openReplaceable(options: DuckdbOptions): Promise<ReplaceableEngine> {
  let duckdb = await openDuckdb(options);
  return {
    get: () => duckdb,
    async replace() {
      const fresh = await openDuckdb(options).catch(() => undefined);
      if (fresh === undefined) return;
      duckdb.close();
      duckdb = fresh;
    },
  };
}
