import type { Dataset } from '../../../datasets/dataset.ts';
import { pruneFiles, type FileFilter } from '../../../lake/files/prune.ts';
import { tablePaths } from '../../../lake/lake.ts';
import { readSnapshot, type DataFile, type Snapshot } from '../../../lake/log/snapshot.ts';
import type { DataPlan, DateSpan } from '../../jobs/data-messages.ts';

/** The files of one table that may have rows that are asked for. */
export interface Chosen {
  readonly table: string;
  readonly snapshot: Snapshot;
  readonly files: readonly DataFile[];
}

/** Chooses files of the newest version by the log's statistics. Errors: those of `readSnapshot`. */
export async function chooseFiles(
  { lakeDir, apps }: DataPlan,
  dataset: Dataset,
  { from, to }: DateSpan,
  kinds?: FileFilter['kinds'],
): Promise<Chosen> {
  const snapshot = await readSnapshot(tablePaths(lakeDir, dataset).table);
  const eventTime = { fromMs: Date.parse(`${from}T00:00:00Z`), toMs: Date.parse(`${to}T23:59:59.999Z`) };
  const filter = { idApps: apps.map(({ idApp }) => idApp), eventTime, ...(kinds === undefined ? {} : { kinds }) };
  return { table: dataset.table, snapshot, files: apps.length === 0 ? [] : pruneFiles(snapshot.files, filter) };
}
