import { isAppError } from '../../runtime/errors.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { readSnapshotAt } from '../../lake/log/kept-versions.ts';
import { readCommit } from '../../lake/log/log-files.ts';
import { readSnapshot, type DataFile, type Snapshot } from '../../lake/log/snapshot.ts';
import { findPoint, toPoint } from '../../lake/log/version-points.ts';
import type { ReportBasis } from '../../reports/reports.ts';
import type { ExportSpec } from '../jobs/export-spec.ts';
import { sincePattern } from '../jobs/export-spec.ts';
import type { WorkerPlan } from '../jobs/worker-messages.ts';
import { LimitError } from './watch-statement.ts';

/** What a request reads: one version of the table, and of that the rows that came after another. */
export interface Basis {
  readonly snapshot: Snapshot;
  /** Rows that became available after this, Unix milliseconds; undefined: all. */
  readonly sinceMs: number | undefined;
}

const noLonger = (version: number): string => `Version ${version} is not kept any more: order the export without asOf`;

/** Refuses what cannot be the same again, in words for the user. Errors: `LimitError`. */
async function readWanted({ tableDir, request: { asOf } }: WorkerPlan): Promise<Snapshot> {
  if (asOf === undefined) return await readSnapshot(tableDir);
  try {
    return await readSnapshotAt(tableDir, asOf);
  } catch (error) {
    if (isAppError(error, 'not_found')) throw new LimitError(`asOf: ${error.message}`);
    throw error;
  }
}

/**
 * The `available_at` that a version stands for. Errors: `LimitError` where nobody knows, or the version is one of
 * another history.
 */
async function findSince(plan: WorkerPlan, since: string, { version: newest, lake }: Snapshot): Promise<number> {
  const [, digits, mark] = sincePattern.exec(since) ?? [];
  const version = Number(digits);
  if (newest < 0 && version === 0) return 0;
  if (version > newest)
    throw new LimitError(`sinceVersion: version ${version} is later than the one that is read, ${newest}`);
  const point = await findPoint(plan.tableDir, version, lake?.restamps);
  if (point === undefined)
    throw new LimitError(
      `sinceVersion: nothing is known of version ${version} any more: order everything once, and go on from there`,
    );
  if (mark !== undefined && point.mark !== undefined && mark !== point.mark)
    throw new LimitError(
      `sinceVersion: version ${version} is not the one that was named then: the data was restored from a backup meanwhile; order everything once, and go on from there`,
    );
  return point.availableAtMs;
}

/** Finds what a request reads. Errors: `LimitError` where its versions cannot be given; those of `readSnapshot`. */
export async function findBasis(plan: WorkerPlan): Promise<Basis> {
  const snapshot = await readWanted(plan);
  const { sinceVersion } = plan.request;
  return { snapshot, sinceMs: sinceVersion === undefined ? undefined : await findSince(plan, sinceVersion, snapshot) };
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
  const { lake } = snapshot;
  const version = Math.max(snapshot.version, 0);
  const mark = lake === undefined ? undefined : toPoint(version, lake).mark;
  const endMs = Math.min((await findEndMs(tableDir, version)) ?? nowMs, nowMs);
  return {
    version,
    nextSinceVersion: mark === undefined ? String(version) : `${version}-${mark}`,
    keptUntilSeconds: Math.floor((endMs + retentionMs) / 1000),
  };
}
