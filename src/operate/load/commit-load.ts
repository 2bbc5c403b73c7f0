import { AppError, isAppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { toAdd, type WrittenPart } from '../../lake/files/data-file.ts';
import type { FindErasedIds } from '../../lake/find/erased-ids.ts';
import type { OpenChange } from '../../lake/files/change.ts';
import {
  nextAvailableAtMs,
  findLoadState,
  isSameLoadState,
  listLoadStates,
  toLoadTxn,
  type LoadState,
} from '../../lake/log/lake-state.ts';
import type { Action } from '../../lake/log/actions.ts';
import type { Table } from '../../lake/log/table.ts';
import { youngFolder } from '../../lake/log/young-folder.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { countRows, restamp, takeOutErased, takeOutRepeats } from './repeats.ts';

/** Each attempt after the first follows a commit that another has made meanwhile. */
const maxAttempts = 100;
/** A second `available_at` is taken at least so far ahead, since giving it to all rows takes time, milliseconds. */
const minStampAheadMs = 60_000;

/**
 * How far ahead the `available_at` of rows is taken that get another, milliseconds: they have to be written with it
 * before the table's own gets there. `tookMs`: how long that took the last time; 0 before the first.
 */
export function stampAheadMs(tookMs: number): number {
  return Math.max(minStampAheadMs, Math.ceil(2 * tookMs));
}

export interface CommitDependencies {
  readonly table: Table;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

/** The rows of a file, staged, and what has to be known of them for the commit. */
export interface StagedLoad {
  readonly loadId: string;
  readonly change: OpenChange;
  readonly files: readonly WrittenPart[];
  /** The rows that cannot be loaded. */
  readonly failed: number;
  /** How many failed rows the load has from an earlier generation, whose place these take. */
  readonly failedBefore: number;
  /** What the log said of the load when it began. */
  readonly before: LoadState | undefined;
  /** The `available_at` of the rows, Unix milliseconds. */
  readonly availableAtMs: number;
  /** Finds the hashes of the rows that were erased, and are not stored again; absent: they are. */
  readonly findErased?: FindErasedIds | undefined;
  /** Name of the file, for the history. */
  readonly name: string;
}

export interface CommittedLoad {
  readonly stored: number;
  readonly repeats: number;
  /** Rows that were erased before. */
  readonly erased: number;
}

/** What the log says of a load that is made now. */
export function nextLoadState(before: LoadState | undefined): LoadState {
  return { generation: (before?.generation ?? 0) + 1, status: 'loaded' };
}

type LoadStates = ReadonlyMap<string, LoadState>;

/** The loads that have rows in the table, or may have some: rows of another may be repeats of theirs. */
function listLive(txns: ReadonlyMap<string, number>): LoadStates {
  return new Map([...listLoadStates(txns)].filter(([, { status }]) => status !== 'undone'));
}

/**
 * Throws where one of `loads` was undone since: its rows are gone, and those that were taken for repeats of them would
 * be nowhere. One of a later generation may have been undone in between.
 */
function assertNoneUndone(loads: LoadStates, txns: ReadonlyMap<string, number>): void {
  for (const [id, { generation }] of loads) {
    const now = findLoadState(txns, id);
    if (now?.generation === generation && now.status !== 'undone') continue;
    throw new AppError(
      'commit_conflict',
      `the load ${id} was undone meanwhile, and rows that it had were left out: nothing was loaded`,
      { hint: 'Repeat the command.' },
    );
  }
}

interface Attempt {
  readonly files: readonly WrittenPart[];
  readonly availableAtMs: number;
  /** Files of the table whose rows were looked at. */
  readonly seen: ReadonlySet<string>;
  /** The loads that rows may have been taken for repeats of. */
  readonly judgedBy: LoadStates;
  /** Rows that were left out because they were erased before. */
  readonly erased: number;
}

/** Makes the commit; throws `commit_conflict` where the table has changed in a way that matters. */
async function tryCommit(
  { clock }: CommitDependencies,
  load: StagedLoad,
  { files, availableAtMs, seen, judgedBy, erased }: Attempt,
  rows: number,
): Promise<CommittedLoad> {
  const stored = countRows(files);
  const failed = load.failed - load.failedBefore;
  const repeats = rows + load.failed - stored - failed - erased;
  const nowMs = clock.nowMs();
  const named = files.map((one, index) => ({ ...one, path: `${youngFolder}/${load.change.id}-${index}.parquet` }));
  const adds = named.map((one): Action => ({ add: toAdd(one.path, one, nowMs, true) }));
  await load.change.commit(named, (state, lake) => {
    if (!isSameLoadState(findLoadState(state.txns, load.loadId), load.before))
      throw new AppError('commit_conflict', 'the same file was loaded, or its load undone, meanwhile');
    if (stored < rows) assertNoneUndone(judgedBy, state.txns);
    if ([...state.files.keys()].some((file) => !seen.has(file)))
      throw new AppError('commit_conflict', 'rows were added to the table meanwhile');
    if (stored > 0 && lake.availableAtMs >= availableAtMs)
      throw new AppError('commit_conflict', 'the newest available_at of the table has changed meanwhile');
    return {
      cause: 'load',
      actions: [{ txn: toLoadTxn(load.loadId, nextLoadState(load.before), nowMs) }, ...adds],
      totals: { streamed: rows + load.failed, stored, failed, repeats, erased },
      ...(stored > 0 ? { availableAtMs } : {}),
      metrics: {
        load: load.loadId,
        file: load.name,
        rows: stored,
        bytes: files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
        repeats,
        ...(erased === 0 ? {} : { erased }),
        failed: load.failed,
      },
    };
  });
  return { stored, repeats, erased };
}

/** Says whether another has made the same load. Throws where what it was before was undone: it has to begin anew. */
function isMadeMeanwhile(table: Table, { loadId, before }: StagedLoad): boolean {
  const now = findLoadState(table.state().txns, loadId);
  if (isSameLoadState(now, before)) return false;
  if (now?.status === 'loaded') return true;
  throw new AppError('commit_conflict', `the load ${loadId} was undone meanwhile: nothing was loaded`, {
    hint: 'Repeat the command.',
  });
}

/**
 * Takes repeats, and rows that were erased, out of a staged load and commits it, by one commit. What others commit meanwhile is looked through
 * before another attempt. Undefined: the same load was made by another meanwhile. Errors: `file_damaged`,
 * `commit_conflict` where a load was undone that rows were repeats of, or after many attempts, `disk`, `memory`, `sql`.
 */
export async function commitLoad(
  dependencies: CommitDependencies,
  load: StagedLoad,
  assertGoesOn: () => void,
): Promise<CommittedLoad | undefined> {
  const { table, duckdb, clock, crashPoint } = dependencies;
  const rows = countRows(load.files);
  const seen = new Set<string>();
  let rooms = 0;
  const makeRoom = (): Promise<string> => load.change.makeRoom(`again-${(rooms += 1)}`);
  let { files, availableAtMs } = load;
  let judgedBy: LoadStates = new Map();
  let tookMs = 0;
  let erased = 0;
  for (let attempt = 1; ; attempt += 1) {
    await table.refresh();
    if (isMadeMeanwhile(table, load)) return undefined;
    if (countRows(files) === rows) judgedBy = new Map();
    else assertNoneUndone(judgedBy, table.state().txns);
    judgedBy = new Map([...judgedBy, ...listLive(table.state().txns)]);
    const live = table.snapshot().files;
    const news = live.filter((file) => !seen.has(encodeURI(file.path)));
    files = await takeOutRepeats(duckdb, files, news, { own: attempt === 1, makeRoom });
    for (const encoded of table.state().files.keys()) seen.add(encoded);
    // After the table: an erasure has the log name the hashes before its rows go.
    const erasedIds = (await load.findErased?.())?.file;
    if (erasedIds !== undefined) {
      const before = countRows(files);
      files = await takeOutErased(duckdb, files, erasedIds, makeRoom);
      erased += before - countRows(files);
    }
    if (files.length > 0 && table.lake().availableAtMs >= availableAtMs) {
      availableAtMs = nextAvailableAtMs(clock, table.lake()) + stampAheadMs(tookMs);
      const begunAtMs = performance.now();
      files = await restamp(duckdb, files, availableAtMs, makeRoom);
      tookMs = performance.now() - begunAtMs;
    }
    assertGoesOn();
    await crashPoint('load-staged');
    try {
      const committed = await tryCommit(dependencies, load, { files, availableAtMs, seen, judgedBy, erased }, rows);
      await crashPoint('load-committed');
      return committed;
    } catch (error) {
      if (!isAppError(error, 'commit_conflict') || attempt === maxAttempts) throw error;
    }
  }
}
