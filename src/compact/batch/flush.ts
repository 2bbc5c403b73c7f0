/**
 * One batch of the stream becomes one commit of the lake.
 *
 * In: messages after the lake's position, pulled into a spool file (pull-batch.ts). Out: a young file, failed events
 * with their reason, one commit that adds the file, moves the position and counts the events.
 * Invariant: the file and its folder, and the failed events, are fsynced before the commit; the commit is made only
 * where the position is still the one that the batch began after, and the lake is still this compactor's.
 * Crash: before the commit an unnamed young file and pending failed events, which the next start sweeps and settles;
 * after it only the purge is missing, and the next flush makes it. The spool is never durable.
 */
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { removeFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Action } from '../../lake/log/actions.ts';
import { toAdd, writeDataFile, type WrittenFile } from '../../lake/files/data-file.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { nextAvailableAtMs } from '../../lake/log/available-at.ts';
import { isCommitted, settleFailed, writePendingFailed } from '../../lake/files/failed-events.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import { rowGroupRows } from '../../lake/files/row-memory.ts';
import type { BuildChange, Table } from '../../lake/log/table.ts';
import { youngFolder } from '../../lake/log/young-folder.ts';
import { convertSpool, readFailures, rowsSql, type BadLine } from '../../lake/batch/convert.ts';
import { forgetLookUps, judgeBatch, lookUpEvents, type Verdict } from '../../lake/batch/deduplicate.ts';
import { takeOutTooLarge } from '../../lake/batch/isolate.ts';
import { assertOwner } from '../lake-owner.ts';
import type { Batch } from './pull-batch.ts';
import type { RecentKeys } from '../../lake/batch/recent-keys.ts';

/** The steps of a flush at which a crash is tested, beside those of the commit in its midst. */
export const flushSteps = [
  'flush-spooled',
  'flush-converted',
  'flush-written',
  'flush-failed-kept',
  'flush-committed',
  'flush-settled',
  'flush-purged',
] as const;

export interface FlushDependencies {
  readonly table: Table;
  readonly duckdb: Duckdb;
  readonly keys: RecentKeys;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly failedDir: string;
  /** This compactor's claim on the lake. */
  readonly writer: string;
  /** Throws when the stream has become another service's, who then takes these messages in: asked as late as can be. */
  readonly assertStreamOwner?: () => Promise<void>;
  /** For how long its word holds, milliseconds, by a clock that runs on while this process stands still. */
  readonly ownerHoldsMs?: number;
  /** Look for events that the engine has no memory for, and keep them as failed ones. The batch is of one message. */
  readonly isolate?: boolean;
}

/** What a flush did, for its log line and the metrics. */
export interface Flushed {
  readonly version: number;
  readonly events: number;
  readonly rows: number;
  readonly failed: number;
  readonly repeats: number;
  readonly sizeBytes: number;
  readonly epoch: Epoch;
  /** Why its lines had to be read one by one. */
  readonly refused?: AppError | undefined;
}

/** Half of what an owner that is silent is waited for (the lease of stream/owner.ts). */
const defaultOwnerHoldsMs = 5000;

/** Writes the batch's rows to one young file, durably; undefined when no row is left to write. */
async function writeRows(
  dependencies: FlushDependencies,
  batch: Batch,
  availableAtMs: number,
  file: string,
): Promise<WrittenFile | undefined> {
  const { duckdb } = dependencies;
  const [row] = await duckdb.rows(
    'SELECT count(*) AS n, sum(cardinality(custom_event_params))::BIGINT AS entries FROM batch WHERE NOT bad AND rowid NOT IN (SELECT r FROM dropped)',
  );
  if (Number(row?.['n']) === 0) return undefined;
  const rowGroup = {
    rows: rowGroupRows(duckdb.memoryMb, {
      rows: batch.events,
      lineBytes: batch.bytes,
      entries: Number(row?.['entries'] ?? 0),
    }),
  };
  const written = await writeDataFile(duckdb, rowsSql(availableAtMs), file, 'young', rowGroup);
  await syncFolder(path.dirname(file));
  return written;
}

/**
 * Judges the converted batch; with `lookUpAll`, also by what the lake has of it under another position in the stream.
 */
async function dedupe({ table, duckdb, keys }: FlushDependencies, lookUpAll: boolean): Promise<Verdict> {
  await keys.cover();
  if (lookUpAll) {
    await forgetLookUps(duckdb);
    await lookUpEvents(duckdb, table.snapshot().files);
  }
  return judgeBatch(duckdb, 'stream', lookUpAll);
}

/**
 * Takes a gathered batch into the lake: converts it, writes its rows to one file, keeps what could not be written,
 * commits. Returns when the commit is durable; the caller purges the stream. A crash before the commit leaves an
 * unnamed file, swept at start; after it, nothing but the purge is missing. Errors: `fenced`, `commit_conflict`,
 * `disk`, `sql`.
 */
export async function flushBatch(dependencies: FlushDependencies, batch: Batch, epoch: Epoch): Promise<Flushed> {
  const { table, duckdb, keys, clock, crashPoint, failedDir, writer } = dependencies;
  await crashPoint('flush-spooled');
  const commitId = randomUUID();
  const before = table.lake().availableAtMs;
  const availableAtMs = nextAvailableAtMs(clock, table.lake());
  const tooLarge = dependencies.isolate === true ? await takeOutTooLarge(duckdb, batch.file) : [];
  const converted = await convertSpool(duckdb, batch.file, batch.events - tooLarge.length);
  const verdict = await dedupe(dependencies, batch.firstSequence <= epoch.dedupeThrough);
  const keysSeen = keys.seen();
  await crashPoint('flush-converted');

  const relativePath = path.join(youngFolder, `${commitId}.parquet`);
  const file = path.join(table.dir, relativePath);
  const reused = verdict.reused.map((rowid): BadLine => ({ line: converted.lineOf(rowid), reason: 'key_reused' }));
  const failures = [...tooLarge, ...(await readFailures(batch.file, [...converted.badLines, ...reused]))];
  const baseVersion = table.state().version;
  let pending: string | undefined;
  try {
    const written = await writeRows(dependencies, batch, availableAtMs, file);
    await crashPoint('flush-written');
    const failedAt = new Date(availableAtMs).toISOString();
    if (failures.length > 0) {
      pending = await writePendingFailed(
        failedDir,
        baseVersion,
        commitId,
        failures.map((failure) => ({ failedAt, ...failure })),
      );
      await crashPoint('flush-failed-kept');
    }
    const rows = written?.numRecords ?? 0;
    const { nextHash: _, ...followed } = epoch;
    const after: Epoch = { ...followed, position: batch.lastSequence, anchorHash: batch.lastHash };
    const actions: Action[] = [
      { txn: { appId: epoch.appId, version: batch.lastSequence, lastUpdated: availableAtMs } },
    ];
    if (written !== undefined) actions.push({ add: toAdd(relativePath, written, availableAtMs, true) });
    let version = -1;
    const build: BuildChange = (state, lake) => {
      assertOwner(lake, writer);
      if (lake.epoch?.appId !== epoch.appId || state.txns.get(epoch.appId) !== epoch.position)
        throw new AppError(
          'fenced',
          "the lake's position in the stream has moved: another compactor has taken over the lake",
          { hint: 'Let only one compactor run on a data folder.' },
        );
      // Later by another's rows, or earlier by a repair of the clock: ours must follow it.
      if (lake.availableAtMs !== before)
        throw new AppError('commit_conflict', 'the newest available_at of the lake has changed meanwhile');
      if (verdict.addsKeys && lake.keysCommit !== keysSeen)
        throw new AppError('commit_conflict', 'another process has stored events under Idempotency-Keys');
      version = state.version + 1;
      return {
        cause: 'flush',
        actions,
        epoch: after,
        availableAtMs,
        addsKeys: verdict.addsKeys,
        totals: { streamed: batch.events, stored: rows, failed: failures.length, repeats: verdict.repeats },
        metrics: {
          rows,
          bytes: written?.sizeBytes ?? 0,
          events: batch.events,
          firstSequence: batch.firstSequence,
          lastSequence: batch.lastSequence,
        },
      };
    };
    const askedAtMs = performance.now();
    await dependencies.assertStreamOwner?.();
    await table.commit(build, commitId, () => {
      // A process that stood still in between has the word of an owner of long ago.
      const isStale = performance.now() - askedAtMs > (dependencies.ownerHoldsMs ?? defaultOwnerHoldsMs);
      if (isStale && dependencies.assertStreamOwner !== undefined)
        throw new AppError(
          'commit_conflict',
          "the stream may have become another service's since it was asked whose it is",
        );
    });
    await keys.remember(verdict.addsKeys ? { version, keysCommit: commitId } : undefined);
    await crashPoint('flush-committed');
    if (pending !== undefined) await settleFailed(failedDir, pending, commitId);
    await crashPoint('flush-settled');
    return {
      version: table.state().version,
      events: batch.events,
      rows,
      failed: failures.length,
      repeats: verdict.repeats,
      sizeBytes: written?.sizeBytes ?? 0,
      epoch: after,
      refused: converted.refused,
    };
  } catch (error) {
    // The error may have come after the commit: only what the log does not name goes.
    await table.refresh().catch((foreign: unknown) => {
      if (!isAppError(foreign, 'foreign_commit')) throw foreign;
    });
    if (!table.state().files.has(encodeURI(relativePath))) await removeFile(file);
    if (pending !== undefined && !(await isCommitted(table.dir, baseVersion, commitId))) await removeFile(pending);
    // The start of another compactor sweeps what this one was writing: then that is what has happened.
    assertOwner(table.lake(), writer, error);
    throw error;
  }
}
