import path from 'node:path';
import { getExport } from '../../datasets/dataset.ts';
import { machineClock } from '../../runtime/clock.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import { findSize, linkOrCopy } from '../../runtime/files/file-checks.ts';
import type { RecordedFile } from '../../runtime/store/file-records.ts';
import { findStoredSize, localFiles } from '../../runtime/store/open-store.ts';
import { assertFilesIntact } from '../../lake/files/data-file.ts';
import { isLocalIntact, type RowsRead } from '../../lake/files/row-group-hashes.ts';
import { assertListed, erasureListFile } from '../../lake/event-index/erasure-list.ts';
import { findSinceMs, nextCursor, parseCursor } from '../../lake/log/change-feed.ts';
import { readCommit } from '../../lake/log/log-files.ts';
import { readSnapshot, type DataFile, type Snapshot } from '../../lake/log/snapshot.ts';
import { upgradeSchema } from '../../lake/table-schema.ts';
import { readSnapshotWithWatermark, type SnapshotWithWatermark } from '../../lake/watermark.ts';
import type { ReportVersion } from '../../reports/reports.ts';
import type { ReadPlan, WorkerPlan } from '../jobs/worker-messages.ts';
import { neededFiles } from './query.ts';
import { LimitError } from './watch-statement.ts';

/** The version of the table that a request reads. */
export interface ReadVersion extends SnapshotWithWatermark {
  /** Only rows that became available later, Unix ms; undefined: all. */
  readonly sinceMs: number | undefined;
}

/** Runs work for a parameter; a version that is not kept ends the request with a message for its user. */
async function forUser<T>(parameter: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isAppError(error, 'not_found')) throw error;
    throw new LimitError(`${parameter}: ${error.message}${error.hint === undefined ? '' : `. ${error.hint}`}`);
  }
}

/**
 * Finds the version of a request, with the files that its query may read. Errors: `LimitError` if its versions are not
 * kept, `schema_change` if a column of the table differs from the dataset; those of `readSnapshot`.
 */
export async function resolveReadVersion({ tableDir, request, apps }: ReadPlan): Promise<ReadVersion> {
  const [asOf, since] = [request.asOf, request.sinceVersion].map((text) =>
    text === undefined ? undefined : parseCursor(text),
  );
  const idApps = apps.map(({ idApp }) => idApp);
  const needs = { idApps, needed: neededFiles(request, apps) };
  const marked = await forUser('asOf', () => readSnapshotWithWatermark(tableDir, machineClock, asOf, needs));
  const { snapshot } = marked;
  // A worker reads the datasets, which may be newer than the service.
  const { columns } = getExport(request.event).dataset;
  if (snapshot.schemaString !== undefined) upgradeSchema(snapshot.schemaString, columns);
  const sinceMs = since === undefined ? undefined : await forUser('sinceVersion', () => findSinceMs(since, snapshot));
  if (request.erasures !== true) return { ...marked, sinceMs };
  await forUser('sinceVersion', async () => assertListed(snapshot.lake, since?.version ?? 0));
  const list = snapshot.lake === undefined ? undefined : erasureListFile(tableDir, snapshot.lake);
  const files = list === undefined ? [] : [list];
  return { ...marked, snapshot: { ...snapshot, files, young: [] }, sinceMs: undefined };
}

/**
 * Compares files, or only the row groups of `rowsRead`, with their hashes. Errors: `file_damaged`; `LimitError` if only
 * an older version is affected, whose files were removed by the retention or replaced by rewrites.
 */
export async function assertReadVersionIntact(
  { request, apps }: ReadPlan,
  { tableDir }: Snapshot,
  files: readonly DataFile[],
  rowsRead: RowsRead | undefined,
): Promise<void> {
  const { asOf } = request;
  try {
    await assertFilesIntact(files, rowsRead);
  } catch (error) {
    if (asOf === undefined || !isAppError(error, 'file_damaged')) throw error;
    const live = new Map(
      (await readSnapshot(tableDir, neededFiles(request, apps))).files.map((file) => [file.path, file.sha256]),
    );
    const isLive = (file: DataFile): boolean => live.has(file.path) && live.get(file.path) === file.sha256;
    await assertFilesIntact(files.filter(isLive), rowsRead);
    throw new LimitError(`asOf: version ${asOf} is no longer available. Create the export without asOf`);
  }
}

/** Finds the commit time of the next version; undefined if there is none. */
async function findEndMs(tableDir: string, version: number): Promise<number | undefined> {
  const next = await readCommit(tableDir, version + 1).catch(() => undefined);
  return next?.actions.find(({ commitInfo }) => commitInfo !== undefined)?.commitInfo?.timestamp;
}

/**
 * Describes the version for responses. Its files are kept for the retention after the next commit; the newest version
 * at the start of the attempt at least from then on.
 */
export async function toReportVersion(
  { tableDir, retentionMs, begunMs }: ReadPlan,
  { snapshot, watermarkMs }: ReadVersion,
): Promise<ReportVersion> {
  const version = Math.max(snapshot.version, 0);
  const endMs = Math.min((await findEndMs(tableDir, version)) ?? begunMs, begunMs);
  return {
    version,
    nextSinceVersion: nextCursor(snapshot),
    keptUntilSeconds: Math.floor((endMs + retentionMs) / 1000),
    ...(snapshot.head === undefined ? {} : { head: snapshot.head }),
    ...(watermarkMs === undefined ? {} : { watermarkMs }),
  };
}

/** A file of rows that a statement reads besides those of the table; `groups` as in a data file. */
type PinnableFile = RecordedFile & Pick<DataFile, 'groups'>;

/**
 * Links a file into the work folder, where the locked engine may read it and no process removes it, and compares its
 * hash, or those of the row groups of `rowsRead`; returns the new path. Error: `file_damaged`, `retryable` if the file
 * was replaced or removed, since the next plan has another.
 */
export async function pinFile(list: PinnableFile, folder: string, name: string, rowsRead?: RowsRead): Promise<string> {
  const pinned = path.join(folder, name);
  try {
    await localFiles.use([list], ([local = '']) => linkOrCopy(local, pinned));
  } catch (error) {
    if ((await findStoredSize(list)) !== undefined) throw error;
    throw new AppError('file_damaged', `${list.absolutePath} is missing: it was removed or replaced`, {
      cause: error,
      retryable: true,
      hint: 'Create the export again, or restore the file from a backup.',
    });
  }
  await assertListIntact(list, pinned, rowsRead);
  return pinned;
}

async function assertListIntact(
  { absolutePath, sizeBytes, sha256, groups }: PinnableFile,
  at: string,
  rowsRead?: RowsRead,
): Promise<void> {
  if ((await findSize(at)) === sizeBytes && (await isLocalIntact(at, { sha256, groups }, rowsRead))) return;
  throw new AppError('file_damaged', `${absolutePath} is damaged: checksum mismatch`, {
    hint: 'Load its list again, or restore the file from a backup.',
  });
}

const listsOf = ({ segment, titles }: ReadPlan): RecordedFile[] => [segment, titles].flatMap((list) => list ?? []);

/** Returns a plan with other paths of its lists. */
function withListPaths<P extends ReadPlan>(plan: P, paths: ReadonlyMap<RecordedFile, string>): P {
  const { segment, titles } = plan;
  const moved = <L extends RecordedFile>(list: L): L => ({ ...list, absolutePath: paths.get(list) ?? '' });
  return { ...plan, ...(segment && { segment: moved(segment) }), ...(titles && { titles: moved(titles) }) };
}

/** Links the lists of a plan into the work folder; returns the plan with the new paths. Errors: those of `pinFile`. */
export async function pinLists(plan: WorkerPlan, tempDir: string): Promise<WorkerPlan> {
  const paths = new Map<RecordedFile, string>();
  for (const list of listsOf(plan)) paths.set(list, await pinFile(list, tempDir, `list-${paths.size}.parquet`));
  return withListPaths(plan, paths);
}

/** Runs work with a plan that has local paths of its lists, whose hashes were compared. Error: `file_damaged`. */
export async function useLists<P extends ReadPlan, T>(plan: P, work: (local: P) => Promise<T>): Promise<T> {
  const lists = listsOf(plan);
  return await localFiles.use(lists, async (paths) => {
    const pathOf = new Map(lists.map((list, index) => [list, paths[index] ?? '']));
    for (const [list, local] of pathOf) await assertListIntact(list, local);
    return await work(withListPaths(plan, pathOf));
  });
}
