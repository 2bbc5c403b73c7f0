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
import type { BatchLookUp, BatchTables, JudgedBatch, LoadedBatch } from '../../lake/batch/batch-tables.ts';
import { type Failure, readFailures, takeOutTooLarge } from '../../lake/batch/spool-lines.ts';
import type { KeysSeen, RecentKeys } from '../../lake/batch/recent-keys.ts';
import type { WrittenFile } from '../../lake/files/data-file.ts';
import { nextAvailableAtMs, type Epoch } from '../../lake/log/lake-state.ts';
import { assertOwner } from '../lake-owner.ts';
import { type FlushFiles, commitFlush, createFlushFiles } from './flush-commit.ts';
import { type FollowerFlush, type FollowerFlushDependencies, planFollowers } from './follower.ts';
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

/** A batch that has a verdict, and whose rows of the table of events are in the young file. */
interface Written {
  readonly judged: Pick<JudgedBatch, 'rows' | 'repeats' | 'others' | 'addsKeys'> & KeysSeen;
  readonly written: WrittenFile | undefined;
  /** After the commit: the memory of keys takes in what the batch has brought. */
  remember(added: Parameters<RecentKeys['remember']>[1]): Promise<void>;
}

/** What is known of such a batch beside that. */
interface TakenIn extends Written {
  readonly failures: readonly Failure[];
  readonly refused: AppError | undefined;
  readonly straight: boolean;
  /** What is the other tables', not written yet. */
  readonly followed: readonly FollowerFlush[];
}

/** A batch on its way: pulled, with the files that it is to be written to. */
interface Taking {
  readonly batch: Batch;
  readonly epoch: Epoch;
  readonly files: FlushFiles;
  readonly availableAtMs: number;
}

/** Judges a loaded batch; `found` is told the verdict before the rows are written. */
async function judgeAndWrite(
  { keys, crashPoint }: FlushDependencies,
  loaded: LoadedBatch,
  { batch, epoch, files, availableAtMs }: Taking,
  loadMore?: (lookUp: BatchLookUp) => Promise<void>,
  found?: (judged: JudgedBatch) => Promise<void>,
): Promise<Written> {
  const judged = await keys.judge(loaded, batch.firstSequence <= epoch.dedupeThrough, loadMore);
  await crashPoint('flush-converted');
  await found?.(judged);
  const written = await files.young.write((file) => judged.writeYoung(file, availableAtMs, batch.bytes));
  return { judged, written, remember: (added) => keys.remember(judged, added) };
}

/**
 * Takes in a batch that leaves nothing but keys to judge; undefined, and there is no file, when it does: its lines are
 * not all plain, the lake may have it under another position, or the engine has no memory for some.
 */
async function takeInPlain(dependencies: FlushDependencies, taking: Taking): Promise<Written | undefined> {
  const { tables, crashPoint, isolate } = dependencies;
  const { batch, epoch, files, availableAtMs } = taking;
  const { file: spool, events, firstSequence } = batch;
  if (isolate === true || events === 0 || firstSequence <= epoch.dedupeThrough) return undefined;
  const lines = { file: spool, events };
  const keyless = await files.young.write((file) => tables.writePlain(lines, file, availableAtMs));
  if (keyless !== undefined) {
    await crashPoint('flush-converted');
    const judged = { rows: events, repeats: 0, others: [], addsKeys: false, keysSeen: undefined };
    return { judged, written: keyless, remember: async () => undefined };
  }
  const loaded = await tables.loadKeyed(lines);
  const taken = loaded && (await judgeAndWrite(dependencies, loaded, taking));
  return taken?.written === undefined ? undefined : taken;
}

/** Takes in a batch: straight from the spool to the file where that will do, and by way of the tables otherwise. */
async function takeIn(dependencies: FlushDependencies, taking: Taking): Promise<TakenIn> {
  const { tables, followers, isolate } = dependencies;
  const plain = await takeInPlain(dependencies, taking);
  if (plain !== undefined) return { ...plain, failures: [], refused: undefined, straight: true, followed: [] };
  const { batch, epoch, files } = taking;
  const tooLarge = isolate === true ? await takeOutTooLarge(tables, batch.file) : [];
  const loaded = await tables.load(batch.file, batch.events - tooLarge.length);
  let failures: readonly Failure[] = [];
  let followed: readonly FollowerFlush[] = [];
  const taken = await judgeAndWrite(
    dependencies,
    loaded,
    taking,
    async (lookUp) => {
      for (const follower of followers) await follower.lookUp(lookUp);
    },
    async (judged) => {
      failures = [...tooLarge, ...(await readFailures(batch.file, judged.failedLines))];
      // By where they stood when the batch was judged.
      followed = planFollowers(dependencies, judged.others, { batch, epoch, commitId: files.commitId });
    },
  );
  return { ...taken, failures, refused: loaded.refused, straight: false, followed };
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
    const takenIn = await takeIn(dependencies, { batch, epoch, files, availableAtMs });
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
