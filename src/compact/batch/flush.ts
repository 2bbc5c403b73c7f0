/**
 * One batch of the stream becomes one commit of the lake.
 *
 * In: messages after the lake's position, pulled into a spool file (pull-batch.ts). Out: a young file, failed events
 * with their reason, one commit that adds the file, moves the position and counts the events; before it, for each other
 * table that the batch has lines of, a young file and a commit of its own (follower.ts).
 * Invariant: the file and its folder, and the failed events, are fsynced before the commit; the commit is made only
 * where the position is still the one that the batch began after, and the lake is still this compactor's.
 * Crash: before the commit unnamed young files and pending failed events, which the next start sweeps and settles, and
 * perhaps a follower that is ahead by this batch; after it only the purge is missing, and the next flush makes it. The
 * spool is never durable.
 */
import { randomUUID } from 'node:crypto';
import type { AppError } from '../../runtime/errors.ts';
import type { BatchTables, JudgedBatch } from '../../lake/batch/batch-tables.ts';
import { takeOutTooLarge } from '../../lake/batch/isolate.ts';
import type { KeysSeen, RecentKeys } from '../../lake/batch/recent-keys.ts';
import { readFailures, type Failure } from '../../lake/batch/spool-lines.ts';
import type { WrittenFile } from '../../lake/files/data-file.ts';
import { nextAvailableAtMs, type Epoch } from '../../lake/log/lake-state.ts';
import { assertOwner } from '../lake-owner.ts';
import { commitFlush } from './flush-commit.ts';
import { createFlushFiles, type FlushFiles } from './flush-files.ts';
import { planFollowers, type FollowerFlush, type FollowerFlushDependencies } from './follower-flush.ts';
import type { Batch } from './pull-batch.ts';

/** The steps of a flush at which a crash is tested, beside those of the commit in its midst. */
export const flushSteps = [
  'flush-spooled',
  'flush-converted',
  'flush-written',
  'flush-failed-kept',
  'flush-follower-written',
  'flush-follower-committed',
  'flush-committed',
  'flush-settled',
  'flush-purged',
] as const;

export interface FlushDependencies extends FollowerFlushDependencies {
  readonly tables: BatchTables;
  readonly keys: RecentKeys;
  readonly failedDir: string;
  /** Look for events that the engine has no memory for, and keep them as failed ones. The batch is of one message. */
  readonly isolate?: boolean;
}

/** What a flush did, for its log line and the metrics: rows, repeats and bytes of all tables. */
export interface Flushed {
  readonly version: number;
  readonly events: number;
  readonly rows: number;
  readonly failed: number;
  readonly failures: readonly Failure[];
  readonly repeats: number;
  readonly sizeBytes: number;
  readonly epoch: Epoch;
  /** It went straight from the spool to the file. */
  readonly straight: boolean;
  /** Why its lines had to be read one by one. */
  readonly refused?: AppError | undefined;
}

/** A batch whose rows of the table of events are in the young file, and the events that fail. */
interface TakenIn {
  readonly judged: Pick<JudgedBatch, 'rows' | 'repeats' | 'others' | 'addsKeys'> & KeysSeen;
  readonly written: WrittenFile | undefined;
  readonly failures: readonly Failure[];
  readonly refused: AppError | undefined;
  readonly straight: boolean;
  /** What is the other tables', not written yet. */
  readonly followed: readonly FollowerFlush[];
  /** After the commit: the memory of keys takes in what the batch has brought. */
  remember(added: Parameters<RecentKeys['remember']>[1]): Promise<void>;
}

/** What plain lines bring: rows of the table of events, written straight from the spool, and nothing that fails. */
const plainlyTaken = { failures: [], refused: undefined, straight: true, followed: [] } as const;

/**
 * Takes in a batch that leaves nothing but keys to judge; undefined, and there is no file, when it does: its lines are
 * not all plain, the lake may have it under another position, or the engine has no memory for some.
 */
async function takeInPlain(
  { tables, keys, crashPoint, isolate }: FlushDependencies,
  { file: spool, events, firstSequence }: Batch,
  epoch: Epoch,
  { young }: FlushFiles,
  availableAtMs: number,
): Promise<TakenIn | undefined> {
  if (isolate === true || events === 0 || firstSequence <= epoch.dedupeThrough) return undefined;
  const lines = { file: spool, events };
  const keyless = await young.write((file) => tables.writePlain(lines, file, availableAtMs));
  if (keyless !== undefined) {
    await crashPoint('flush-converted');
    const judged = { rows: events, repeats: 0, others: [], addsKeys: false, keysSeen: undefined };
    return { ...plainlyTaken, judged, written: keyless, remember: async () => undefined };
  }
  const loaded = await tables.loadKeyed(lines);
  if (loaded === undefined) return undefined;
  const judged = await keys.judge(loaded, false);
  await crashPoint('flush-converted');
  const written = await young.write((file) => judged.writePlain(file, availableAtMs));
  if (written === undefined) return undefined;
  const remember: TakenIn['remember'] = (added) => keys.remember(judged, added);
  return { ...plainlyTaken, judged: { ...judged, others: [] }, written, remember };
}

/** Converts, judges and writes the batch by way of the tables. */
async function takeInJudged(
  dependencies: FlushDependencies,
  batch: Batch,
  epoch: Epoch,
  { commitId, young }: FlushFiles,
  availableAtMs: number,
): Promise<TakenIn> {
  const { tables, keys, followers, crashPoint, isolate } = dependencies;
  const tooLarge = isolate === true ? await takeOutTooLarge(tables, batch.file) : [];
  const loaded = await tables.load(batch.file, batch.events - tooLarge.length);
  const judged = await keys.judge(loaded, batch.firstSequence <= epoch.dedupeThrough, async (lookUp) => {
    for (const follower of followers) await follower.lookUp(lookUp);
  });
  await crashPoint('flush-converted');
  const failures = [...tooLarge, ...(await readFailures(batch.file, judged.failedLines))];
  // By where they stood when the batch was judged.
  const followed = planFollowers(dependencies, judged.others, { batch, epoch, commitId });
  const written = await young.write((file) => judged.writeYoung(file, availableAtMs, batch.bytes));
  const remember: TakenIn['remember'] = (added) => keys.remember(judged, added);
  return { judged, written, failures, refused: loaded.refused, straight: false, followed, remember };
}

/** Commits what the followers have of the batch: before the leader, whose position says what of the stream is done. */
async function commitFollowers({ crashPoint }: FlushDependencies, followed: readonly FollowerFlush[]): Promise<void> {
  for (const follower of followed) {
    await follower.commit();
    await crashPoint('flush-follower-committed');
  }
}

/** Adds up what the tables have got. */
function sumUp(judged: TakenIn['judged'], followed: readonly FollowerFlush[], sizeBytes: number) {
  const parts = [judged, ...followed.map(({ part }) => part)];
  return {
    rows: parts.reduce((sum, { rows }) => sum + rows, 0),
    repeats: parts.reduce((sum, { repeats }) => sum + repeats, 0),
    sizeBytes: followed.reduce((sum, follower) => sum + follower.sizeBytes(), sizeBytes),
  };
}

/**
 * Takes a pulled batch into the lake: converts it, writes its rows to one file, keeps what could not be written,
 * commits. Returns when the commit is durable; the caller purges the stream. A crash before the commit leaves an
 * unnamed file, swept at start; after it, nothing but the purge is missing. Errors: `fenced`, `commit_conflict`,
 * `disk`, `sql`.
 */
export async function flushBatch(dependencies: FlushDependencies, batch: Batch, epoch: Epoch): Promise<Flushed> {
  const { table, clock, crashPoint } = dependencies;
  await crashPoint('flush-spooled');
  const commitId = randomUUID();
  const before = table.lake().availableAtMs;
  const availableAtMs = nextAvailableAtMs(clock, table.lake());
  const files = createFlushFiles(table, dependencies.failedDir, commitId);
  let followed: readonly FollowerFlush[] = [];
  try {
    const takingIn = [dependencies, batch, epoch, files, availableAtMs] as const;
    const takenIn = (await takeInPlain(...takingIn)) ?? (await takeInJudged(...takingIn));
    const { judged, written, failures, refused, straight } = takenIn;
    followed = takenIn.followed;
    await crashPoint('flush-written');
    if (failures.length > 0) {
      await files.writeFailed(failures, availableAtMs);
      await crashPoint('flush-failed-kept');
    }
    for (const follower of followed) {
      await follower.write();
      await crashPoint('flush-follower-written');
    }
    await commitFollowers(dependencies, followed);
    const youngPath = files.young.path;
    const failed = failures.length;
    const flushed = { commitId, batch, epoch, judged, before, availableAtMs, youngPath, written, failed };
    const committed = await commitFlush(dependencies, flushed);
    const { version } = committed;
    await crashPoint('flush-committed');
    // First: until the failed events have their names, an erasure waits for them.
    await files.settle();
    await crashPoint('flush-settled');
    await takenIn.remember(judged.addsKeys ? { version, keysCommit: commitId } : undefined);
    return {
      ...committed,
      events: batch.events,
      failed,
      failures,
      ...sumUp(judged, followed, written?.sizeBytes ?? 0),
      straight,
      refused,
    };
  } catch (error) {
    await files.removeUnnamed();
    for (const follower of followed) await follower.removeUnnamed();
    // The start of another compactor sweeps what this one was writing: then that is what has happened.
    assertOwner(table.lake(), dependencies.writer, error);
    throw error;
  }
}
