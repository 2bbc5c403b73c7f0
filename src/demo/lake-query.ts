import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { openDuckdb, type Duckdb, type SqlRow } from '../lake/sql/duckdb.ts';

/** Reads the lake as any DuckDB does: through `lake/snapshot.sql`, each query on the newest commit. */
export interface LakeReader {
  /** Runs a query over the views of snapshot.sql. */
  query(sql: string): Promise<SqlRow[]>;
  /** Runs a query that needs no lake, as over a downloaded file. */
  plain(sql: string): Promise<SqlRow[]>;
  close(): void;
}

/** Opens a reader of the lake in a data folder; the service may be running. */
export async function openLakeReader(dataDir: string): Promise<LakeReader> {
  const duckdb: Duckdb = await openDuckdb({ memoryMb: 1024, threads: 2 });
  const snapshotSql = await readFile(path.join(dataDir, 'lake', 'snapshot.sql'), 'utf8');
  return {
    async query(sql) {
      await duckdb.run(snapshotSql);
      return duckdb.rows(sql);
    },
    plain: (sql) => duckdb.rows(sql),
    close: () => duckdb.close(),
  };
}
