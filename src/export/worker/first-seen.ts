import path from 'node:path';
import { events, findExport } from '../../datasets/dataset.ts';
import { pruneFiles } from '../../lake/files/prune.ts';
import { earlierApps, readFirstSeenParts } from '../../lake/first-seen/first-seen-parts.ts';
import { chooseParts } from '../../lake/first-seen/plan-parts.ts';
import type { DataFile, Snapshot } from '../../lake/log/snapshot.ts';
import { isAppError } from '../../runtime/errors.ts';
import type { ExportSpec } from '../jobs/export-spec.ts';
import type { ReadPlan } from '../jobs/worker-messages.ts';
import { pinFile } from './read-version.ts';

/** First-seen parts of the version that an export reads. Earlier rows of the covered files need not be read. */
export interface PinnedFirstSeen {
  /** Intact files in the work folder, at least one. */
  readonly paths: readonly string[];
  readonly covered: ReadonlySet<DataFile>;
}

export interface UsedParts {
  /** Undefined: all earlier rows are read. */
  readonly firstSeen?: PinnedFirstSeen | undefined;
}

/** Number of attempts: the compactor may replace parts meanwhile. */
const attempts = 3;

/** Returns the start of the request's span, Unix s, if parts have what is before it; undefined otherwise. */
function findStart({ request, apps }: Pick<ReadPlan, 'request' | 'apps'>): number | undefined {
  const found = findExport(request.event);
  const isFirst = found !== undefined && 'derive' in found.event && found.event.derive === 'first';
  // Filters on fields select the events before the derivation.
  if (!isFirst || found.dataset !== events || Object.keys(request.filters).length > 0 || apps.length === 0)
    return undefined;
  return request.eventTime.fromSeconds;
}

/**
 * Links the valid first-seen parts of a version into the work folder, and compares their hashes. A damaged or missing
 * part is left out: the rows of its files are then read. Errors: those of the system.
 */
export async function pinFirstSeen(
  plan: Pick<ReadPlan, 'request' | 'apps'>,
  { tableDir, files }: Pick<Snapshot, 'tableDir' | 'files'>,
  tempDir: string,
): Promise<PinnedFirstSeen | undefined> {
  const beforeSeconds = findStart(plan);
  if (beforeSeconds === undefined) return undefined;
  const reader = { beforeSeconds, idApps: plan.apps.map(({ idApp }) => idApp) };
  const appRanges = [earlierApps(reader.idApps)];
  const paths = new Map<string, string>();
  const damaged = new Set<string>();
  for (let attempt = 1; ; attempt += 1) {
    const all = await readFirstSeenParts(path.dirname(tableDir));
    let replaced = 0;
    for (const part of chooseParts(all, files, reader).parts) {
      if (paths.has(part.id) || damaged.has(part.id)) continue;
      const pinned = await pinFile(part, tempDir, `first-seen-${paths.size + damaged.size}.parquet`, appRanges).catch(
        (error: unknown) => {
          if (!isAppError(error, 'file_damaged')) throw error;
          if (error.retryable) replaced += 1;
          else damaged.add(part.id);
        },
      );
      if (pinned !== undefined) paths.set(part.id, pinned);
    }
    if (replaced > 0 && attempt < attempts) continue;
    const { parts, covered } = chooseParts(
      all.filter(({ id }) => paths.has(id)),
      files,
      reader,
    );
    return parts.length === 0 ? undefined : { paths: parts.flatMap(({ id }) => paths.get(id) ?? []), covered };
  }
}

/** Leaves out the files whose rows before the span the parts have, unless they may have rows of the span too. */
export function leaveOutCovered(
  files: readonly DataFile[],
  { eventTime: { fromSeconds = 0 } }: Pick<ExportSpec, 'eventTime'>,
  firstSeen: PinnedFirstSeen | undefined,
): readonly DataFile[] {
  if (firstSeen === undefined) return files;
  const ofSpan = new Set(pruneFiles(files, { eventTime: { fromMs: fromSeconds * 1000 } }));
  return files.filter((file) => ofSpan.has(file) || !firstSeen.covered.has(file));
}
