/**
 * A follower: the table of another dataset than the events, which gets the lines of its kinds out of the same stream.
 *
 * In: the judged batch of a flush. Out: a young file and a commit of its own, made before the commit of the events,
 * which are the leader: its position is where the stream is read from.
 * Invariant: a follower's log names the newest batch that it had lines of: the epoch, the last sequence, the hash of
 * that message. It is never ahead of the leader by more than one batch, and a batch never reaches across its position:
 * so each line is given to it once.
 * Crash: between the two commits the follower is ahead. The next batches end at its position and are not given to it
 * again. Where the message there is another one by now, the stream has lost its tail, and a new epoch begins, in which
 * the follower's rows are known by their keys.
 */
import assert from 'node:assert/strict';
import { type Dataset, events, importDatasets } from '../../datasets/dataset.ts';
import { createKnownRows } from '../../lake/batch/known-rows.ts';
import type { BatchLookUp, BatchTables, JudgedPart } from '../../lake/batch/batch-tables.ts';
import type { OnDamage } from '../../lake/batch/whole-files.ts';
import { type LakeOptions, hasTable, openDatasetTable } from '../../lake/lake.ts';
import { type Epoch, nextAvailableAtMs } from '../../lake/log/lake-state.ts';
import type { BuildChange, Table, TableOptions } from '../../lake/log/table.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import { assertOwner } from '../lake-owner.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Clock } from '../../runtime/clock.ts';
import { toAdd } from '../../lake/files/data-file.ts';
import { type FlushCommitDependencies, commitOwned, createYoungFile, moveOn } from './flush-commit.ts';
import type { Batch } from './pull-batch.ts';

export interface Follower {
  readonly dataset: Dataset;
  /** Its table; undefined while it has had no row. */
  find(): Table | undefined;
  /**
   * Takes in what others have committed; opens the table once it is there. What another engine has done to it is passed
   * over. Errors: those of `Table`, `fenced`.
   */
  refresh(): Promise<void>;
  /** Its table, made with its first row. Errors: those of `openDatasetTable`, `fenced`. */
  ensure(): Promise<Table>;
  /** Looks the rows of its kinds up. Errors: those of `KnownRows`. */
  lookUp(lookUp: BatchLookUp): Promise<void>;
  /** The newest `available_at` of what the last look-up has seen: 0 where it has seen no table. */
  lookedUpAtMs(): number;
}

interface FollowerDependencies {
  readonly lakeDir: string;
  /** The table of events. */
  readonly leader: Table;
  /** This compactor's claim on the lake. */
  readonly writer: string;
  readonly tables: BatchTables;
  readonly onDamage: OnDamage;
  readonly options: LakeOptions & TableOptions;
}

/**
 * Claims the table, as the start of a compactor has claimed the lake: whoever had it before can commit nothing to it
 * any more.
 */
async function claim(table: Table, { leader, writer }: FollowerDependencies): Promise<void> {
  const before = table.lake().writer;
  await leader.refresh();
  assertOwner(leader.lake(), writer);
  await table.commit((_state, lake) => {
    // Whoever has claimed it since has claimed the lake since, too.
    if (lake.writer !== before)
      throw new AppError('fenced', `another compactor has taken over the table ${table.dir}`, {
        hint: 'Let only one compactor run on a data folder.',
      });
    return { cause: 'start', actions: [], writer };
  });
}

/** Creates the follower; its table is opened with the first `refresh` that finds it. */
function createFollower(dataset: Dataset, dependencies: FollowerDependencies): Follower {
  const { lakeDir, tables, onDamage, options } = dependencies;
  const known = createKnownRows({ tables, dataset, onDamage });
  let table: Table | undefined;
  let lookedUpAtMs = 0;
  let isSought = false;

  async function open(): Promise<Table> {
    const opened = await openDatasetTable(lakeDir, dataset, options);
    await claim(opened, dependencies);
    table = opened;
    return opened;
  }

  return {
    dataset,
    find: () => table,
    async refresh() {
      try {
        if (table !== undefined) await table.refresh();
        else if (!isSought && (await hasTable(lakeDir, dataset))) await open();
        // One that another process makes since has nothing of the stream: it is found with the first row of its kinds.
        isSought = true;
        // Those who take removed files away have a table of their own (follower-tables.ts): here the list only grows.
        table?.state().tombstones.clear();
      } catch (error) {
        // Batches without lines of its kinds go on. One with such lines fails when it is looked up, or written.
        if (!isAppError(error, 'foreign_commit')) throw error;
      }
    },
    ensure: async () => table ?? open(),
    async lookUp(lookUp) {
      lookedUpAtMs = table === undefined ? 0 : await known.lookUp(lookUp, table);
    },
    lookedUpAtMs: () => lookedUpAtMs,
  };
}

/** Creates a follower for each dataset but the events that has kinds of imported events. */
export function createFollowers(dependencies: FollowerDependencies): Follower[] {
  return importDatasets.filter((dataset) => dataset !== events).map((dataset) => createFollower(dataset, dependencies));
}

/** The least of the states that are ahead of one of the same stream. */
export function findLeastAhead<T extends Pick<Epoch, 'appId' | 'position'>>(
  states: readonly T[],
  { appId, position }: Pick<Epoch, 'appId' | 'position'>,
): T | undefined {
  return states
    .filter((own) => own.appId === appId && own.position > position)
    .toSorted((a, b) => a.position - b.position)[0];
}

/**
 * The state of the follower that is least ahead of the leader, by a batch which that has not: a crash came between their
 * commits, or a backup has followers as they were later. Each follower takes a batch up to there. Undefined: none is.
 */
export function findAhead(followers: readonly Follower[], epoch: Epoch): Epoch | undefined {
  return findLeastAhead(
    followers.flatMap((follower) => follower.find()?.lake().epoch ?? []),
    epoch,
  );
}

/** What a follower has of a batch that is being flushed. */
export interface FollowerFlush {
  readonly part: JudgedPart;
  /** Bytes of its young file. */
  sizeBytes(): number;
  /** Writes the rows, durably; makes the table if they are its first. */
  write(): Promise<void>;
  /**
   * Commits them, with the position. Errors: `fenced`, `commit_conflict` when another process has brought rows since
   * they were judged.
   */
  commit(): Promise<void>;
  /** After an error: removes what its log does not name. */
  removeUnnamed(): Promise<void>;
}

export interface FollowerFlushDependencies extends FlushCommitDependencies {
  readonly followers: readonly Follower[];
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

/** Where a follower stood when a batch was judged. */
interface Standing {
  /** Its position in the epoch; undefined: it has nothing of that. */
  readonly position: number | undefined;
  readonly availableAtMs: number;
}

function createBuild(
  { writer }: FollowerFlushDependencies,
  { rows, repeats }: JudgedPart,
  flushed: { readonly epoch: Epoch; readonly standing: Standing; readonly availableAtMs: number },
  add: ReturnType<typeof toAdd> | undefined,
): BuildChange {
  const { epoch, standing, availableAtMs } = flushed;
  const { appId, position } = epoch;
  return (state, lake) => {
    assertOwner(lake, writer);
    if (state.txns.get(appId) !== standing.position)
      throw new AppError('commit_conflict', 'another compactor has given the table a batch before it was taken over');
    // Whoever brings rows brings a later one: they may be those of the batch.
    if (lake.availableAtMs !== standing.availableAtMs)
      throw new AppError('commit_conflict', 'another process has brought rows to the table');
    return {
      cause: 'flush',
      actions: [
        { txn: { appId, version: position, lastUpdated: availableAtMs } },
        ...(add === undefined ? [] : [{ add }]),
      ],
      epoch,
      availableAtMs,
      totals: { streamed: rows + repeats, stored: rows, repeats },
      metrics: { rows, bytes: add?.size ?? 0, events: rows + repeats, lastSequence: position },
    };
  };
}

function createFollowerFlush(
  dependencies: FollowerFlushDependencies,
  { part, follower }: { readonly part: JudgedPart; readonly follower: Follower },
  { batch, epoch, commitId }: { readonly batch: Batch; readonly epoch: Epoch; readonly commitId: string },
): FollowerFlush {
  const { table: leader, writer, clock } = dependencies;
  const standing: Standing = {
    position: follower.find()?.state().txns.get(epoch.appId),
    availableAtMs: follower.lookedUpAtMs(),
  };
  let young: ReturnType<typeof createYoungFile> | undefined;
  let made: { readonly build: BuildChange; readonly sizeBytes: number } | undefined;
  return {
    part,
    sizeBytes: () => made?.sizeBytes ?? 0,
    async write() {
      const table = await follower.ensure();
      young = createYoungFile(table, commitId);
      const availableAtMs = nextAvailableAtMs(clock, table.lake());
      const written = await young.write((file) => part.writeYoung(file, availableAtMs, batch.bytes));
      const add = written === undefined ? undefined : toAdd(young.path, written, availableAtMs, true);
      const flushed = { epoch: moveOn(epoch, batch), standing, availableAtMs };
      made = { build: createBuild(dependencies, part, flushed, add), sizeBytes: written?.sizeBytes ?? 0 };
    },
    async commit() {
      assert(made !== undefined, 'the rows are written before they are committed');
      // The claim on the leader is the one that counts: it may have been lost since the batch was pulled.
      await leader.refresh();
      assertOwner(leader.lake(), writer);
      await commitOwned(dependencies, await follower.ensure(), made.build, commitId);
    },
    async removeUnnamed() {
      await young?.removeUnnamed();
    },
  };
}

/** Plans what each follower gets of a batch: the lines of its kinds, unless it has the batch already. */
export function planFollowers(
  dependencies: FollowerFlushDependencies,
  others: readonly JudgedPart[],
  flushing: { readonly batch: Batch; readonly epoch: Epoch; readonly commitId: string },
): FollowerFlush[] {
  const { batch, epoch } = flushing;
  return others.flatMap((part) => {
    const follower = dependencies.followers.find(({ dataset }) => dataset === part.dataset);
    assert(follower !== undefined, `the table ${part.dataset.table} follows the events`);
    const position = follower.find()?.state().txns.get(epoch.appId) ?? epoch.position;
    if (position <= epoch.position) return [createFollowerFlush(dependencies, { part, follower }, flushing)];
    assert(batch.lastSequence <= position, `the batch reaches across the position of ${part.dataset.table}`);
    return [];
  });
}
