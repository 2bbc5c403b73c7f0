/**
 * Reverts foreign commits by new commits on top. Versions are never reused, so that readers of the foreign ones can
 * continue.
 *
 * In: the last state of this service, and the newest one. Out: a commit of cause `repair`, from which writers continue.
 * Invariant: the log then names the same files, columns, protocol and position as before. Rows that the other engine
 * added are quarantined, because no total counts them. Rows that it removed are back if their files exist.
 * Crash: files are quarantined first, so that a second run finds the same work.
 */
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { syncFolder, removeFile } from '../../runtime/files/durable-file.ts';
import { AppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import {
  decodePath,
  parseStats,
  type Action,
  type AddAction,
  isOwnProtocol,
  tableProtocol,
  findInfo,
} from '../log/actions.ts';
import { listTree } from '../../runtime/files/folder-names.ts';
import { lakeStore } from '../files/data-file.ts';
import { changesTable, toForeignCommit, type ForeignCommit, type TableState } from '../log/table-state.ts';
import { findLakeState, findStateOf } from '../log/lake-state.ts';
import { hashCommit, renderCommit, type Commit, logFolder, findCommit, tableStore } from '../log/log-files.ts';
import { listQuarantined, quarantineKey } from '../lake.ts';
import { loadOwnState, loadTableState } from '../log/snapshot.ts';
import { linkCommit, toCommitInfo, type Change } from '../log/table.ts';

export const repairSteps = ['repair-put-aside', 'repair-committed'] as const;

export interface RepairDependencies {
  readonly tableDir: string;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

/** The result of a repair. Paths are relative to the table's folder. */
export interface Repaired {
  readonly version: number;
  readonly undone: readonly ForeignCommit[];
  /** This service's files that the table names again, and their rows. */
  readonly filesRestored: number;
  readonly rowsRestored: number;
  /** The other engine's files, with the path in quarantine; without one if removed or outside the folder. */
  readonly filesTakenOut: readonly { readonly path: string; readonly rows: number | undefined; readonly to?: string }[];
  readonly columnsRestored: boolean;
  readonly protocolRestored: boolean;
}

interface Damage {
  readonly own: TableState;
  readonly newest: TableState;
  /** The commits from the first foreign change on. */
  readonly commits: readonly Commit[];
}

async function findDamage(tableDir: string): Promise<Damage | undefined> {
  const { state: own, foreign } = await loadOwnState(tableDir);
  if (foreign === undefined) return undefined;
  const newest = await loadTableState(tableDir);
  const commits: Commit[] = [];
  for (let version = foreign.version; version <= newest.version; version += 1) {
    // That engine's log clean-up may have removed it.
    const commit = await findCommit(tableDir, version);
    // The first half of an interrupted repair is not foreign.
    if (commit !== undefined && findStateOf(commit.actions) === undefined) commits.push(commit);
  }
  return { own, newest, commits };
}

function hasDeletionVector({ deletionVector }: AddAction): boolean {
  return deletionVector !== undefined && deletionVector !== null;
}

function isSameAdd(one: AddAction, other: AddAction): boolean {
  return one.size === other.size && one.tags?.['sha256'] === other.tags?.['sha256'] && !hasDeletionVector(one);
}

function toRemove(add: AddAction, nowMs: number, dataChange: boolean): Action {
  return {
    remove: {
      path: add.path,
      deletionTimestamp: nowMs,
      dataChange,
      ...(hasDeletionVector(add) ? { deletionVector: add.deletionVector } : {}),
    },
  };
}

/** Returns the key of a file of the log, if it is in the table's folder. */
function findKey(tableDir: string, encoded: string): string | undefined {
  const relative = decodePath(encoded);
  if (relative === undefined || /^[a-z][a-z0-9+.-]+:/i.test(relative)) return undefined;
  const absolute = path.resolve(tableDir, relative);
  return absolute.startsWith(tableDir + path.sep) ? path.relative(tableDir, absolute) : undefined;
}

function changesRows({ actions }: Commit): boolean {
  return actions.some(
    (action) => (action.add ?? action.remove)?.dataChange ?? (action.add ?? action.remove) !== undefined,
  );
}

function rowsOf(add: AddAction): number | undefined {
  return parseStats(add.stats).numRecords;
}

const quarantinePrefix = 'foreign-';

/** Returns the key of a table's file of another engine in quarantine. */
function foreignKey(tableDir: string, name: string): string {
  return quarantineKey({ table: path.basename(tableDir) }, `${quarantinePrefix}${name}`);
}

/** Reports whether a quarantined file is another engine's. */
export function isForeignFile(name: string): boolean {
  return name.startsWith(quarantinePrefix) || name.includes(`.${quarantinePrefix}`);
}

/** Lists the files of other engines that repairs have quarantined from a table. */
export async function listForeignFiles(lakeDir: string, tableDir: string): Promise<string[]> {
  const files = await listQuarantined(lakeDir);
  const start = path.basename(foreignKey(tableDir, ''));
  return files.filter((file) => path.basename(file).startsWith(start)).toSorted();
}

/** Moves files of a table, by their keys in it, to other keys of the lake. Durable. */
async function moveOut(tableDir: string, moves: ReadonlyMap<string, string>): Promise<void> {
  const store = lakeStore(path.dirname(tableDir));
  const all = [...moves].map(([key, to]) => [`${path.basename(tableDir)}/${key}`, to] as const);
  for (const [key, to] of all) await store.move(key, to);
  await store.sync(all.flat());
}

/** Quarantines uncommitted files of other engines in the table's own folder. Returns their number. */
export async function quarantineUnreferenced(tableDir: string, state: Readonly<TableState>): Promise<number> {
  const names = (await tableStore(tableDir).list('')).filter(
    (name) =>
      !name.includes('/') && name.endsWith('.parquet') && !name.startsWith('_') && !state.files.has(encodeURI(name)),
  );
  await moveOut(tableDir, new Map(names.map((name) => [name, foreignKey(tableDir, `unnamed-${name}`)])));
  return names.length;
}

async function takeOut({ tableDir }: RepairDependencies, { own, commits }: Damage): Promise<Repaired['filesTakenOut']> {
  const moves = new Map<string, string>();
  const takenOut = new Map<string, Repaired['filesTakenOut'][number]>();
  for (const { version, actions } of commits) {
    for (const { add } of actions) {
      if (add === undefined || own.files.has(add.path) || own.tombstones.has(add.path)) continue;
      const rows = rowsOf(add);
      const key = findKey(tableDir, add.path);
      if (key === undefined) {
        takenOut.set(add.path, { path: add.path, rows });
        continue;
      }
      const to = foreignKey(tableDir, `${version}-${path.basename(key)}`);
      if ((await tableStore(tableDir).findSize(key)) !== undefined && !moves.has(key)) moves.set(key, to);
      takenOut.set(add.path, { path: key, rows, to });
    }
  }
  await moveOut(tableDir, moves);
  return [...takenOut.values()];
}

interface Plan {
  /** Removes that need a separate commit before the same paths are added again. */
  readonly resets: readonly Action[];
  readonly actions: readonly Action[];
  readonly restored: readonly AddAction[];
  readonly columnsRestored: boolean;
  readonly protocolRestored: boolean;
}

function planRepair({ own, newest, commits }: Damage, nowMs: number): Plan {
  const dataChange = commits.some(changesRows);
  const restored = [...own.files.values()].filter((add) => {
    const now = newest.files.get(add.path);
    return now === undefined || !isSameAdd(now, add);
  });
  const resets = restored
    .flatMap((add) => newest.files.get(add.path) ?? [])
    .filter(hasDeletionVector)
    .map((add) => toRemove(add, nowMs, dataChange));
  const removes = [...newest.files.values()]
    .filter((add) => !own.files.has(add.path))
    .map((add) => toRemove(add, nowMs, dataChange));
  const columnsRestored =
    own.metaData !== undefined && JSON.stringify(own.metaData) !== JSON.stringify(newest.metaData);
  const protocolRestored = !isOwnProtocol(newest.protocol);
  const actions: Action[] = [
    ...(protocolRestored ? [{ protocol: tableProtocol }] : []),
    ...(columnsRestored && own.metaData !== undefined ? [{ metaData: own.metaData }] : []),
    ...[...own.txns]
      .filter(([appId, version]) => newest.txns.get(appId) !== version)
      .map(([appId, version]) => ({ txn: { appId, version } })),
    ...removes,
    ...restored.map((add) => ({ add: { ...add, dataChange } })),
  ];
  return { resets, actions, restored, columnsRestored, protocolRestored };
}

/** Commits the changes in order on top of the newest version; false if the other engine was faster. */
async function commitAll(
  { tableDir, clock, crashPoint }: RepairDependencies,
  { own, newest }: Damage,
  changes: readonly Change[],
): Promise<boolean> {
  let before = findLakeState(own.lastCommit);
  if (before === undefined)
    throw new AppError('lake_protocol', 'the lake has no commit of this service to continue from', {
      hint: 'Restore the lake from a backup.',
    });
  let { version, lastHash: previous } = newest;
  for (const change of changes) {
    version += 1;
    const stamp = { version, commitId: randomUUID(), nowMs: clock.nowMs(), previous };
    const commitInfo = toCommitInfo(before, change, stamp);
    const actions = [{ commitInfo }, ...change.actions];
    if (!(await linkCommit(tableDir, version, actions, crashPoint))) return false;
    before = findLakeState(commitInfo) ?? before;
    previous = hashCommit(renderCommit(actions));
  }
  return true;
}

/**
 * Repairs the table under the maintenance lock; undefined if it is intact. Errors: `foreign_commit` if the version
 * before it was trimmed, `commit_conflict` if the other engine keeps committing, `file_damaged`.
 */
export async function repairTable(dependencies: RepairDependencies): Promise<Repaired | undefined> {
  const { tableDir, clock, crashPoint } = dependencies;
  for (let attempt = 1; attempt <= 10; attempt += 1) {
    const damage = await findDamage(tableDir);
    if (damage === undefined) return undefined;
    const plan = planRepair(damage, clock.nowMs());
    const filesTakenOut = await takeOut(dependencies, damage);
    await crashPoint('repair-put-aside');
    const metrics = {
      undone: damage.commits.length,
      filesRestored: plan.restored.length,
      filesTakenOut: filesTakenOut.length,
    };
    const changes: Change[] = [
      ...(plan.resets.length > 0 ? [{ cause: 'reset', actions: plan.resets } as const] : []),
      { cause: 'repair', actions: plan.actions, metrics },
    ];
    if (!(await commitAll(dependencies, damage, changes))) continue;
    await crashPoint('repair-committed');
    return {
      version: damage.newest.version + changes.length,
      undone: damage.commits
        .filter(({ actions }) => changesTable(actions))
        .map((commit) => toForeignCommit(commit.version, findInfo(commit.actions))),
      filesRestored: plan.restored.length,
      rowsRestored: plan.restored.reduce((sum, add) => sum + (rowsOf(add) ?? 0), 0),
      filesTakenOut,
      columnsRestored: plan.columnsRestored,
      protocolRestored: plan.protocolRestored,
    };
  }
  throw new AppError('commit_conflict', 'another engine keeps committing to the table', {
    hint: "Stop that engine's job, then run the repair again.",
  });
}

/** Files of other engines in the log: checksums of Hadoop and Delta, and temporaries of delta-rs. */
const logLeftover = /\.crc$|^_commit_.*\.json\.tmp$/;
/** Files of other engines among the data: checksums and deletion vectors. */
const dataLeftover = /^\..*\.crc$|^deletion_vector_.*\.bin$/;

/** Removes leftovers of other engines in a folder. Their outdated checksums make Spark refuse the table permanently. */
export async function clearForeignLeftovers(tableDir: string): Promise<string[]> {
  if (tableStore(tableDir).folder === undefined) return [];
  const log = path.basename(logFolder(tableDir));
  const names = await listTree(tableDir);
  const found = names
    .filter((name) => (path.dirname(name) === log ? logLeftover : dataLeftover).test(path.basename(name)))
    .toSorted();
  for (const name of found) await removeFile(path.join(tableDir, name));
  for (const folder of new Set(found.map((name) => path.dirname(name)))) await syncFolder(path.join(tableDir, folder));
  return found;
}
