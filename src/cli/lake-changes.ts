import { pruneFiles } from '../lake/files/prune.ts';
import { findSinceMs, nextPlace, parsePlace } from '../lake/log/change-feed.ts';
import { openDuckdb } from '../lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../lake/sql/literals.ts';
import { readMarkedSnapshot } from '../lake/watermark.ts';
import { machineClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';

/** What came to a table since a place in its history. */
export interface Changes {
  /** The version that was read. */
  readonly version: number;
  readonly rows: number;
  /** SQL that gives the rows, for as long as the files that it names are there: the retention. */
  readonly sql: string;
  /** The place to ask from next time. */
  readonly next: string;
  /**
   * Every event that was acknowledged before this is in the version, ISO 8601, by the broker's clock; absent where that
   * is not known, as of a table that gets no imported events.
   */
  readonly watermark?: string;
}

/**
 * Finds what came to a table since a place, or everything. Errors: `usage` for a text that is no place, those of
 * `findSinceMs`.
 */
export async function readChanges(tableDir: string, since: string | undefined): Promise<Changes> {
  const place = parsePlace(since ?? '0');
  if (place === undefined)
    throw new AppError('usage', `'${since}' is no place in the history of a table`, {
      hint: "Give a version, or what the last answer of 'tributary lake changes' has as next.",
    });
  const { snapshot, watermarkMs } = await readMarkedSnapshot(tableDir, machineClock);
  const sinceMs = since === undefined ? 0 : await findSinceMs(place, snapshot);
  const kept = pruneFiles(snapshot.files, { availableAt: { fromMs: sinceMs } }).map(({ absolutePath }) => absolutePath);
  const files = snapshot.version < 0 ? [] : [snapshot.emptyFile, ...kept];
  const named = {
    next: nextPlace(snapshot),
    ...(watermarkMs === undefined ? {} : { watermark: new Date(watermarkMs).toISOString() }),
  };
  const version = Math.max(snapshot.version, 0);
  if (files.length === 0) return { version, rows: 0, sql: 'SELECT 1 WHERE false', ...named };
  const from = `read_parquet(${sqlList(files)}, union_by_name = true, hive_partitioning = false)`;
  const where = `available_at > TIMESTAMPTZ ${sqlText(new Date(sinceMs).toISOString())}`;
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    const [counted] = await duckdb.rows(`SELECT count(*) AS n FROM ${from} WHERE ${where}`);
    return { version, rows: Number(counted?.['n']), sql: `SELECT * FROM ${from} WHERE ${where}`, ...named };
  } finally {
    duckdb.close();
  }
}
