import { pruneFiles } from '../../lake/files/prune.ts';
import type { DataFile, Snapshot } from '../../lake/log/snapshot.ts';
import type { ReadPlan } from '../jobs/worker-messages.ts';
import { assertBasisWhole } from './basis.ts';
import { fileFilter } from './query.ts';

/** The files that a query reads: more with each reach, those that were there in their places. */
export interface ReadFiles {
  readonly files: readonly DataFile[];
  /** Adds the files of a reach. */
  reachOut(reachSeconds: number): void;
}

/** Compares files with their hashes, each of them once, whoever asks. Errors: `file_damaged`. */
export type Verify = (files: readonly DataFile[]) => Promise<void>;

/** What files are chosen by. */
interface Choice {
  readonly plan: ReadPlan;
  readonly snapshot: Snapshot;
  readonly sinceMs: number | undefined;
}

/** Creates the list of the files that are read of a snapshot, empty. */
export function createReadFiles({ plan: { request, apps }, snapshot, sinceMs }: Choice): ReadFiles {
  const files: DataFile[] = [];
  return {
    files,
    reachOut(reachSeconds) {
      const known = new Set(files);
      const reached = pruneFiles(snapshot.files, fileFilter(request, apps, { reachSeconds, sinceMs }));
      files.push(...reached.filter((file) => !known.has(file)));
    },
  };
}

/** Creates the verification of what an attempt reads. */
export function createVerify({ plan: { request }, snapshot }: Pick<Choice, 'plan' | 'snapshot'>): Verify {
  const verified = new Map<string, Promise<void>>();
  return async (files) => {
    for (const file of files) {
      const verifying = verified.get(file.absolutePath) ?? assertBasisWhole(request, snapshot, [file]);
      verified.set(file.absolutePath, verifying);
      await verifying;
    }
  };
}
