import { localFiles } from '../../runtime/store/open-store.ts';
import { pruneFiles } from '../../lake/files/prune.ts';
import { withEmptyFile, type DataFile, type Snapshot } from '../../lake/log/snapshot.ts';
import type { ReadPlan } from '../jobs/worker-messages.ts';
import { leaveOutCovered, type UsedParts } from './first-seen.ts';
import { assertReadVersionIntact, type ReadVersion } from './read-version.ts';
import type { ExportQuery } from './export-query.ts';
import { toParamColumns, type ParamColumn } from './param-columns.ts';
import { appsRead, fileFilter } from './query.ts';
import type { QueryEngine } from './query-engine.ts';
import { runWatched, type OnProgress, type WatchedJob } from './watch-statement.ts';

export type ReadFiles = ReturnType<typeof createReadFiles>;

/** Compares files, or what is read of them, with their hashes, each once. Error: `file_damaged`. */
export type Verify = (files: readonly DataFile[]) => Promise<void>;

interface RequestedFiles {
  readonly plan: ReadPlan;
  readonly snapshot: Snapshot;
}

/** Creates the list of files of a query; a query with a preparation starts without any. */
export function createReadFiles(
  { plan: { request, apps }, snapshot, sinceMs, firstSeen }: RequestedFiles & Pick<ReadVersion, 'sinceMs'> & UsedParts,
  { select, preparation }: ExportQuery,
): { readonly files: readonly DataFile[]; readonly reachOut: (reachSeconds: number) => void } {
  const files: DataFile[] = [];
  /** Appends the files of a reach, s. */
  function reachOut(reachSeconds: number): void {
    const known = new Set(files);
    const reached = pruneFiles(snapshot.files, fileFilter(request, apps, { reachSeconds, sinceMs }));
    for (const file of leaveOutCovered(reached, request, firstSeen)) if (!known.has(file)) files.push(file);
  }
  if (preparation === undefined && select.sql.includes('$files')) reachOut(0);
  return { files, reachOut };
}

export function createVerify({ plan, snapshot }: RequestedFiles): Verify {
  const verified = new Map<string, Promise<void>>();
  const rowsRead = appsRead(plan);
  return async (files) => {
    for (const file of files) {
      const verifying = verified.get(file.absolutePath) ?? assertReadVersionIntact(plan, snapshot, [file], rowsRead);
      verified.set(file.absolutePath, verifying);
      await verifying;
    }
  };
}

export interface Source {
  readonly engines: readonly [QueryEngine, ...QueryEngine[]];
  readonly read: ReadFiles;
  readonly verify: Verify;
}

/** Runs work with the paths of files to read; the first is the empty file, so that the list is never empty. */
export function usePaths<T>(
  { snapshot }: Pick<RequestedFiles, 'snapshot'>,
  { files }: Pick<ReadFiles, 'files'>,
  work: (paths: readonly string[]) => Promise<T>,
): Promise<T> {
  return localFiles.use(withEmptyFile(snapshot, files), work);
}

/** Describes a statement that writes nothing of the result. */
export function withoutRows({ plan }: Pick<RequestedFiles, 'plan'>): WatchedJob {
  return { plan, writtenBytes: () => Promise.resolve(0) };
}

/** Runs the preparation step by step, until no row can change. */
export async function prepare(
  { engines: [engine], read, verify }: Source,
  { preparation }: ExportQuery,
  requested: RequestedFiles,
  onProgress: OnProgress = () => undefined,
): Promise<void> {
  if (preparation === undefined) return;
  const { reachSeconds } = preparation;
  for (const [step, reach] of reachSeconds.entries()) {
    read.reachOut(reach);
    await verify(read.files);
    const onStepShare = (share: number): void => onProgress((step + share) / reachSeconds.length);
    const isDone = await usePaths(requested, read, async (paths) => {
      for (const exportStatement of preparation.statements(step))
        await runWatched(engine, withoutRows(requested), onStepShare, engine.run(exportStatement, paths));
      const unfinished = preparation.unfinished(step);
      return unfinished === undefined || (await engine.run(unfinished, paths)) === 0;
    });
    if (isDone) return;
  }
}

/** Finds the columns of parameters of a prepared query; undefined if it lacks none. Errors: `LimitError`, the engine's. */
export async function findParams(
  { engines: [engine], read, verify }: Source,
  { listParams }: ExportQuery,
  requested: RequestedFiles,
): Promise<readonly ParamColumn[] | undefined> {
  if (listParams === undefined) return undefined;
  await verify(read.files);
  const listing = usePaths(requested, read, (paths) => engine.rows(listParams, paths));
  return toParamColumns(await runWatched(engine, withoutRows(requested), () => undefined, listing));
}
