import path from 'node:path';
import { AppError, isAppError } from '../../runtime/errors.ts';
import { openStore } from '../../runtime/store/open-store.ts';
import { type Snapshot, loadTableState, readSnapshot, toSnapshot } from './snapshot.ts';
import { findPoint, toPoint } from './version-points.ts';
import { noTag, type VersionPoint } from './version-ledger.ts';
import { findErased, findLakeState, type LakeState, findStateOf } from './lake-state.ts';
import { type Commit, findCommit, listLog, readCommit } from './log-files.ts';
import { type AddFilter, assertProtocol, logDamaged } from './actions.ts';
import type { TableState } from './table-state.ts';

/** A cursor of the change feed of a table, `VERSION-MARK`. The mark identifies the commit with the newest rows. */
export interface ChangeCursor {
  readonly version: number;
  readonly tag: string | undefined;
}

const cursorPattern = /^(0|[1-9]\d{0,11})(?:-([0-9a-f]{8}))?$/;

/** Parses a cursor, or a version alone. */
export function parseCursor(text: string): ChangeCursor | undefined {
  const [, version, tag] = cursorPattern.exec(text) ?? [];
  return version === undefined ? undefined : { version: Number(version), tag };
}

const tagIn = ({ tag = noTag }: Pick<VersionPoint, 'tag'>): string => tag;

export function nextCursor({ version, lake }: Snapshot): string {
  // A table without rows does not exist yet; its first version has none either.
  if (version < 0 || lake === undefined) return String(Math.max(version, 0));
  return `${version}-${tagIn(toPoint(version, lake))}`;
}

/** Finds another table that the cursor belongs to. */
async function findTableOf({ version, tag }: ChangeCursor, tableDir: string): Promise<string | undefined> {
  const lakeDir = path.dirname(tableDir);
  const others = (await openStore(lakeDir).folders('')).filter((name) => name !== path.basename(tableDir));
  for (const name of others) {
    const point = await findPoint(path.join(lakeDir, name), version).catch(() => undefined);
    if (point?.tag !== undefined && point.tag === tag) return name;
  }
  return undefined;
}

/** Throws `not_found` for a cursor of another table, or of another history of this one. */
async function assertSameHistory(
  cursor: ChangeCursor,
  point: Pick<VersionPoint, 'tag'>,
  { tableDir }: Pick<Snapshot, 'tableDir'>,
  hint: string,
): Promise<void> {
  const { version, tag } = cursor;
  if (tag === undefined || tag === tagIn(point)) return;
  const table = await findTableOf(cursor, tableDir);
  throw new AppError(
    'not_found',
    table === undefined
      ? `version ${version} has changed: the lake was restored from a backup after the cursor was issued`
      : `${version}-${tag} is a cursor of the table ${table}, not of ${path.basename(tableDir)}`,
    { hint },
  );
}

const fromTheStart = 'Retry without a cursor to read all rows, then continue from the returned cursor.';

/** Returns the `available_at`, Unix ms, above which rows are newer than a cursor. Error: `not_found`. */
export async function findSinceMs(cursor: ChangeCursor, snapshot: Snapshot): Promise<number> {
  const { version } = cursor;
  const newest = Math.max(snapshot.version, 0);
  if (version > newest)
    throw new AppError('not_found', `version ${version} is later than the version that is read, ${newest}`, {
      hint: fromTheStart,
    });
  if (version === 0) return 0;
  const point = await findPoint(snapshot.tableDir, version, snapshot.lake?.restamps);
  if (point === undefined)
    throw new AppError('not_found', `version ${version} is no longer known`, { hint: fromTheStart });
  await assertSameHistory(cursor, point, snapshot, fromTheStart);
  return point.availableAtMs;
}

export interface FirstVersion {
  readonly version: number;
  /** Whether the rows may be older, because the previous version is unknown. */
  readonly orEarlier: boolean;
}

export interface VersionSearch {
  /** Finds the first version with an `available_at`, Unix ms, which `snapshot` has. Error: `log_damaged`. */
  find(snapshot: Snapshot, availableAtMs: number): Promise<FirstVersion>;
}

const maxRememberedPoints = 10_000;

/** Creates a search with a cache. It probes at powers of two, so that searches from later versions hit the cache. */
export function createVersionSearch(): VersionSearch {
  const points = new Map<number, VersionPoint>();
  let repairedAt = -1;

  async function pointOf({ tableDir, lake }: Snapshot, version: number): Promise<VersionPoint | undefined> {
    const remembered = points.get(version);
    if (remembered !== undefined) return remembered;
    const point = await findPoint(tableDir, version, lake?.restamps);
    if (points.size >= maxRememberedPoints) points.clear();
    // An unknown point may become known.
    if (point !== undefined) points.set(version, point);
    return point;
  }

  return {
    async find(snapshot, availableAtMs) {
      // A clock repair has changed the times of earlier rows.
      const newestRepair = snapshot.lake?.restamps?.at(-1)?.version ?? -1;
      if (newestRepair !== repairedAt) points.clear();
      repairedAt = newestRepair;
      // Versions up to `before` are older or unknown. Versions from `since` on have the rows.
      let [before, since] = [-1, Math.max(snapshot.version, 0)];
      let isKnown = true;
      while (since - before > 1) {
        const middle = before + 2 ** Math.floor(Math.log2(since - before - 1));
        const point = await pointOf(snapshot, middle);
        if (point !== undefined && point.availableAtMs >= availableAtMs) since = middle;
        else [before, isKnown] = [middle, point !== undefined];
      }
      return { version: since, orEarlier: !isKnown };
    },
  };
}

export interface AvailableVersions {
  readonly newest: number;
  /** The oldest version whose files the retention still keeps. */
  readonly oldest: number;
  readonly lake: LakeState | undefined;
}

/** Returns the newest state of this service among ascending commits. Error: `log_damaged`. */
export async function findNewestState(tableDir: string, commits: readonly number[]): Promise<LakeState | undefined> {
  for (const version of commits.toReversed()) {
    const { actions } = await readCommit(tableDir, version);
    const lake = findStateOf(actions);
    if (lake !== undefined) return lake;
  }
  return undefined;
}

/**
 * Creates a repeated `findNewestState`, for one caller at a time. It reads the newest known commit and later ones; the
 * log, which may have a million files, is listed first and after that commit was removed.
 */
export function createStateSearch(tableDir: string): () => Promise<LakeState | undefined> {
  let known: (Pick<Commit, 'version' | 'sha256'> & { readonly lake: LakeState | undefined }) | undefined;
  return async () => {
    if (known === undefined || (await findCommit(tableDir, known.version))?.sha256 !== known.sha256) {
      const { commits } = await listLog(tableDir);
      const version = commits.at(-1);
      if (version === undefined) return undefined;
      const { sha256 } = await readCommit(tableDir, version);
      known = { version, sha256, lake: await findNewestState(tableDir, commits) };
    }
    for (;;) {
      const next = await findCommit(tableDir, known.version + 1);
      if (next === undefined) return known.lake;
      known = { version: next.version, sha256: next.sha256, lake: findStateOf(next.actions) ?? known.lake };
    }
  };
}

export async function findAvailableVersions(tableDir: string): Promise<AvailableVersions> {
  const { commits, checkpoints } = await listLog(tableDir);
  const lake = await findNewestState(tableDir, commits);
  return {
    newest: Math.max(commits.at(-1) ?? -1, checkpoints.at(-1) ?? -1),
    oldest: commits[0] === 0 ? 0 : (checkpoints[0] ?? Infinity),
    lake,
  };
}

/** Returns why a version is not available, if so. `idApps`: the apps whose rows are read; absent: all. */
export function findVersionUnavailableReason(
  version: number,
  availableVersions: AvailableVersions,
  idApps?: readonly number[],
): string | undefined {
  const { oldest, lake = {} } = availableVersions;
  const { before: forgetBefore, isErasing } = findErased(lake, idApps);
  const newest = Math.max(availableVersions.newest, 0);
  if (version === newest) return undefined;
  if (version > newest) return `version ${version} does not exist yet; the newest is ${newest}`;
  if (isErasing)
    return `version ${version} may have rows that are being erased; only version ${newest} is available for now`;
  if (version < forgetBefore)
    return `version ${version} has rows that were erased; the oldest available version is ${forgetBefore}`;
  if (version < oldest) return `version ${version} is no longer available; the oldest available version is ${oldest}`;
  return undefined;
}

const withoutVersion = 'Retry without a version to read the newest.';

function refuse(why: string): AppError {
  return new AppError('not_found', why, { hint: withoutVersion });
}

function assertOwn({ version, foreign, lastCommit, protocol }: TableState): void {
  const lake = findLakeState(lastCommit);
  if (foreign !== undefined || lake === undefined || lake.cause === 'reset')
    throw refuse(`version ${version} is a commit of another engine`);
  assertProtocol(protocol);
}

/** The part of a table that a reader needs. */
export interface ReaderNeeds {
  /** The apps whose rows are read; absent: all. */
  readonly idApps?: readonly number[] | undefined;
  /** Files that it does not match may be left out of the snapshot. */
  readonly needed?: AddFilter | undefined;
}

async function loadOlder(tableDir: string, version: number, { idApps, needed }: ReaderNeeds): Promise<TableState> {
  const loaded = await loadTableState(tableDir, version, needed).catch((error: unknown) => {
    if (isAppError(error, 'log_damaged')) return error;
    throw error;
  });
  // Checked after the read: a concurrent trim or erasure may have begun.
  const refusal = findVersionUnavailableReason(version, await findAvailableVersions(tableDir), idApps);
  if (refusal !== undefined) throw refuse(refusal);
  if (loaded instanceof AppError) throw loaded;
  if (loaded.version !== version) throw logDamaged(`the log of ${tableDir} lacks version ${version}`);
  assertOwn(loaded);
  return loaded;
}

/**
 * Reads a table at a cursor. Errors: those of `readSnapshot`; `not_found` for an unavailable version or one of another
 * history or engine.
 */
export async function readSnapshotAt(
  tableDir: string,
  cursor: ChangeCursor,
  needs: ReaderNeeds = {},
): Promise<Snapshot> {
  const newest = await readSnapshot(tableDir, needs.needed);
  const { version } = cursor;
  const isNewest = version === Math.max(newest.version, 0);
  const snapshot = isNewest ? newest : toSnapshot(tableDir, await loadOlder(tableDir, version, needs));
  if (snapshot.lake !== undefined)
    await assertSameHistory(cursor, toPoint(version, snapshot.lake), snapshot, withoutVersion);
  return snapshot;
}
