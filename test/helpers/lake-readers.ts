import path from 'node:path';
import { expect } from 'vitest';
import { openDuckdb, sqlList, type Duckdb } from '../../src/lake/duckdb.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/snapshot.ts';

/** Readers at work; `stop` throws what they found wrong. */
export interface LakeReaders {
  stop(): Promise<void>;
  reads(): number;
}

async function count(duckdb: Duckdb, source: string): Promise<{ rows: number; ids: number }> {
  const [row] = await duckdb.rows(`SELECT count(*)::INT AS rows, count(DISTINCT event_id)::INT AS ids FROM ${source}`);
  return row as unknown as { rows: number; ids: number };
}

/**
 * Reads the lake over and over through the snapshot and through the glob, and checks each time that no row is doubled and
 * none has gone since the time before. While `isErasing` holds nothing is checked: an erasure unlinks files at once.
 */
export function startLakeReaders(folder: string, isErasing: () => boolean): LakeReaders {
  const aborter = new AbortController();
  const last = { snapshot: 0, glob: 0 };
  let reads = 0;
  const glob = path.join(folder, 'lake', 'events', 'kind=*', 'date=*', '*.parquet');

  async function readOnce(duckdb: Duckdb): Promise<void> {
    const erasing = isErasing();
    const snapshot = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
    if (snapshot.version < 0) return;
    const list = sqlList([snapshot.emptyFile, ...snapshot.files.map((file) => file.absolutePath)]);
    const sources = { snapshot: `read_parquet(${list}, union_by_name = true, hive_partitioning = false)`, glob: `read_parquet('${glob}')` };
    for (const name of ['snapshot', 'glob'] as const) {
      const found = await count(duckdb, sources[name]).catch((error: unknown) => {
        // Before the first seal the glob matches nothing, which DuckDB calls an error.
        if (erasing || isErasing() || (name === 'glob' && last.glob === 0 && String(error).includes('No files found'))) return undefined;
        throw error;
      });
      if (found === undefined || erasing || isErasing()) {
        last[name] = 0;
        continue;
      }
      expect(found.ids, `${name}: rows are doubled`).toBe(found.rows);
      expect(found.rows, `${name}: rows are gone`).toBeGreaterThanOrEqual(last[name]);
      last[name] = found.rows;
      reads += 1;
    }
  }

  async function run(): Promise<void> {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    try {
      while (!aborter.signal.aborted) await readOnce(duckdb);
    } finally {
      duckdb.close();
    }
  }

  const running = run();
  running.catch(() => undefined);
  return {
    async stop() {
      aborter.abort();
      await running;
    },
    reads: () => reads,
  };
}
