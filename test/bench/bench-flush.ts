import { randomUUID } from 'node:crypto';
import { copyFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { flushBatch } from '../../src/compact/batch/flush.ts';
import { openBatchTables } from '../../src/lake/batch/batch-tables.ts';
import { createIdempotencyKeyCache } from '../../src/lake/batch/idempotency-keys.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import type { Epoch } from '../../src/lake/log/lake-state.ts';
import type { Table } from '../../src/lake/log/table.ts';
import type { Duckdb } from '../../src/lake/sql/duckdb.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';

/** A file of event lines in the form of the compactor's spool. */
export interface Spool {
  readonly file: string;
  readonly events: number;
}

/** Flushes spools one after the other, as the compactor does. */
export interface BenchFlush {
  flush(spool: Spool): Promise<void>;
}

/** Prepares a table for flushes: takes ownership of it and loads the keys of the last day. */
export async function openBenchFlush(table: Table, duckdb: Duckdb, folder: string): Promise<BenchFlush> {
  const writer = randomUUID();
  const clock = createClock(0);
  let epoch: Epoch = { appId: `BENCH@${randomUUID()}`, streamId: 'BENCH', position: 0, dedupeThrough: 0 };
  await table.commit(() => ({ cause: 'epoch', actions: [{ txn: { appId: epoch.appId, version: 0 } }], epoch, writer }));
  const tables = await openBatchTables(duckdb, undefined, { folder: path.join(folder, 'keys') });
  const keys = createIdempotencyKeyCache({ tables, table, onDamage: () => undefined });
  await keys.warmUp(clock.nowMs(), new AbortController().signal);
  const dependencies = {
    table,
    secondaryTables: [],
    tables,
    keys,
    clock,
    crashPoint: noCrashPoint,
    failedDir: lakePaths(path.join(folder, 'lake')).failed,
    writer,
  };
  const file = path.join(folder, 'batch.ndjson');
  return {
    async flush(spool) {
      await copyFile(spool.file, file);
      const { size: bytes } = await stat(spool.file);
      const sequence = epoch.position + 1;
      const span = { firstSequence: sequence, lastSequence: sequence, lastHash: '', messages: 1 };
      epoch = (await flushBatch(dependencies, { file, ...span, events: spool.events, bytes }, epoch)).epoch;
    },
  };
}
