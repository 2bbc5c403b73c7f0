import { events } from '../datasets/dataset.ts';
import { listFailedFiles, readFailedFile, type FailedEvent, type FailureReason } from '../lake/files/failed-events.ts';
import { recoverChanges } from '../lake/files/change.ts';
import { addErasedIds, readOwnedId, valuesSql } from '../lake/find/erased-ids.ts';
import { lakePaths } from '../lake/lake.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import { removeFailed, type EraseAsideDependencies } from './erase/erase-aside.ts';

/** Which failed events of the imports are meant; bad rows of loads never are. Absent members: any. */
export interface FailedFilter {
  readonly reason?: FailureReason | undefined;
  readonly idApp?: number | undefined;
}

const lockWaitMs = 120_000;
/** Ids in one query. */
const idsAtOnce = 20_000;

function isMeant({ line, load, reason }: FailedEvent, filter: FailedFilter): boolean {
  return (
    load === undefined &&
    (filter.reason === undefined || filter.reason === reason) &&
    (filter.idApp === undefined || filter.idApp === readOwnedId(line)?.idApp)
  );
}

/** Reads the failed events of the imports that a filter means. */
export async function readFailedEvents(lakeDir: string, filter: FailedFilter): Promise<FailedEvent[]> {
  const { failed, table } = lakePaths(lakeDir);
  const found: FailedEvent[] = [];
  if (!(await exists(failed))) return found;
  for (const file of await listFailedFiles(failed, table))
    for (const event of await readFailedFile(file)) if (isMeant(event, filter)) found.push(event);
  return found;
}

/**
 * Removes failed events for good, beside a running compactor. They count as erased, and are answered so where an event
 * is asked for. Returns how many. A kill leaves them all, or none. Errors: `locked`, `file_damaged`, `disk`.
 */
export async function dropFailed(dependencies: EraseAsideDependencies, filter: FailedFilter): Promise<number> {
  const { table, lakeDir } = dependencies;
  const paths = lakePaths(lakeDir);
  const lock = await waitForLock(paths.maintenanceLock, 'the removal of failed events', lockWaitMs);
  try {
    await table.refresh();
    await recoverChanges(table, paths.staging);
    const ids = (await readFailedEvents(lakeDir, filter)).flatMap(({ line }) => readOwnedId(line) ?? []);
    const selects: string[] = [];
    for (let at = 0; at < ids.length; at += idsAtOnce) selects.push(valuesSql(ids.slice(at, at + idsAtOnce)));
    if (ids.length > 0) await addErasedIds(dependencies, paths, selects);
    return await removeFailed({ ...dependencies, dataset: events }, 'drop', (event) => isMeant(event, filter));
  } finally {
    lock.release();
  }
}
