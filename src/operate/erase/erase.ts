/**
 * Erasure: takes the events of people, or of an app, out of the lake and out of everything beside it.
 *
 * In: a target (erase-target.ts). Out: commits that replace the files that have such rows, and the failed events.
 * Order: the stream is drained (drain.ts), files and failed events are rewritten, the last commit says when the
 * retention is over. Readers of versions before keep their files until then; the compactor's maintenance loop removes
 * those files and the log that names them, and puts each sealed file's rewrite in its place (lake/files/swap.ts).
 * Crash: at any instruction; what was rewritten stays so, and the erasure can be repeated.
 */
import { AppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import { waitForLock } from '../../runtime/files/lock.ts';
import { sqlList } from '../../lake/sql/literals.ts';
import { recoverIntents } from '../../lake/files/staged-rewrite.ts';
import { lakePaths } from '../../lake/lake.ts';
import { listLog } from '../../lake/log/log-files.ts';
import { pruneFiles } from '../../lake/files/prune.ts';
import { rewriteFiles } from '../../lake/files/rewrite.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import { assertFilesWhole } from '../../lake/files/verify-files.ts';
import { drainStream, waitUntil, type DrainDependencies } from './drain.ts';
import {
  countFailedHits,
  eraseFailed,
  eraseOrphans,
  findOrphanHits,
  type EraseAsideDependencies,
} from './erase-aside.ts';
import { matchSql, targetParts, userMeaningsSql, type ErasureTarget, type UserKind } from './erase-target.ts';

/** The steps of an erasure at which a crash is tested, beside those of its rewrites. */
export const eraseSteps = ['erase-drained', 'erase-rewritten', 'erase-committed'] as const;

export interface EraseDependencies extends DrainDependencies, EraseAsideDependencies {
  readonly clock: Clock;
}

export interface EraseOptions {
  /** How long those who still read older versions and the sealed files as they were keep them, milliseconds. */
  readonly retentionMs: number;
  /** Waits for nobody: what still reads those ends with an error. The erasure then returns when all is gone. */
  readonly now?: boolean;
  /** Looks at what would be erased, before anything is; throws to have nothing erased. */
  readonly assertMeant?: (found: readonly UserMeaning[]) => void;
}

/** Rows that a user id stands in, as what kind of id, and of which app. */
export interface UserMeaning {
  readonly id: string;
  readonly kind: UserKind;
  readonly idApp: number;
  readonly rows: number;
}

/**
 * What an erasure would take out of what the lake has now; events that still wait in the stream are not looked through.
 */
export interface ErasureSurvey {
  readonly rows: number;
  readonly failedEvents: number;
  readonly filesToRewrite: number;
  readonly meanings: readonly UserMeaning[];
}

/** What an erasure did. Exported report files are not its matter: they end with their links. */
export interface Erased {
  readonly rows: number;
  readonly failedEvents: number;
  /** Files of the table that were rewritten. */
  readonly filesRewritten: number;
  /**
   * The first version of the table that readers can travel back to when the erasure is finished; absent when nothing
   * matched.
   */
  readonly historyFrom?: number;
  /** When the running compactor removes the last traces, ISO 8601; absent when nothing matched. */
  readonly finishesAt?: string;
}

/** So many files are rewritten by one commit: what is staged needs their space once more. */
const filesPerCommit = 8;
/** So many are looked through by one query, which opens all of them. */
const filesPerLook = 64;
const waitForLockMs = 120_000;

interface Hit {
  readonly file: DataFile;
  readonly hits: number;
}

type LookDependencies = Pick<EraseDependencies, 'table' | 'lakeDir' | 'duckdb'>;

async function findHits({ table, duckdb }: LookDependencies, target: ErasureTarget): Promise<Hit[]> {
  const { files, emptyFile } = table.snapshot();
  const candidates = pruneFiles(files, target.apps === undefined ? {} : { idApps: target.apps });
  // In a damaged file the rows to erase might not be found, and the others would be rewritten as they are.
  await assertFilesWhole(candidates);
  const hits: Hit[] = [];
  for (let from = 0; from < candidates.length; from += filesPerLook) {
    const byPath = new Map(candidates.slice(from, from + filesPerLook).map((file) => [file.absolutePath, file]));
    const rows = await duckdb.rows(
      `SELECT filename, count(*) AS hits FROM read_parquet(${sqlList([emptyFile, ...byPath.keys()])}, union_by_name = true, hive_partitioning = false, filename = true)
       WHERE ${matchSql(target)} GROUP BY filename ORDER BY filename`,
    );
    for (const row of rows) {
      const file = byPath.get(String(row['filename']));
      if (file !== undefined) hits.push({ file, hits: Number(row['hits']) });
    }
  }
  return hits;
}

/** What the user ids of a target stand for in the files that have them. */
async function findMeanings(
  { table, duckdb }: LookDependencies,
  hits: readonly Hit[],
  target: ErasureTarget,
): Promise<UserMeaning[]> {
  const { users } = target;
  if (users === undefined) return [];
  const { emptyFile } = table.snapshot();
  const found = new Map<string, UserMeaning>();
  for (let from = 0; from < hits.length; from += filesPerLook) {
    const files = hits.slice(from, from + filesPerLook).map(({ file }) => file.absolutePath);
    const source = `read_parquet(${sqlList([emptyFile, ...files])}, union_by_name = true, hive_partitioning = false)`;
    for (const row of await duckdb.rows(userMeaningsSql({ ...target, users }, source))) {
      const meaning = { id: String(row['id']), kind: row['kind'] as UserKind, idApp: Number(row['id_app']) };
      const key = JSON.stringify(meaning);
      found.set(key, { ...meaning, rows: (found.get(key)?.rows ?? 0) + Number(row['n']) });
    }
  }
  return [...found.values()];
}

/**
 * Looks what an erasure would take out, and changes nothing. Needs neither the broker nor the compactor. Errors:
 * `file_damaged` as `eraseEvents`.
 */
export async function surveyErasure(
  dependencies: LookDependencies & Pick<EraseDependencies, 'crashPoint'>,
  target: ErasureTarget,
): Promise<ErasureSurvey> {
  targetParts(target);
  await dependencies.table.refresh();
  const hits = await findHits(dependencies, target);
  return {
    rows: hits.reduce((sum, hit) => sum + hit.hits, 0),
    failedEvents: await countFailedHits(dependencies.lakeDir, target),
    filesToRewrite: hits.length,
    meanings: await findMeanings(dependencies, hits, target),
  };
}

/**
 * Rewrites some files without the rows to erase, by one commit; the old files wait for their readers. Returns the rows
 * erased.
 */
async function eraseFrom(
  { table, lakeDir, duckdb, clock, crashPoint, signal }: EraseDependencies,
  hits: readonly Hit[],
  matches: string,
): Promise<number> {
  const toQuery = (source: string): string => {
    if (signal.aborted) throw new AppError('stopping', 'the erasure was stopped; repeat it to finish');
    // The engine keeps the order of what it reads, without the memory of a sort.
    return `SELECT * FROM ${source} WHERE NOT (${matches})`;
  };
  const erased = hits.reduce((sum, hit) => sum + hit.hits, 0);
  const rewrites = hits.map(({ file, hits: rowsLeftOut }) => ({ file, rowsLeftOut, toQuery }));
  await rewriteFiles({ table, stagingDir: lakePaths(lakeDir).staging, duckdb, clock, crashPoint }, rewrites, {
    cause: 'erase',
    totals: { stored: -erased, erased },
    metrics: { rows: erased },
  });
  return erased;
}

/** Rewrites everything that has what is to be erased. Under the maintenance lock. */
async function rewriteAll(
  dependencies: EraseDependencies,
  target: ErasureTarget,
  assertMeant: EraseOptions['assertMeant'],
): Promise<Pick<Erased, 'rows' | 'failedEvents' | 'filesRewritten'> & { readonly filesAside: number }> {
  const { table, lakeDir, crashPoint } = dependencies;
  await table.refresh();
  await recoverIntents(table, lakePaths(lakeDir).staging, crashPoint);
  const hits = await findHits(dependencies, target);
  const orphans = await findOrphanHits(dependencies, target);
  assertMeant?.(await findMeanings(dependencies, hits, target));
  const matches = matchSql(target);
  let rows = 0;
  for (let from = 0; from < hits.length; from += filesPerCommit)
    rows += await eraseFrom(dependencies, hits.slice(from, from + filesPerCommit), matches);
  await eraseOrphans(dependencies, orphans, target);
  return {
    rows,
    failedEvents: await eraseFailed(dependencies, target),
    filesRewritten: hits.length,
    filesAside: orphans.length,
  };
}

/**
 * Erases events from the stream, the live files, the files put aside and the failed events, and lets the history follow
 * in time. A compactor must run on the lake: it takes in the stream first, and removes what readers no longer need.
 * Events that arrive during the erasure are not its matter. Where nothing matches, the lake stays as it is, history and
 * all. Errors: `overloaded` when no compactor moves on, `file_damaged` when a file that may have such rows is damaged:
 * nothing is rewritten then.
 */
export async function eraseEvents(
  dependencies: EraseDependencies,
  target: ErasureTarget,
  { retentionMs, now = false, assertMeant }: EraseOptions,
): Promise<Erased> {
  const { table, lakeDir, clock, crashPoint, signal } = dependencies;
  targetParts(target);
  await drainStream(dependencies);
  await crashPoint('erase-drained');

  let erased: Omit<Erased, 'historyFrom' | 'finishesAt'>;
  let finishesAtMs: number;
  const lock = await waitForLock(lakePaths(lakeDir).maintenanceLock, 'an erasure', waitForLockMs);
  try {
    const { filesAside, ...found } = await rewriteAll(dependencies, target, assertMeant);
    await crashPoint('erase-rewritten');
    // An erasure that was killed has left the history to the one that repeats it.
    if (found.rows + found.failedEvents + filesAside === 0 && table.lake().erasing !== true) return found;
    erased = found;
    finishesAtMs = clock.nowMs() + (now ? 0 : retentionMs);
    const forget = now ? {} : { forgetAtMs: finishesAtMs };
    await table.commit(({ version }) => ({
      cause: 'erase',
      actions: [],
      forgetBefore: version + 1,
      ...forget,
      metrics: { historyBefore: version + 1 },
    }));
    await crashPoint('erase-committed');
  } finally {
    lock.release();
  }
  const historyFrom = table.lake().forgetBefore ?? 0;
  if (now)
    await waitUntil(
      signal,
      'the old files and history to be removed',
      async () => ((await listLog(table.dir)).commits[0] ?? historyFrom) >= historyFrom,
    );
  return { ...erased, historyFrom, finishesAt: new Date(finishesAtMs).toISOString() };
}
