import path from 'node:path';
import { expect } from 'vitest';
import { openDuckdb, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { pause, retry } from '../../src/runtime/async/retry.ts';
import { isLongRun } from './chaos.ts';
import { readFeed } from './feed.ts';

/** Running readers; `stop` throws their first finding. */
export interface LakeReaders {
  stop(): Promise<void>;
  reads(): number;
  /** Reads of the glob that were repeated, because a listed file was replaced before it was opened. */
  repeats(): number;
}

const repeatMs = 5000;
const isReplaced = (error: unknown): boolean => /Thrift|Invalid|TProtocol|corrupt|No such file/i.test(String(error));

const betweenReadsMs = isLongRun ? 50 : 250;

interface Count {
  readonly rows: number;
  readonly ids: number;
  readonly kept: number;
}

async function count(duckdb: Duckdb, source: string, kept: string): Promise<Count> {
  const [row] = await duckdb.rows(
    `SELECT count(*)::INT AS rows, count(DISTINCT event_id)::INT AS ids, (count(*) FILTER (WHERE ${kept}))::INT AS kept FROM ${source}`,
  );
  return row as unknown as Count;
}

/**
 * Reads the lake repeatedly through the snapshot and through the glob. Asserts each time that no file is missing, no
 * row is duplicated, and no earlier row is missing. The changes from version to version must return every row once.
 * `kept`: SQL that is true for rows that no erasure removes.
 */
export function startLakeReaders(folder: string, kept = 'true'): LakeReaders {
  const aborter = new AbortController();
  const last = { snapshot: 0, glob: 0 };
  let reads = 0;
  let repeats = 0;
  const feed = { since: undefined as string | undefined, seen: new Set<string>() };
  const glob = path.join(folder, 'lake', 'events', 'kind=*', 'date=*', '*.parquet');

  async function readOnce(duckdb: Duckdb): Promise<void> {
    const snapshot = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
    if (snapshot.version < 0) return;
    const list = sqlList([snapshot.emptyFile, ...snapshot.files.map((file) => file.absolutePath)]);
    const sources = {
      snapshot: `read_parquet(${list}, union_by_name = true, hive_partitioning = false)`,
      glob: `read_parquet('${glob}')`,
    };
    for (const name of ['snapshot', 'glob'] as const) {
      const read = () => count(duckdb, sources[name], kept);
      const found = await read().catch(async (error: unknown) => {
        // DuckDB opens a file of the glob again for each thread: its rewrite may replace it in between.
        if (name === 'glob' && isReplaced(error)) {
          repeats += 1;
          // Several files may be replaced or removed one after the other.
          return await retry(read, { forMs: repeatMs, everyMs: 100, retryable: isReplaced });
        }
        // Before the first seal the glob matches nothing, which DuckDB reports as an error.
        if (name === 'glob' && last.glob === 0 && String(error).includes('No files found')) return undefined;
        throw error;
      });
      if (found === undefined) continue;
      expect(found.ids, `${name}: rows are doubled`).toBe(found.rows);
      expect(found.kept, `${name}: rows are missing`).toBeGreaterThanOrEqual(last[name]);
      last[name] = found.kept;
      reads += 1;
    }
  }

  /** Reads the changes since the last read version, and asserts that no row is repeated. */
  async function readChanges(): Promise<void> {
    const { ids, next } = await readFeed(lakePaths(path.join(folder, 'lake')).table, feed.since);
    for (const id of ids) {
      expect(feed.seen.has(id), `feed: ${id} came before ${feed.since}, and again`).toBe(false);
      feed.seen.add(id);
    }
    feed.since = next;
  }

  /** Asserts that all changes together were all the rows. */
  async function endChanges(): Promise<void> {
    await readChanges();
    const { ids } = await readFeed(lakePaths(path.join(folder, 'lake')).table, undefined);
    expect(
      ids.filter((id) => !feed.seen.has(id)),
      'feed: rows were not delivered',
    ).toEqual([]);
  }

  async function run(): Promise<void> {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    try {
      while (!aborter.signal.aborted) {
        await readOnce(duckdb);
        await readChanges();
        // Leaves the two processor cores to the tested code.
        await pause(betweenReadsMs, aborter.signal);
      }
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
      await endChanges();
    },
    reads: () => reads,
    repeats: () => repeats,
  };
}
