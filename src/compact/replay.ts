import { randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { syncFile } from '../runtime/durable-file.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { waitForLock } from '../runtime/lock.ts';
import type { Action } from '../lake/actions.ts';
import { nextAvailableAtMs } from '../lake/available-at.ts';
import { toAdd, writeDataFile } from '../lake/data-file.ts';
import type { Duckdb } from '../lake/duckdb.ts';
import { listSettledFiles, readFailedFile, type FailedEvent } from '../lake/failed-events.ts';
import { carryOut, openStaging, recoverIntents } from '../lake/intent.ts';
import { lakePaths } from '../lake/lake.ts';
import { youngFolder } from '../lake/snapshot.ts';
import type { Change, Table } from '../lake/table.ts';
import { convertSpool } from './convert.ts';
import { dedupeBatch, openRecentKeys } from './dedupe.ts';
import { rowsSql } from './flush.ts';

export interface ReplayDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

/** What a replay did: events stored now, events that the lake had already, and events that failed again. */
export interface Replayed {
  readonly stored: number;
  readonly repeats: number;
  readonly stillFailed: number;
}

const lockWaitMs = 120_000;

/** Replays the events of one file: those that can be written now leave it for the lake, by one commit. */
async function replayFile(dependencies: ReplayDependencies, file: string): Promise<Replayed> {
  const { table, duckdb, clock, crashPoint, lakeDir } = dependencies;
  const { staging } = lakePaths(lakeDir);
  const events = await readFailedFile(file);
  // A key that was used for another event stays refused: which of the two is right is the client's to say.
  const candidates = events.filter((event) => event.reason !== 'key_reused');
  if (candidates.length === 0) return { stored: 0, repeats: 0, stillFailed: events.length };

  const commitId = randomUUID();
  const folder = await openStaging(staging, commitId);
  const spool = path.join(folder, 'spool.ndjson');
  await writeFile(spool, candidates.map((event) => `${event.line.replaceAll('\n', ' ')}\n`).join(''), { mode: 0o600 });
  const nowMs = nextAvailableAtMs(clock, table.lake());
  const { failures } = await convertSpool(duckdb, spool, candidates.length);
  const verdict = await dedupeBatch(duckdb, table.snapshot(), { nowMs, lookUpAll: true });
  const written = await writeDataFile(duckdb, rowsSql(nowMs), path.join(folder, 'rows.parquet'));
  const stored = written.numRecords;
  const gone = stored + verdict.repeats;
  if (gone === 0) {
    await rm(folder, { recursive: true });
    return { stored: 0, repeats: 0, stillFailed: events.length };
  }

  const failedAt = new Date(nowMs).toISOString();
  const left: FailedEvent[] = [...events.filter((event) => event.reason === 'key_reused'), ...[...failures, ...verdict.failures].map((failure) => ({ failedAt, ...failure }))];
  const relative = path.join(youngFolder, `${commitId}.parquet`);
  const moves = [
    ...(stored > 0 ? [{ name: 'rows.parquet', to: path.join(table.dir, relative) }] : []),
    ...(left.length > 0 ? [{ name: 'failed.ndjson', to: file }] : []),
  ];
  if (left.length > 0) {
    await writeFile(path.join(folder, 'failed.ndjson'), left.map((event) => `${JSON.stringify(event)}\n`).join(''), { mode: 0o600 });
    await syncFile(path.join(folder, 'failed.ndjson'));
  }
  const actions: Action[] = stored > 0 ? [{ add: toAdd(relative, written, nowMs, true) }] : [];
  const change: Change = {
    cause: 'replay',
    actions,
    totals: { failed: left.length - events.length, stored, repeats: verdict.repeats },
    availableAtMs: nowMs,
    metrics: { rows: stored, bytes: written.sizeBytes },
  };
  const intent = { commitId, baseVersion: table.state().version, moves, change, unlink: left.length === 0 ? [file] : [] };
  await carryOut(table, staging, intent, crashPoint);
  return { stored, repeats: verdict.repeats, stillFailed: left.length };
}

/**
 * Tries every failed event again, for instance after a fault of the service was mended. Each file is one commit, so a kill
 * leaves nothing half-done, and a second call finds only what still fails. Works beside a running compactor. The rows carry
 * the time of the replay as `available_at`; a flush in the same instant may be committed first.
 */
export async function replayFailed(dependencies: ReplayDependencies): Promise<Replayed> {
  const { table, lakeDir, duckdb, clock, crashPoint } = dependencies;
  const paths = lakePaths(lakeDir);
  const lock = await waitForLock(paths.maintenanceLock, 'a replay', lockWaitMs);
  try {
    await table.refresh();
    await recoverIntents(table, paths.staging, crashPoint);
    // A key that a damaged file no longer shows would be stored again.
    for (const damage of await openRecentKeys(duckdb, table, clock.nowMs())) throw damage;
    let total: Replayed = { stored: 0, repeats: 0, stillFailed: 0 };
    for (const file of await listSettledFiles(paths.failed)) {
      const one = await replayFile(dependencies, file);
      total = { stored: total.stored + one.stored, repeats: total.repeats + one.repeats, stillFailed: total.stillFailed + one.stillFailed };
    }
    return total;
  } finally {
    lock.release();
  }
}
