import { isAppError } from '../../runtime/errors.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { findSinceMs, nextPlace, parsePlace } from '../../lake/log/change-feed.ts';
import { readSnapshotAt } from '../../lake/log/kept-versions.ts';
import { readCommit } from '../../lake/log/log-files.ts';
import { readSnapshot, type DataFile, type Snapshot } from '../../lake/log/snapshot.ts';
import type { ReportBasis } from '../../reports/reports.ts';
import type { ExportSpec } from '../jobs/export-spec.ts';
import type { WorkerPlan } from '../jobs/worker-messages.ts';
import { LimitError } from './watch-statement.ts';

/** What a request reads: one version of the table, and of that the rows that came after another. */
export interface Basis {
  readonly snapshot: Snapshot;
  /** Rows that became available after this, Unix milliseconds; undefined: all. */
  readonly sinceMs: number | undefined;
}

const noLonger = (version: number): string => `Version ${version} is not kept any more: order the export without asOf`;

/** Does what a parameter asks; a version that cannot be given ends the request, in words for its user. */
async function forUser<T>(parameter: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isAppError(error, 'not_found')) throw error;
    throw new LimitError(`${parameter}: ${error.message}${error.hint === undefined ? '' : `. ${error.hint}`}`);
  }
}

/** Finds what a request reads. Errors: `LimitError` where its versions cannot be given; those of `readSnapshot`. */
export async function findBasis({ tableDir, request: { asOf, sinceVersion } }: WorkerPlan): Promise<Basis> {
  const snapshot =
    asOf === undefined ? await readSnapshot(tableDir) : await forUser('asOf', () => readSnapshotAt(tableDir, asOf));
  const place = sinceVersion === undefined ? undefined : parsePlace(sinceVersion);
  const sinceMs = place === undefined ? undefined : await forUser('sinceVersion', () => findSinceMs(place, snapshot));
  return { snapshot, sinceMs };
}

/** Refuses a version some of whose files are gone already. Errors: `LimitError`. */
export async function assertKept({ asOf }: ExportSpec, files: readonly DataFile[]): Promise<void> {
  if (asOf === undefined) return;
  for (const { absolutePath } of files) if (!(await exists(absolutePath))) throw new LimitError(noLonger(asOf));
}

/** When the version after one was committed; undefined while there is none. */
async function findEndMs(tableDir: string, version: number): Promise<number | undefined> {
  const next = await readCommit(tableDir, version + 1).catch(() => undefined);
  return next?.actions.find(({ commitInfo }) => commitInfo !== undefined)?.commitInfo?.timestamp;
}

/** What the answer says of the version that was read; `nowMs`: when it was the newest still, if it was. */
export async function describeBasis(
  { tableDir, retentionMs }: WorkerPlan,
  { snapshot }: Basis,
  nowMs: number,
): Promise<ReportBasis> {
  const version = Math.max(snapshot.version, 0);
  const endMs = Math.min((await findEndMs(tableDir, version)) ?? nowMs, nowMs);
  return {
    version,
    nextSinceVersion: nextPlace(snapshot),
    keptUntilSeconds: Math.floor((endMs + retentionMs) / 1000),
    ...(snapshot.head === undefined ? {} : { head: snapshot.head }),
  };
}
