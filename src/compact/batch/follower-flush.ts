import assert from 'node:assert/strict';
import { AppError } from '../../runtime/errors.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { JudgedPart } from '../../lake/batch/batch-tables.ts';
import { toAdd } from '../../lake/files/data-file.ts';
import { nextAvailableAtMs, type Epoch } from '../../lake/log/lake-state.ts';
import type { BuildChange } from '../../lake/log/table.ts';
import { assertOwner } from '../lake-owner.ts';
import { commitOwned, moveOn, type FlushCommitDependencies } from './flush-commit.ts';
import { createYoungFile } from './flush-files.ts';
import type { Follower } from './follower.ts';
import type { Batch } from './pull-batch.ts';

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
