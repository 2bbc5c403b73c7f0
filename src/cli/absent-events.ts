import { createErasedIdsSearch, wasErased, type ErasedIds } from '../lake/find/erased-ids.ts';
import { lakePaths } from '../lake/lake.ts';
import type { Snapshot } from '../lake/log/snapshot.ts';
import { openDuckdb } from '../lake/sql/duckdb.ts';
import { isAppError } from '../runtime/errors.ts';
import type { Receipt, ReceiptEvent } from '../receipts/receipt.ts';

/** What is said of an event of a receipt that is neither in a table nor failed. */
export interface Absence {
  readonly state: 'pending' | 'erased' | 'missing';
  readonly reason?: string;
}

/** The versions in which an event is not: of the table of the events, and of the one that it should be in. */
export interface WithoutEvent {
  readonly log: Snapshot;
  readonly table: Snapshot;
}

/**
 * What is said of one that is not among the ids that were erased. `isComplete`: every id is that was erased, of those
 * with a receipt at least.
 */
function judgeUnerased({ group }: Receipt, { log, table }: WithoutEvent, isComplete: boolean): Absence {
  const epoch = log.lake?.epoch;
  if (epoch === undefined) return { state: 'pending' };
  if (epoch.streamId !== group.stream)
    return { state: 'missing', reason: `the lake follows another stream by now, ${epoch.streamId}` };
  const { restoredFrom } = log.lake ?? {};
  if (group.sequence > epoch.position)
    // What the stream had by then that the lake had not was in the backup too, and has been taken in.
    return restoredFrom === undefined
      ? { state: 'pending' }
      : {
          state: 'missing',
          reason: `the lake was restored from the backup of ${restoredFrom}, which does not have it`,
        };
  const read = `the lake has read the stream up to ${epoch.position}`;
  const erased = table.lake?.totals.erased ?? 0;
  if (erased === 0) return { state: 'missing', reason: `${read}, and nothing was erased` };
  if (isComplete) return { state: 'missing', reason: `${read}, and its id is not among those that were erased` };
  return { state: 'erased', reason: `${read}, ${erased} events were erased from the table, and which is not known` };
}

/**
 * Says of each event of a receipt that is in no table and has not failed what became of it, by its id; to be asked after
 * both were looked at, since an erasure writes down the hash of an id before the row goes. Where the hashes are missing or
 * damaged, which ids were erased is not known.
 */
export async function judgeAbsent(
  lakeDir: string,
  receipt: Receipt,
  absent: readonly ReceiptEvent[],
  without: WithoutEvent,
): Promise<ReadonlyMap<string, Absence>> {
  const absences = new Map<string, Absence>();
  if (absent.length === 0) return absences;
  const { idApp } = receipt;
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    // Hashes are kept for longer than receipts are given.
    const erased = await createErasedIdsSearch(lakePaths(lakeDir))().catch((error: unknown): ErasedIds => {
      if (!isAppError(error, 'file_damaged')) throw error;
      return { file: undefined, isComplete: false };
    });
    for (const { eventId } of absent) {
      const isErased = await wasErased(duckdb, erased, { idApp, eventId }, [idApp]);
      absences.set(eventId, isErased ? { state: 'erased' } : judgeUnerased(receipt, without, erased.isComplete));
    }
  } finally {
    duckdb.close();
  }
  return absences;
}
