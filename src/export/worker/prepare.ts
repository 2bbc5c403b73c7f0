import type { Snapshot } from '../../lake/log/snapshot.ts';
import type { ReadPlan } from '../jobs/worker-messages.ts';
import type { ExportQuery } from './export-query.ts';
import type { QueryEngine } from './query-engine.ts';
import type { ReadFiles, Verify } from './read-files.ts';
import { watch, type OnShare, type WatchedJob } from './watch-statement.ts';

/** What a query is made on, and of which files. */
export interface Source {
  readonly engines: readonly [QueryEngine, ...QueryEngine[]];
  readonly read: ReadFiles;
  readonly verify: Verify;
}

/** What is asked, and of which version of the table. */
interface Asked {
  readonly plan: ReadPlan;
  readonly snapshot: Snapshot;
}

/** The files to read; the first holds every column, so that the list is never empty. */
export function pathsOf({ snapshot }: Pick<Asked, 'snapshot'>, { files }: Pick<ReadFiles, 'files'>): string[] {
  return [snapshot.emptyFile, ...files.map(({ absolutePath }) => absolutePath)];
}

/** A statement before any row is written. */
export function before({ plan }: Pick<Asked, 'plan'>): WatchedJob {
  return { plan, writtenBytes: () => Promise.resolve(0) };
}

/** Makes what a query reads beside the files: step after step, until no row can change any more. */
export async function prepare(
  { engines: [engine], read, verify }: Source,
  { preparation }: ExportQuery,
  asked: Asked,
  onShare: OnShare,
): Promise<void> {
  if (preparation === undefined) return;
  const { reachSeconds } = preparation;
  for (const [step, reach] of reachSeconds.entries()) {
    read.reachOut(reach);
    await verify(read.files);
    const paths = pathsOf(asked, read);
    const onStepShare = (share: number): void => onShare((step + share) / reachSeconds.length);
    for (const statement of preparation.statements(step))
      await watch(engine, before(asked), onStepShare, engine.run(statement, paths));
    const unfinished = preparation.unfinished(step);
    if (unfinished === undefined || (await engine.run(unfinished, paths)) === 0) return;
  }
}
