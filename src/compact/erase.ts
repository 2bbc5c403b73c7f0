import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { syncFile } from '../runtime/durable-file.ts';
import { AppError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { waitForLock } from '../runtime/lock.ts';
import { pause } from '../runtime/retry.ts';
import { eventFields } from '../model/event-fields.ts';
import type { Action } from '../lake/actions.ts';
import { toAdd, writeDataFile } from '../lake/data-file.ts';
import { sqlList, sqlText, type Duckdb } from '../lake/duckdb.ts';
import { listFailedFiles, listSettledFiles, readFailedFile, type FailedEvent } from '../lake/failed-events.ts';
import { carryOut, openStaging, recoverIntents } from '../lake/intent.ts';
import { lakePaths } from '../lake/lake.ts';
import { listLog } from '../lake/log-files.ts';
import { pruneFiles } from '../lake/prune.ts';
import type { DataFile } from '../lake/snapshot.ts';
import type { Change, Table } from '../lake/table.ts';
import { assertFilesWhole } from '../lake/verify-files.ts';
import { markerPayload } from './gather.ts';
import type { StreamPublisher } from '../stream/stream.ts';

/** The steps of an erasure at which a crash is tested, beside those of its rewrites. */
export const eraseSteps = ['erase-drained', 'erase-rewritten', 'erase-committed'] as const;

/** Whose events to erase: those that match every member given, at least one. */
export interface ErasureTarget {
  /** A user id: customUserId, customPlatformUserId or sezamUserId. */
  readonly user?: string;
  /** A device id: any of the seven, or hwid. */
  readonly device?: string;
  readonly app?: number;
}

export interface EraseDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  readonly publisher: StreamPublisher;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly signal: AbortSignal;
}

/** What an erasure did. Exported report files are not its matter: they end with their links. */
export interface Erased {
  readonly rows: number;
  readonly failedEvents: number;
  readonly filesRewritten: number;
  /** The first version of the table that readers can still travel back to. */
  readonly historyFrom: number;
}

/** So many files are rewritten by one commit. */
const filesPerCommit = 32;
const waitForLoopMs = 120_000;
const userColumns = ['custom_user_id', 'custom_platform_user_id', 'sezam_user_id'];
const deviceColumns = [...eventFields.filter((field) => field.schema['x-device-id'] === true).map((field) => field.schema['x-column']), 'hwid'];

/** The columns and the text to look for, one entry for each member of the target. */
function targetParts(target: ErasureTarget): { readonly columns: readonly string[]; readonly text: string }[] {
  const parts = [
    { columns: userColumns, text: target.user },
    { columns: deviceColumns, text: target.device },
    { columns: ['id_app'], text: target.app === undefined ? undefined : String(target.app) },
  ].flatMap(({ columns, text }) => (text === undefined || text === '' ? [] : [{ columns, text }]));
  if (parts.length === 0) throw new AppError('usage', 'an erasure needs a user, a device or an app');
  return parts;
}

/** SQL that is true for a row to erase and never NULL. */
function matchSql(target: ErasureTarget): string {
  return targetParts(target)
    .map(({ columns, text }) => `coalesce(${columns.map((column) => `coalesce(CAST(${column} AS VARCHAR) = ${sqlText(text)}, false)`).join(' OR ')}, false)`)
    .map((part) => `(${part})`)
    .join(' AND ');
}

/** Says whether a failed event is to be erased. A line that cannot be read is, when the text stands in it anywhere. */
function matchesFailed(event: FailedEvent, target: ErasureTarget): boolean {
  let value: Readonly<Record<string, unknown>> | undefined;
  try {
    value = JSON.parse(event.line) as Readonly<Record<string, unknown>>;
  } catch {
    // Not JSON: looked through as text.
  }
  return targetParts(target).every(({ columns, text }) =>
    typeof value === 'object' && value !== null ? columns.some((column) => String(value[column]) === text) : event.line.includes(JSON.stringify(text).slice(1, -1)),
  );
}

/** Waits until the lake has everything that is in the stream now: an empty line published behind it becomes the anchor. */
async function drainStream({ table, lakeDir, publisher, signal }: EraseDependencies): Promise<void> {
  const { failed } = lakePaths(lakeDir);
  const { sequence } = await publisher.publish(markerPayload, 10_000);
  await waitUntil(signal, 'the stream to be taken in', async () => {
    await table.refresh();
    return (table.lake().epoch?.position ?? 0) >= sequence;
  });
  await waitUntil(signal, 'failed events to get their final place', async () => (await listFailedFiles(failed, table.dir)).length === (await listSettledFiles(failed)).length);
}

async function waitUntil(signal: AbortSignal, what: string, condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + waitForLoopMs;
  while (!(await condition())) {
    if (signal.aborted) throw new AppError('stopping', 'the erasure was stopped; repeat it to finish');
    if (performance.now() >= deadline) throw new AppError('overloaded', `waited in vain for ${what}`, { hint: 'See that the compactor runs, and repeat the erasure.' });
    await pause(100, signal);
  }
}

interface Hit {
  readonly file: DataFile;
  readonly rows: number;
  readonly hits: number;
}

async function findHits({ table, duckdb }: EraseDependencies, target: ErasureTarget): Promise<Hit[]> {
  const { files, emptyFile } = table.snapshot();
  const candidates = pruneFiles(files, target.app === undefined ? {} : { idApps: [target.app] });
  // In a damaged file the rows to erase might not be found, and the others would be rewritten as they are.
  await assertFilesWhole(candidates);
  const byPath = new Map(candidates.map((file) => [file.absolutePath, file]));
  const rows = await duckdb.rows(
    `SELECT filename, count(*) AS rows, count(*) FILTER (WHERE ${matchSql(target)}) AS hits
     FROM read_parquet(${sqlList([emptyFile, ...byPath.keys()])}, union_by_name = true, hive_partitioning = false, filename = true)
     GROUP BY filename HAVING hits > 0 ORDER BY filename`,
  );
  return rows.flatMap((row) => {
    const file = byPath.get(String(row['filename']));
    return file === undefined ? [] : [{ file, rows: Number(row['rows']), hits: Number(row['hits']) }];
  });
}

/** Rewrites some files without the rows to erase, by one commit; the old files are unlinked at once. */
async function rewriteFiles(dependencies: EraseDependencies, hits: readonly Hit[], target: ErasureTarget): Promise<number> {
  const { table, duckdb, clock, crashPoint, lakeDir } = dependencies;
  const { staging } = lakePaths(lakeDir);
  const { emptyFile } = table.snapshot();
  const commitId = randomUUID();
  const folder = await openStaging(staging, commitId);
  const moves: { name: string; to: string }[] = [];
  const actions: Action[] = [];
  const nowMs = clock.nowMs();
  for (const [index, { file, rows, hits: count }] of hits.entries()) {
    actions.push({ remove: { path: encodeURI(file.path), deletionTimestamp: nowMs, dataChange: true } });
    if (count === rows) continue;
    const name = `${index}.parquet`;
    const relative = path.join(path.dirname(file.path), `${randomUUID()}.parquet`);
    const source = `read_parquet(${sqlList([emptyFile, file.absolutePath])}, union_by_name = true, hive_partitioning = false, file_row_number = true)`;
    const query = `SELECT * EXCLUDE (file_row_number) FROM ${source} WHERE NOT (${matchSql(target)}) ORDER BY file_row_number`;
    const written = await writeDataFile(duckdb, query, path.join(folder, name));
    actions.push({ add: toAdd(relative, written, nowMs, true) });
    moves.push({ name, to: path.join(table.dir, relative) });
  }
  const erased = hits.reduce((sum, hit) => sum + hit.hits, 0);
  const change: Change = { cause: 'erase', actions, totals: { stored: -erased, erased }, metrics: { rows: erased, filesIn: hits.length, filesOut: moves.length } };
  const unlink = hits.map((hit) => hit.file.absolutePath);
  await carryOut(table, staging, { commitId, baseVersion: table.state().version, moves, change, unlink }, crashPoint);
  return erased;
}

async function eraseFailed(dependencies: EraseDependencies, target: ErasureTarget): Promise<number> {
  const { table, lakeDir, crashPoint } = dependencies;
  const paths = lakePaths(lakeDir);
  const commitId = randomUUID();
  const kept: { file: string; events: FailedEvent[] }[] = [];
  let erased = 0;
  for (const file of await listSettledFiles(paths.failed)) {
    const events = await readFailedFile(file);
    const left = events.filter((event) => !matchesFailed(event, target));
    if (left.length < events.length) kept.push({ file, events: left });
    erased += events.length - left.length;
  }
  if (erased === 0) return 0;
  const folder = await openStaging(paths.staging, commitId);
  const moves = kept.flatMap(({ file, events }, index) => (events.length === 0 ? [] : [{ name: `${index}.ndjson`, to: file, events }]));
  for (const { name, events } of moves) {
    await writeFile(path.join(folder, name), events.map((event) => `${JSON.stringify(event)}\n`).join(''), { mode: 0o600 });
    await syncFile(path.join(folder, name));
  }
  const change: Change = { cause: 'erase', actions: [], totals: { failed: -erased, erased }, metrics: { failedEvents: erased } };
  const intent = {
    commitId,
    baseVersion: table.state().version,
    moves: moves.map(({ name, to }) => ({ name, to })),
    change,
    unlink: kept.filter(({ events }) => events.length === 0).map(({ file }) => file),
  };
  await carryOut(table, paths.staging, intent, crashPoint);
  return erased;
}

/**
 * Erases events from the stream, the live files, the failed events and the history. A compactor must run on the lake: it
 * takes in the stream first, and drops the history at the end. Can be killed at any instruction and repeated; what was
 * rewritten stays so. Events that arrive during the erasure are not its matter. Glob readers may see a sealed file of the
 * old and of the new kind for an instant. Errors: `overloaded` when no compactor moves on, `corrupt` when a file
 * that may have such rows is damaged: nothing is rewritten then.
 */
export async function eraseEvents(dependencies: EraseDependencies, target: ErasureTarget): Promise<Erased> {
  const { table, lakeDir, crashPoint, signal } = dependencies;
  const paths = lakePaths(lakeDir);
  targetParts(target);
  await drainStream(dependencies);
  await crashPoint('erase-drained');

  let rows = 0;
  let filesRewritten = 0;
  let failedEvents: number;
  const lock = await waitForLock(paths.maintenanceLock, 'an erasure', waitForLoopMs);
  try {
    await table.refresh();
    await recoverIntents(table, paths.staging, crashPoint);
    const hits = await findHits(dependencies, target);
    for (let from = 0; from < hits.length; from += filesPerCommit) {
      rows += await rewriteFiles(dependencies, hits.slice(from, from + filesPerCommit), target);
    }
    filesRewritten = hits.length;
    failedEvents = await eraseFailed(dependencies, target);
    await crashPoint('erase-rewritten');
    await table.commit((state) => ({ cause: 'erase', actions: [], forgetBefore: state.version + 1, metrics: { historyBefore: state.version + 1 } }));
    await crashPoint('erase-committed');
  } finally {
    lock.release();
  }
  const historyFrom = table.lake().forgetBefore ?? 0;
  await waitUntil(signal, 'the old history to be dropped', async () => ((await listLog(table.dir)).commits[0] ?? historyFrom) >= historyFrom);
  return { rows, failedEvents, filesRewritten, historyFrom };
}
