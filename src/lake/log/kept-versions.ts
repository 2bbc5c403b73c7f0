import { AppError } from '../../runtime/errors.ts';
import { findLakeState, type LakeState } from './lake-state.ts';
import { listLog, readCommit } from './log-files.ts';
import { loadTableState, readSnapshot, toSnapshot, type Snapshot } from './snapshot.ts';

/** Which versions a table still has, by a look at its log that costs nothing for its files. */
export interface KeptVersions {
  /** -1: the table does not exist yet. */
  readonly newest: number;
  /** The oldest that can be read as it was, as far as the log goes: its files are kept for the retention. */
  readonly oldest: number;
  /** Versions before this one have rows that were erased since. */
  readonly forgetBefore: number;
}

async function findNewestState(tableDir: string, commits: readonly number[]): Promise<LakeState | undefined> {
  for (const version of commits.toReversed()) {
    const { actions } = await readCommit(tableDir, version);
    const lake = findLakeState(actions.find((action) => action.commitInfo !== undefined)?.commitInfo);
    if (lake !== undefined) return lake;
  }
  return undefined;
}

/** Looks which versions there are. Errors: `log_damaged`. */
export async function findKeptVersions(tableDir: string): Promise<KeptVersions> {
  const { commits, checkpoints } = await listLog(tableDir);
  const lake = await findNewestState(tableDir, commits);
  return {
    newest: Math.max(commits.at(-1) ?? -1, checkpoints.at(-1) ?? -1),
    oldest: commits[0] === 0 ? 0 : (checkpoints[0] ?? Infinity),
    forgetBefore: lake?.forgetBefore ?? 0,
  };
}

/** Says why a version cannot be read as it was; undefined where it can, as far as the log says. */
export function refuseVersion(version: number, { newest, oldest, forgetBefore }: KeptVersions): string | undefined {
  if (version > newest) return `version ${version} is not there yet: the newest is ${Math.max(newest, 0)}`;
  if (version < forgetBefore)
    return `version ${version} has rows that were erased since: the oldest that can be given is ${forgetBefore}`;
  if (version < oldest) return `version ${version} is not kept any more: the oldest that is kept is ${oldest}`;
  return undefined;
}

/**
 * Reads a table as it was at a version. Its files may be gone, since they are kept for the retention only. Errors:
 * `not_found` with the reason of `refuseVersion`; those of `readSnapshot`.
 */
export async function readSnapshotAt(tableDir: string, version: number): Promise<Snapshot> {
  const newest = await readSnapshot(tableDir);
  if (newest.version === version) return newest;
  const refusal = refuseVersion(version, await findKeptVersions(tableDir));
  if (refusal !== undefined)
    throw new AppError('not_found', refusal, { hint: 'Ask without a version, for the newest.' });
  return toSnapshot(tableDir, await loadTableState(tableDir, version));
}
