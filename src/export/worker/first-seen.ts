import path from 'node:path';
import { events, findExport } from '../../datasets/dataset.ts';
import { pruneFiles } from '../../lake/files/prune.ts';
import { readFirstSeenParts } from '../../lake/first-seen/first-seen-parts.ts';
import { earlierRows } from '../../lake/first-seen/part-rows.ts';
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

/** Returns whose first events a request exports, and the start of its span, Unix s; undefined if parts do not help. */
function findFirst({ request, apps }: Pick<ReadPlan, 'request' | 'apps'>) {
  const found = findExport(request.event);
  const beforeSeconds = request.eventTime.fromSeconds;
  if (found === undefined || !('derive' in found.event) || found.event.derive !== 'first') return undefined;
  // Filters on fields select the events before the derivation.
  const isFiltered = found.dataset !== events || Object.keys(request.filters).length > 0;
  return isFiltered || apps.length === 0 || beforeSeconds === undefined
    ? undefined
    : { subject: found.event.of, beforeSeconds };
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
  const first = findFirst(plan);
  if (first === undefined) return undefined;
  const reader = { beforeSeconds: first.beforeSeconds, idApps: plan.apps.map(({ idApp }) => idApp) };
  const rowsRead = earlierRows(first.subject, reader.idApps);
  const paths = new Map<string, string>();
  const damaged = new Set<string>();
  for (let attempt = 1; ; attempt += 1) {
    const all = await readFirstSeenParts(path.dirname(tableDir));
    let replaced = 0;
    for (const part of chooseParts(all, files, reader).parts) {
      if (paths.has(part.id) || damaged.has(part.id)) continue;
      const pinned = await pinFile(part, tempDir, `first-seen-${paths.size + damaged.size}.parquet`, rowsRead).catch(
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
