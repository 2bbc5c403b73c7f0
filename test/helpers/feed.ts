import { expect } from 'vitest';
import { pruneFiles } from '../../src/lake/files/prune.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { findSinceMs, nextCursor, parseCursor } from '../../src/lake/log/change-feed.ts';
import type { DataFile } from '../../src/lake/log/snapshot.ts';
import { readSnapshotWithWatermark } from '../../src/lake/watermark.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { query } from './lake.ts';

/** Result of one call of a change feed. */
export interface Feed {
  readonly version: number;
  /** The cursor of the next call. */
  readonly next: string;
  readonly ids: readonly string[];
}

/** A reader that follows a change feed. */
export interface FeedChain {
  since: string | undefined;
  readonly seen: Set<string>;
  calls: number;
}

/** The rows of a data file, read once, by its name and the hash of its bytes. */
type Rows = readonly { readonly id: string; readonly availableAtMs: number }[];
const known = new Map<string, Promise<Rows>>();

async function readFileRows({ absolutePath }: DataFile): Promise<Rows> {
  const rows = await query(
    `SELECT event_id, epoch_ms(available_at) AS ms FROM read_parquet(${sqlList([absolutePath])}, hive_partitioning = false)`,
  );
  return rows.map((row) => ({ id: String(row['event_id']), availableAtMs: Number(row['ms']) }));
}

/**
 * Opens the change feed of one version of a table for many readers at once: the rows that `lake changes` and an export
 * would read, each file once.
 */
export async function openFeed(tableDir: string) {
  const { snapshot, watermarkMs } = await readSnapshotWithWatermark(tableDir, createClock(0));
  const answers = new Map<string | undefined, Promise<readonly string[]>>();

  async function readSince(since: string | undefined): Promise<readonly string[]> {
    const place = parseCursor(since ?? '0');
    const sinceMs = place === undefined || since === undefined ? 0 : await findSinceMs(place, snapshot);
    const ids: string[] = [];
    for (const file of pruneFiles(snapshot.files, { availableAt: { fromMs: sinceMs } })) {
      const key = `${file.absolutePath} ${file.sha256}`;
      const rows = known.get(key) ?? readFileRows(file);
      known.set(key, rows);
      ids.push(...(await rows).flatMap(({ id, availableAtMs }) => (availableAtMs > sinceMs ? [id] : [])));
    }
    return ids;
  }

  function sinceOnce(since: string | undefined): Promise<readonly string[]> {
    const answer = answers.get(since) ?? readSince(since);
    answers.set(since, answer);
    return answer;
  }

  return {
    watermarkMs,
    next: nextCursor(snapshot),
    since: sinceOnce,
    /** Compares with an export, unless the table has changed. */
    async compareWithExport(since: string | undefined): Promise<void> {
      const feed = await readFeed(tableDir, since);
      if (feed.version === Math.max(snapshot.version, 0))
        expect(feed.ids.toSorted()).toEqual([...(await sinceOnce(since))].toSorted());
    },
  };
}

/** Reads the rows that a table got since a cursor, or all, of all apps and kinds, as an export finds them. */
export async function readFeed(tableDir: string, since: string | undefined): Promise<Feed> {
  const { snapshot } = await readSnapshotWithWatermark(tableDir, createClock(0));
  const place = since === undefined ? undefined : parseCursor(since);
  const sinceMs = (place === undefined ? undefined : await findSinceMs(place, snapshot)) ?? 0;
  const { version, emptyFile, files } = snapshot;
  const found = { version: Math.max(version, 0), next: nextCursor(snapshot) };
  if (version < 0) return { ...found, ids: [] };
  const kept = pruneFiles(files, { availableAt: { fromMs: sinceMs } }).map(({ absolutePath }) => absolutePath);
  const rows = await query(
    `SELECT event_id FROM read_parquet(${sqlList([emptyFile, ...kept])}, union_by_name = true, hive_partitioning = false)
     WHERE available_at > make_timestamptz(${sinceMs} * 1000)`,
  );
  return { ...found, ids: rows.map((row) => String(row['event_id'])) };
}
