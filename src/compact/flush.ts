import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { removeFile, syncFolder } from '../runtime/durable-file.ts';
import { AppError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { eventColumns } from '../model/event-fields.ts';
import type { Action } from '../lake/actions.ts';
import { toAdd, writeDataFile, type WrittenFile } from '../lake/data-file.ts';
import type { Duckdb } from '../lake/duckdb.ts';
import { settleFailed, writePendingFailed } from '../lake/failed-events.ts';
import type { Epoch, LakeState } from '../lake/lake-state.ts';
import { rowGroupRows } from '../lake/row-memory.ts';
import { youngFolder } from '../lake/snapshot.ts';
import type { BuildChange, Table } from '../lake/table.ts';
import { convertSpool } from './convert.ts';
import { dedupeBatch, rememberKeys } from './dedupe.ts';
import { takeOutTooLarge } from './isolate.ts';
import type { Batch } from './gather.ts';

/** The steps of a flush at which a crash is tested, beside those of the commit in its midst. */
export const flushSteps = ['flush-spooled', 'flush-converted', 'flush-written', 'flush-failed-kept', 'flush-committed', 'flush-settled', 'flush-purged'] as const;

export interface FlushDependencies {
  readonly table: Table;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly failedDir: string;
  /** This compactor's claim on the lake. */
  readonly writer: string;
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
}

const columnList = eventColumns.map(({ name }) => name).join(', ');

/** The query for the rows of `batch` that are to be written. */
export function rowsSql(availableAtMs: number): string {
  return `SELECT ${columnList} FROM (SELECT *, make_timestamptz(${availableAtMs * 1000}) AS available_at FROM batch
    WHERE NOT bad AND rowid NOT IN (SELECT r FROM dropped))`;
}

/** Writes the batch's rows to one young file, durably; undefined when no row is left to write. */
async function writeRows(dependencies: FlushDependencies, batch: Batch, availableAtMs: number, file: string): Promise<WrittenFile | undefined> {
  const { duckdb } = dependencies;
  const [row] = await duckdb.rows('SELECT count(*) AS n, sum(cardinality(custom_event_params))::BIGINT AS entries FROM batch WHERE NOT bad AND rowid NOT IN (SELECT r FROM dropped)');
  if (Number(row?.['n']) === 0) return undefined;
  const rowGroup = { rows: rowGroupRows(duckdb.memoryMb, { rows: batch.events, lineBytes: batch.bytes, entries: Number(row?.['entries'] ?? 0) }) };
  const written = await writeDataFile(duckdb, rowsSql(availableAtMs), file, 'young', rowGroup);
  await syncFolder(path.dirname(file));
  return written;
}

/** Throws `fenced` unless this compactor still owns the lake; `cause` is the error that made the caller look. */
export function assertOwner(lake: LakeState, writer: string, cause?: unknown): void {
  if (lake.writer === writer) return;
  throw new AppError('fenced', 'another compactor has taken over the lake', { cause, hint: 'Let only one compactor run on a data folder.' });
}

/**
 * Takes a gathered batch into the lake: converts it, writes its rows to one file, keeps what could not be written, commits.
 * Returns when the commit is durable; the caller purges the stream. A crash before the commit leaves an unnamed file, swept
 * at start; after it, nothing but the purge is missing. Errors: `fenced`, `commit_conflict`, `disk`, `sql`.
 */
export async function flushBatch(dependencies: FlushDependencies, batch: Batch, epoch: Epoch): Promise<Flushed> {
  const { table, duckdb, clock, crashPoint, failedDir, writer } = dependencies;
  await crashPoint('flush-spooled');
  const commitId = randomUUID();
  const availableAtMs = Math.max(clock.nowMs(), table.lake().availableAtMs);
  const tooLarge = dependencies.isolate === true ? await takeOutTooLarge(duckdb, batch.file) : [];
  const converted = await convertSpool(duckdb, batch.file, batch.events - tooLarge.length);
  const verdict = await dedupeBatch(duckdb, table.snapshot(), { nowMs: availableAtMs, lookUpAll: batch.firstSequence <= epoch.dedupeThrough });
  await crashPoint('flush-converted');

  const relativePath = path.join(youngFolder, `${commitId}.parquet`);
  const file = path.join(table.dir, relativePath);
  const failures = [...tooLarge, ...converted.failures, ...verdict.failures];
  let pending: string | undefined;
  try {
    const written = await writeRows(dependencies, batch, availableAtMs, file);
    await crashPoint('flush-written');
    const failedAt = new Date(availableAtMs).toISOString();
    if (failures.length > 0) {
      pending = await writePendingFailed(failedDir, table.state().version, commitId, failures.map((failure) => ({ failedAt, ...failure })));
      await crashPoint('flush-failed-kept');
    }
    const rows = written?.numRecords ?? 0;
    const after: Epoch = { ...epoch, position: batch.lastSequence, anchorHash: batch.lastHash };
    const actions: Action[] = [{ txn: { appId: epoch.appId, version: batch.lastSequence, lastUpdated: availableAtMs } }];
    if (written !== undefined) actions.push({ add: toAdd(relativePath, written, availableAtMs, true) });
    const build: BuildChange = (state, lake) => {
      assertOwner(lake, writer);
      if (lake.epoch?.appId !== epoch.appId || state.txns.get(epoch.appId) !== epoch.position) throw new AppError('fenced', "the lake's position in the stream has moved");
      if (lake.availableAtMs > availableAtMs) throw new AppError('commit_conflict', 'rows that became available later are already committed');
      return {
        cause: 'flush',
        actions,
        epoch: after,
        availableAtMs,
        totals: { streamed: batch.events, stored: rows, failed: failures.length, repeats: verdict.repeats },
        metrics: { rows, bytes: written?.sizeBytes ?? 0, events: batch.events, firstSequence: batch.firstSequence, lastSequence: batch.lastSequence },
      };
    };
    await table.commit(build, commitId);
    await crashPoint('flush-committed');
    if (pending !== undefined) await settleFailed(failedDir, pending, commitId);
    await crashPoint('flush-settled');
    await rememberKeys(duckdb, availableAtMs);
    return { version: table.state().version, events: batch.events, rows, failed: failures.length, repeats: verdict.repeats, sizeBytes: written?.sizeBytes ?? 0, epoch: after };
  } catch (error) {
    // The error may have come after the commit: only what the log does not name goes.
    await table.refresh();
    if (!table.state().files.has(encodeURI(relativePath))) await removeFile(file);
    // The start of another compactor sweeps what this one was writing: then that is what has happened.
    assertOwner(table.lake(), writer, error);
    throw error;
  }
}
