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
import { events, importDatasets, type Dataset } from '../../datasets/dataset.ts';
import { createKnownRows } from '../../lake/batch/known-rows.ts';
import type { BatchLookUp, BatchTables } from '../../lake/batch/batch-tables.ts';
import type { OnDamage } from '../../lake/batch/whole-files.ts';
import { hasTable, openDatasetTable, type LakeOptions } from '../../lake/lake.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import type { Table, TableOptions } from '../../lake/log/table.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import { assertOwner } from '../lake-owner.ts';

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

export interface FollowerDependencies {
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
