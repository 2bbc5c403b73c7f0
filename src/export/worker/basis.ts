import { getExport } from '../../datasets/dataset.ts';
import { machineClock } from '../../runtime/clock.ts';
import { isAppError } from '../../runtime/errors.ts';
import { assertFilesWhole } from '../../lake/files/verify-files.ts';
import { findSinceMs, nextPlace, parsePlace } from '../../lake/log/change-feed.ts';
import { readCommit } from '../../lake/log/log-files.ts';
import { readSnapshot, type DataFile, type Snapshot } from '../../lake/log/snapshot.ts';
import { upgradeSchema } from '../../lake/table-schema.ts';
import { readMarkedSnapshot, type MarkedSnapshot } from '../../lake/watermark.ts';
import type { ReportBasis } from '../../reports/reports.ts';
import type { ExportSpec } from '../jobs/export-spec.ts';
import type { ReadPlan } from '../jobs/worker-messages.ts';
import { LimitError } from './watch-statement.ts';

/** What a request reads: one version of the table, and of that the rows that came after another. */
export interface Basis extends MarkedSnapshot {
  /** Rows that became available after this, Unix milliseconds; undefined: all. */
  readonly sinceMs: number | undefined;
}

/** Does what a parameter asks; a version that cannot be given ends the request, in words for its user. */
async function forUser<T>(parameter: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isAppError(error, 'not_found')) throw error;
    throw new LimitError(`${parameter}: ${error.message}${error.hint === undefined ? '' : `. ${error.hint}`}`);
  }
}

/**
 * Finds what a request reads. Errors: `LimitError` where its versions cannot be given, `schema_change` where a column of
 * the table is not the dataset's; those of `readSnapshot`.
 */
export async function findBasis({ tableDir, request, apps }: ReadPlan): Promise<Basis> {
  const [asOf, since] = [request.asOf, request.sinceVersion].map((text) =>
    text === undefined ? undefined : parsePlace(text),
  );
  const idApps = apps.map(({ idApp }) => idApp);
  const marked = await forUser('asOf', () => readMarkedSnapshot(tableDir, machineClock, asOf, idApps));
  const { snapshot } = marked;
  // A worker reads the datasets itself, so they may be newer than the service.
  const { columns } = getExport(request.event).dataset;
  if (snapshot.schemaString !== undefined) upgradeSchema(snapshot.schemaString, columns);
  const sinceMs = since === undefined ? undefined : await forUser('sinceVersion', () => findSinceMs(since, snapshot));
  return { ...marked, sinceMs };
}

/**
 * Compares the files of a basis with their hashes. Errors: `file_damaged`; `LimitError` where all that is wrong is that
 * an older version is not kept any more: its files go with the retention, and those of rewrites take their names.
 */
export async function assertBasisWhole(
  { asOf }: ExportSpec,
  { tableDir }: Snapshot,
  files: readonly DataFile[],
): Promise<void> {
  try {
    await assertFilesWhole(files);
  } catch (error) {
    if (asOf === undefined || !isAppError(error, 'file_damaged')) throw error;
    const live = new Map((await readSnapshot(tableDir)).files.map((file) => [file.path, file.sha256]));
    await assertFilesWhole(files.filter(({ path, sha256 }) => live.has(path) && live.get(path) === sha256));
    throw new LimitError(`asOf: version ${asOf} is not kept any more. Order the export without asOf`);
  }
}

/** When the version after one was committed; undefined while there is none. */
async function findEndMs(tableDir: string, version: number): Promise<number | undefined> {
  const next = await readCommit(tableDir, version + 1).catch(() => undefined);
  return next?.actions.find(({ commitInfo }) => commitInfo !== undefined)?.commitInfo?.timestamp;
}

/**
 * What the answer says of the version that was read. Its files are kept for the retention from when the next one was
 * committed; one that was the newest when the attempt began was so at least until then.
 */
export async function describeBasis(
  { tableDir, retentionMs, begunMs }: ReadPlan,
  { snapshot, watermarkMs }: Basis,
): Promise<ReportBasis> {
  const version = Math.max(snapshot.version, 0);
  const endMs = Math.min((await findEndMs(tableDir, version)) ?? begunMs, begunMs);
  return {
    version,
    nextSinceVersion: nextPlace(snapshot),
    keptUntilSeconds: Math.floor((endMs + retentionMs) / 1000),
    ...(snapshot.head === undefined ? {} : { head: snapshot.head }),
    ...(watermarkMs === undefined ? {} : { watermarkMs }),
  };
}
