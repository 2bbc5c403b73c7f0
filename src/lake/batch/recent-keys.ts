import { keyWindowMs } from '../../datasets/event-id.ts';
import { createMutex } from '../../runtime/async/semaphore.ts';
import { isSystemError } from '../../runtime/errors.ts';
import { findLakeState } from '../log/lake-state.ts';
import { readCommit } from '../log/log-files.ts';
import { type TimeRange, pruneFiles } from '../files/prune.ts';
import type { DataFile, Snapshot } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import type { BatchLookUp, BatchTables, JudgedBatch, KeyVerdict, KnownEvents, LoadedBatch } from './batch-tables.ts';
import type { KeyTable } from './key-table.ts';
import { type OnDamage, findWhole } from './whole-files.ts';
import { assertFilesWhole } from '../files/data-file.ts';

const hourMs = 3_600_000;
/**
 * Keys this much older than the window are kept: so far the clocks of ingest's processes may differ without a look into
 * the lake.
 */
const slackMs = hourMs;
/** Bytes of files that are read for the retries of requests that version 0.2 took in. */
const maxFormerBytes = 512 * 1024 ** 2;

/**
 * The compactor's memory of the events stored under Idempotency-Keys: the known keys of its tables, gone with the
 * engine, read from the lake again where they are asked for. What it covers goes by the time of receipt; it is never
 * short of what a batch needs, whatever the clock or a backlog has made of those times.
 */
export interface RecentKeys {
  /**
   * Loads what a batch received now would need, ahead of it: reading files takes time. What is asked for meanwhile waits
   * for it. Errors: as `judge`.
   */
  warmUp(nowMs: number, signal: AbortSignal): Promise<void>;
  /** The size of the memory, without its newest part. */
  size: KeyTable['size'];
  /**
   * Judges a batch of the stream, by a memory that is complete for it: it has what other processes have committed, and
   * what was received within the window around each of the rows. With `lookUpAll` also by what the lake has of the
   * batch under another position in the stream, and by what `loadMore` finds. Errors: `file_damaged`, `retryable` when a
   * file was replaced meanwhile.
   */
  judge(
    batch: Pick<LoadedBatch, 'judge'>,
    lookUpAll: boolean,
    loadMore?: (lookUp: BatchLookUp) => Promise<void>,
  ): Promise<JudgedBatch & KeysSeen>;
  /**
   * Takes in the keys of a batch, now that it is committed; forgets what is too old. `added`: the commit, where the
   * batch has added keys.
   */
  remember(
    batch: KeyVerdict,
    added: { readonly version: number; readonly keysCommit: string } | undefined,
  ): Promise<void>;
}

/** What the verdict of a batch of the stream was made by. */
export interface KeysSeen {
  /**
   * The lake's `keysCommit` up to which the memory was complete; a commit that finds another one there has to judge
   * again.
   */
  readonly keysSeen: string | undefined;
}

interface RecentKeysDependencies {
  readonly tables: BatchTables;
  readonly table: Table;
  readonly onDamage: OnDamage;
}

interface Loading {
  readonly add: (whole: readonly DataFile[]) => Promise<void>;
  /** Empties the memory. */
  readonly forget: () => Promise<void>;
}

/** Loads keys, by `add`, of the files that can be trusted. */
async function loadKeys(
  dependencies: RecentKeysDependencies,
  files: readonly DataFile[],
  { add, forget }: Loading,
  signal?: AbortSignal,
): Promise<void> {
  const keyed = files.filter(({ keyless }) => keyless !== true);
  const whole = await findWhole(dependencies, keyed, signal);
  if (whole.length === 0) return;
  try {
    await add(whole);
  } catch (error) {
    // What was added in part would be there again with each try.
    await forget();
    // A file that was whole a moment ago may have been replaced since.
    await findWhole(dependencies, whole, signal);
    throw error;
  }
}

/**
 * The files that commits after a version have added keyed events in; undefined when some are not there any more.
 */
async function findNewFiles(
  tableDir: string,
  afterVersion: number,
  snapshot: Snapshot,
): Promise<DataFile[] | undefined> {
  const files: DataFile[] = [];
  for (let version = afterVersion + 1; version <= snapshot.version; version += 1) {
    const commit = await readCommit(tableDir, version).catch((error: unknown) => {
      if (isSystemError(error, 'ENOENT')) return undefined;
      throw error;
    });
    if (commit === undefined) return undefined;
    const state = findLakeState(commit.actions.find((action) => action.commitInfo !== undefined)?.commitInfo);
    if (state === undefined || state.keysCommit !== state.commitId) continue;
    for (const { add } of commit.actions) {
      if (add === undefined) continue;
      const file = snapshot.files.find(({ path }) => encodeURI(path) === add.path);
      // Sealed or erased since: what it held is in other files.
      if (file === undefined) return undefined;
      files.push(file);
    }
  }
  return files;
}

/** The times of receipt of what a batch is judged by that was received in these hours. */
function rangesAround(hours: readonly number[]): Range[] {
  return joinRanges(hours.map((fromMs) => ({ fromMs: fromMs - keyWindowMs, toMs: fromMs + hourMs + keyWindowMs })));
}

/** The same times for the statistics of files. */
const toTimeRange = ({ fromMs, toMs }: Range): TimeRange => (Number.isFinite(toMs) ? { fromMs, toMs } : { fromMs });

/** Looks for events that version 0.2 took in at these times, unless that would read very much. */
async function lookUpFormer(
  dependencies: RecentKeysDependencies,
  lookUp: BatchLookUp,
  times: readonly number[],
): Promise<void> {
  const { files, emptyFile } = dependencies.table.snapshot();
  const keyed = files.filter(({ keyless }) => keyless !== true);
  const near = new Set(times.flatMap((ms) => pruneFiles(keyed, { receivedAt: { fromMs: ms, toMs: ms } })));
  const bytes = [...near].reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  if (times.length === 0 || bytes > maxFormerBytes) return;
  await lookUp.lookUpFormer(await findWhole(dependencies, [...near]), emptyFile);
}

/** Judges a batch; where keys are reused also by the events that version 0.2 took in under them. */
async function judgeByFormer(
  dependencies: RecentKeysDependencies,
  batch: Pick<LoadedBatch, 'judge'>,
  load: KnownEvents['load'],
): Promise<JudgedBatch> {
  const judged = await batch.judge({ rule: 'stream', load });
  if (!judged.reusesKeys) return judged;
  return batch.judge({
    rule: 'stream',
    async load(lookUp) {
      // First: the verdict before, and what it was made by, go with what is loaded.
      const times = await lookUp.formerTimes();
      await load(lookUp);
      await lookUpFormer(dependencies, lookUp, times);
    },
  });
}

/** The parts of ranges from a time on. */
function cutBefore(ranges: readonly Range[], ms: number): Range[] {
  return ranges.filter(({ toMs }) => toMs >= ms).map(({ fromMs, toMs }) => ({ fromMs: Math.max(fromMs, ms), toMs }));
}

/** Creates a memory that is asked for one thing at a time. */
function createMemory(dependencies: RecentKeysDependencies): RecentKeys {
  const { table } = dependencies;
  const { keys } = dependencies.tables;
  /** The times of receipt for which the memory is complete, in order and without overlaps. */
  let covered: Range[] = [];
  /** The newest commit whose keys are known. */
  let seen: { readonly version: number; readonly keysCommit: string | undefined } | undefined;

  async function forget(): Promise<void> {
    // First: what is covered must be known, also after an error.
    covered = [];
    await keys.clear();
  }

  async function load(range: Range, signal?: AbortSignal): Promise<void> {
    const snapshot = table.snapshot();
    const gaps = findUncovered(range, covered);
    if (covered.length === 0) seen = { version: snapshot.version, keysCommit: snapshot.lake?.keysCommit };
    for (const gap of gaps) {
      const bounds = toTimeRange(gap);
      await loadKeys(
        dependencies,
        pruneFiles(snapshot.files, { receivedAt: bounds }),
        { add: (whole) => keys.addReceived(whole, gap), forget },
        signal,
      );
      covered = joinRanges([...covered, gap]);
    }
  }

  /** Takes in what others have committed: a replay, or a flush of our own whose end we did not see. */
  async function catchUp(): Promise<void> {
    const snapshot = table.snapshot();
    if (covered.length === 0 || snapshot.lake?.keysCommit === seen?.keysCommit) return;
    const files = await findNewFiles(table.dir, seen?.version ?? -1, snapshot);
    if (files === undefined) return forget();
    await loadKeys(dependencies, files, { add: (whole) => keys.addAll(whole), forget });
    seen = { version: snapshot.version, keysCommit: snapshot.lake?.keysCommit };
  }

  /** Makes the memory complete for a batch. */
  async function cover(batch: BatchLookUp): Promise<void> {
    const hours = await batch.keyedHours(hourMs);
    if (hours.length === 0) return;
    // Now, and not when the keys came: a batch that is committed shall not fail for it.
    await keys.slice();
    await table.refresh();
    await catchUp();
    for (const range of rangesAround(hours)) await load(range);
  }

  async function forgetOld(batch: KeyVerdict): Promise<void> {
    const [first] = await batch.keyedHours(hourMs);
    if (first === undefined) return;
    const fromMs = first - keyWindowMs - slackMs;
    if (fromMs <= (covered[0]?.fromMs ?? fromMs)) return;
    // First, as in `forget`.
    covered = cutBefore(covered, fromMs);
    await keys.forgetBefore(fromMs);
  }

  return {
    warmUp: (nowMs, signal) => load({ fromMs: nowMs - keyWindowMs - slackMs, toMs: Number.POSITIVE_INFINITY }, signal),
    size: () => keys.size(),
    async judge(batch, lookUpAll, loadMore) {
      const loadAll: KnownEvents['load'] = async (lookUp) => {
        await cover(lookUp);
        if (lookUpAll) await lookUp.lookUpEvents(table.snapshot().files);
        await loadMore?.(lookUp);
      };
      // Only a batch that is loaded as a whole has the values that a retry of version 0.2's is known by.
      const judged = await (loadMore === undefined
        ? batch.judge({ rule: 'stream', load: loadAll })
        : judgeByFormer(dependencies, batch, loadAll));
      return { ...judged, keysSeen: seen?.keysCommit };
    },
    async remember(batch, added) {
      await batch.keepKeys();
      if (added !== undefined) seen = added;
      await forgetOld(batch);
    },
  };
}

/** Creates the memory, empty. */
export function createRecentKeys(dependencies: RecentKeysDependencies): RecentKeys {
  const memory = createMemory(dependencies);
  // Keys are loaded while batches without any are flushed: who judges by them waits until they are all there.
  const oneAtATime = createMutex();
  return {
    warmUp: (nowMs, signal) => oneAtATime.run(() => memory.warmUp(nowMs, signal)),
    size: () => memory.size(),
    judge: (batch, lookUpAll, loadMore) => oneAtATime.run(() => memory.judge(batch, lookUpAll, loadMore)),
    remember: (batch, added) => oneAtATime.run(() => memory.remember(batch, added)),
  };
}

/** Times of receipt, Unix milliseconds, both ends included. */
interface Range {
  readonly fromMs: number;
  readonly toMs: number;
}

/** The parts of a range that others do not cover. `covered` is in order and without overlaps. */
export function findUncovered({ fromMs, toMs }: Range, covered: readonly Range[]): Range[] {
  const gaps: Range[] = [];
  let next = fromMs;
  for (const range of covered) {
    if (range.toMs < next) continue;
    if (range.fromMs > toMs) break;
    if (range.fromMs > next) gaps.push({ fromMs: next, toMs: range.fromMs - 1 });
    next = range.toMs + 1;
  }
  if (next <= toMs) gaps.push({ fromMs: next, toMs });
  return gaps;
}

/** Joins ranges that touch. */
export function joinRanges(ranges: readonly Range[]): Range[] {
  const joined: Range[] = [];
  for (const range of ranges.toSorted((a, b) => a.fromMs - b.fromMs)) {
    const last = joined.at(-1);
    if (last !== undefined && range.fromMs <= last.toMs + 1)
      joined[joined.length - 1] = { fromMs: last.fromMs, toMs: Math.max(last.toMs, range.toMs) };
    else joined.push(range);
  }
  return joined;
}

/** Judges one batch of events that failed before, which may be of any age, by what the lake's files have. */
interface LakeLookUp {
  /**
   * Judges the batch by the newest version of the table. Called again, it reads only the files that came since: under
   * the maintenance lock none goes, as nothing but flushes changes the table. Errors: `file_damaged` when a file that
   * may have one of the events is damaged, and those of `refresh`.
   */
  judge(batch: LoadedBatch): Promise<JudgedBatch>;
}

/** Adds what some files have under the keys of the batch. */
async function addKeysOfBatch(lookUp: BatchLookUp, files: readonly DataFile[]): Promise<void> {
  const wanted = new Set<DataFile>();
  for (const hour of await lookUp.keyedHours(hourMs)) {
    const receivedAt = { fromMs: hour - keyWindowMs, toMs: hour + hourMs + keyWindowMs };
    for (const file of pruneFiles(files, { receivedAt })) if (file.keyless !== true) wanted.add(file);
  }
  if (wanted.size === 0) return;
  // A key that a damaged file no longer shows would be stored again.
  await assertFilesWhole([...wanted]);
  await lookUp.addOwnKeys([...wanted]);
}

/** Creates the look-up of one batch; the known keys of its tables are of no other. */
export function createLakeLookUp(table: Table): LakeLookUp {
  const known = new Set<string>();
  return {
    judge: (batch) =>
      batch.judge({
        rule: 'failed',
        async load(lookUp) {
          await table.refresh();
          const news = table.snapshot().files.filter((file) => !known.has(file.path));
          await lookUp.lookUpEvents(news);
          await addKeysOfBatch(lookUp, news);
          for (const file of news) known.add(file.path);
        },
      }),
  };
}
