import path from 'node:path';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { readWatermarkMs } from '../../src/lake/watermark.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { query } from './lake.ts';
import type { Ledger } from './ledger.ts';

/** Holds the watermark of a running service's lake against what its clients were told, and when. */
export interface WatchedWatermark {
  /** The ledger, with the time of each acknowledgement. */
  watch(ledger: Ledger): Ledger;
  /** Looks once. Returns the events that were acknowledged before the watermark and are not there. */
  findEarly(): Promise<readonly string[]>;
  /** How many events were acknowledged before a watermark that was seen, and how many looks found one. */
  figures(): { readonly watermarks: number; readonly eventsBeforeWatermarks: number };
}

const columns = { events: 'custom_event_name', payments: 'id_transaction' };

/**
 * Creates it for a lake whose broker has the clock of this machine. The watermark is read first, and the tables after it.
 * Events that were found once are not looked for again.
 */
export function watchWatermark(lakeDir: string): WatchedWatermark {
  const clock = createClock(0);
  /** When the clients had their answers: never before the broker's clock showed it. */
  const answeredMs = new Map<string, number>();
  let watermarks = 0;
  let eventsBeforeWatermarks = 0;

  async function readNames(): Promise<Set<string>> {
    const names = new Set<string>();
    for (const [table, column] of Object.entries(columns)) {
      const { files } = await readSnapshot(path.join(lakeDir, table));
      if (files.length === 0) continue;
      const list = sqlList(files.map(({ absolutePath }) => absolutePath));
      const rows = await query(`SELECT ${column} AS name FROM read_parquet(${list}, hive_partitioning = false)`);
      for (const row of rows) names.add(String(row['name']));
    }
    return names;
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
      const names = await readNames();
      watermarks += 1;
      const early = due.filter((id) => !names.has(id));
      for (const id of due) answeredMs.delete(id);
      eventsBeforeWatermarks += due.length;
      return early;
    },
    figures: () => ({ watermarks, eventsBeforeWatermarks }),
  };
}
