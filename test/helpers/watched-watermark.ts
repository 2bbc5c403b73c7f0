import path from 'node:path';
import { pruneFiles } from '../../src/lake/files/prune.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { readWatermarkMs } from '../../src/lake/watermark.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { query } from './lake.ts';
import type { Ledger } from './ledger.ts';

/** Compares the watermark of a running service's lake with the acknowledgements of its clients. */
export interface WatchedWatermark {
  /** Returns the ledger, extended to record the time of each acknowledgement. */
  watch(ledger: Ledger): Ledger;
  /** Reads once. Returns the missing events that were acknowledged before the watermark. */
  findEarly(): Promise<readonly string[]>;
  /** Returns the number of events acknowledged before a seen watermark, and the number of reads with one. */
  figures(): { readonly watermarks: number; readonly eventsBeforeWatermarks: number };
}

/** Limit of the time between the commit of an event and its client's response, ms. */
const longestAnswerMs = 300_000;
const columns = { events: 'custom_event_name', payments: 'id_transaction' };

/**
 * Creates it for a lake whose broker has the clock of this machine. It reads the watermark before the tables. Events
 * found once are not checked again.
 */
export function watchWatermark(lakeDir: string): WatchedWatermark {
  const clock = createClock(0);
  /** Times at which the clients had their responses: never earlier than the broker's clock showed. */
  const answeredMs = new Map<string, number>();
  let watermarks = 0;
  /** The last watermark: events that were acknowledged before it have been found. */
  let checkedMs = -Infinity;
  let eventsBeforeWatermarks = 0;

  /** Returns the names that have no row. A row became available after `fromMs`, so that other files are not read. */
  async function findMissing(names: readonly string[], fromMs: number): Promise<string[]> {
    let missing = names;
    for (const [table, column] of Object.entries(columns)) {
      const { files } = await readSnapshot(path.join(lakeDir, table));
      const later = pruneFiles(files, { availableAt: { fromMs } });
      if (later.length === 0 || missing.length === 0) continue;
      const list = sqlList(later.map(({ absolutePath }) => absolutePath));
      const rows = await query(
        `SELECT name FROM (SELECT unnest(${sqlList(missing)}) AS name)
         ANTI JOIN (SELECT ${column} AS name FROM read_parquet(${list}, hive_partitioning = false)) USING (name)`,
      );
      missing = rows.map((row) => String(row['name']));
    }
    return [...missing];
  }

  return {
    watch: (ledger) => ({
      ...ledger,
      record(ids, outcome) {
        ledger.record(ids, outcome);
        if (outcome === 'acknowledged') for (const id of ids) answeredMs.set(id, clock.nowMs());
      },
    }),
    async findEarly() {
      const watermarkMs = await readWatermarkMs(lakeDir, clock);
      if (watermarkMs === undefined) return [];
      const due = [...answeredMs].filter(([, ms]) => ms < watermarkMs).map(([id]) => id);
      const early = due.length === 0 ? [] : await findMissing(due, checkedMs - longestAnswerMs);
      watermarks += 1;
      checkedMs = watermarkMs;
      for (const id of due) answeredMs.delete(id);
      eventsBeforeWatermarks += due.length;
      return early;
    },
    figures: () => ({ watermarks, eventsBeforeWatermarks }),
  };
}
