import { AppError, isAppError } from '../../runtime/errors.ts';
import { assertSameHistory, type FeedPlace } from './change-feed.ts';
import { findErased } from './erased-apps.ts';
import { findLakeState, type LakeState } from './lake-state.ts';
import { listLog, readCommit } from './log-files.ts';
import { assertProtocol } from './protocol.ts';
import { loadTableState, readSnapshot, toSnapshot, type Snapshot } from './snapshot.ts';
import type { TableState } from './table-state.ts';
import { toPoint } from './version-points.ts';

/** Which versions a table still has, by a look at its log that costs nothing for its files. */
export interface KeptVersions {
  /** -1: the table does not exist yet. */
  readonly newest: number;
  /** The oldest that can be read as it was, as far as the log goes: its files are kept for the retention. */
  readonly oldest: number;
  /** What the newest version says of erasures; undefined: there is no table. */
  readonly lake: LakeState | undefined;
}

/** The newest state of ours among commits, oldest first; those of other engines are passed over. Errors: `log_damaged`. */
export async function findNewestState(tableDir: string, commits: readonly number[]): Promise<LakeState | undefined> {
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
    lake,
  };
}

/**
 * Says why a version cannot be read as it was; undefined where it can, as far as the log says. The newest always can;
 * of a table that does not exist yet, that is version 0. `idApps`: the apps whose rows are read; all by default.
 */
export function refuseVersion(version: number, kept: KeptVersions, idApps?: readonly number[]): string | undefined {
  const { oldest, lake = {} } = kept;
  const { before: forgetBefore, isErasing } = findErased(lake, idApps);
  const newest = Math.max(kept.newest, 0);
  if (version === newest) return undefined;
  if (version > newest) return `version ${version} is not there yet: the newest is ${newest}`;
  if (isErasing) return `version ${version} may have rows that are being erased: for now only ${newest} can be given`;
  if (version < forgetBefore)
    return `version ${version} has rows that were erased since: the oldest that can be given is ${forgetBefore}`;
  if (version < oldest) return `version ${version} is not kept any more: the oldest that is kept is ${oldest}`;
  return undefined;
}

const withoutVersion = 'Ask without a version, for the newest.';

function refuse(why: string): AppError {
  return new AppError('not_found', why, { hint: withoutVersion });
}

/** Refuses a state that another engine has made, or that a repair of that had only begun to undo. */
function assertOwn({ version, foreign, lastCommit, protocol }: TableState): void {
  const lake = findLakeState(lastCommit);
  if (foreign !== undefined || lake === undefined || lake.cause === 'reset')
    throw refuse(`version ${version} is what another engine has made of the table`);
  assertProtocol(protocol);
}

/** Loads a version that is not the newest. Errors: `not_found` with the reason, `log_damaged`, `lake_protocol`. */
async function loadOlder(
  tableDir: string,
  version: number,
  idApps: readonly number[] | undefined,
): Promise<TableState> {
  const loaded = await loadTableState(tableDir, version).catch((error: unknown) => {
    if (isAppError(error, 'log_damaged')) return error;
    throw error;
  });
  // Looked at afterwards: the log may have been trimmed, and an erasure have begun, while it was read.
  const refusal = refuseVersion(version, await findKeptVersions(tableDir), idApps);
  if (refusal !== undefined) throw refuse(refusal);
  if (loaded instanceof AppError) throw loaded;
  if (loaded.version !== version)
    throw new AppError('log_damaged', `the log of ${tableDir} lacks version ${version}`, {
      hint: "Run 'tributary lake check', and restore what it names from a backup.",
    });
  assertOwn(loaded);
  return loaded;
}

/**
 * Reads a table as it was at a place, for who reads rows of some apps, or of all. Its files may be gone, since they are kept for the retention only. Errors:
 * `not_found` with the reason of `refuseVersion`, or where the version is another history's or another engine's; those
 * of `readSnapshot`.
 */
export async function readSnapshotAt(
  tableDir: string,
  place: FeedPlace,
  idApps?: readonly number[],
): Promise<Snapshot> {
  const newest = await readSnapshot(tableDir);
  const { version } = place;
  const isNewest = version === Math.max(newest.version, 0);
  const snapshot = isNewest ? newest : toSnapshot(tableDir, await loadOlder(tableDir, version, idApps));
  if (snapshot.lake !== undefined)
    await assertSameHistory(place, toPoint(version, snapshot.lake), snapshot, withoutVersion);
  return snapshot;
}
