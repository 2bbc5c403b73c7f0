import { keyWindowMs } from '../../datasets/event-id.ts';
import { pruneFiles } from '../files/prune.ts';
import { assertFilesWhole } from '../files/data-file.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import type { BatchLookUp, JudgedBatch, LoadedBatch } from './batch-tables.ts';

/** Judges one batch of events that failed before, which may be of any age, by what the lake's files have. */
export interface LakeLookUp {
  /**
   * Judges the batch by the newest version of the table. Called again, it reads only the files that came since: under
   * the maintenance lock none goes, as nothing but flushes changes the table. Errors: `file_damaged` when a file that
   * may have one of the events is damaged, and those of `refresh`.
   */
  judge(batch: LoadedBatch): Promise<JudgedBatch>;
}

const hourMs = 3_600_000;

/** Adds what some files have under the keys of the batch. */
async function loadKeys(lookUp: BatchLookUp, files: readonly DataFile[]): Promise<void> {
  const wanted = new Set<DataFile>();
  for (const hour of await lookUp.keyedHours(hourMs)) {
    const receivedAt = { fromMs: hour - keyWindowMs, toMs: hour + hourMs + keyWindowMs };
    for (const file of pruneFiles(files, { receivedAt })) if (file.keyless !== true) wanted.add(file);
  }
  if (wanted.size === 0) return;
  // A key that a damaged file no longer shows would be stored again.
  await assertFilesWhole([...wanted]);
  await lookUp.addOwnKeys([...wanted]);
}

/** Creates the look-up of one batch; the known keys of its tables are of no other. */
export function createLakeLookUp(table: Table): LakeLookUp {
  const known = new Set<string>();
  return {
    judge: (batch) =>
      batch.judge({
        rule: 'failed',
        async load(lookUp) {
          await table.refresh();
          const news = table.snapshot().files.filter((file) => !known.has(file.path));
          await lookUp.lookUpEvents(news);
          await loadKeys(lookUp, news);
          for (const file of news) known.add(file.path);
        },
      }),
  };
}
