import { keyWindowMs } from '../../datasets/event-id.ts';
import { createMutex } from '../../runtime/async/semaphore.ts';
import { isSystemError } from '../../runtime/errors.ts';
import { findLakeState } from '../log/lake-state.ts';
import { readCommit } from '../log/log-files.ts';
import { pruneFiles } from '../files/prune.ts';
import type { DataFile, Snapshot } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import type { BatchLookup, BatchTables, ClassifiedBatch, KnownEvents, LoadedBatch } from './batch-tables.ts';
import { hourMs } from './deduplicate.ts';
import { type OnDamage, findIntactFiles } from './natural-key-cache.ts';
import { assertFilesIntact } from '../files/data-file.ts';

/** Time for which keys are kept beyond the window, because ingest clocks differ, ms. */
const slackMs = hourMs;
/** Limit of the files that are read for retries of requests of version 0.2, bytes. */
const maxFormerBytes = 512 * 1024 ** 2;

export interface KeysSeen {
  /** The lake's `keysCommit` of complete keys. A commit that finds another one must classify again. */
  readonly keysSeen: string | undefined;
}

const isKeyed = ({ keyless }: DataFile): boolean => keyless !== true;

interface RecentKeysDependencies {
  readonly tables: BatchTables;
  readonly table: Table;
  readonly onDamage: OnDamage;
}

interface Loading {
  readonly add: (whole: readonly DataFile[]) => Promise<void>;
  readonly forget: () => Promise<void>;
}

async function loadKeys(
  dependencies: RecentKeysDependencies,
  files: readonly DataFile[],
  { add, forget }: Loading,
  signal?: AbortSignal,
): Promise<void> {
  const intactFiles = await findIntactFiles(dependencies, files.filter(isKeyed), signal);
  if (intactFiles.length === 0) return;
  try {
    await add(intactFiles);
  } catch (error) {
    // A retry would add them twice.
    await forget();
    // A file may have been replaced since it was checked.
    await findIntactFiles(dependencies, intactFiles, signal);
    throw error;
  }
}

/** Returns the files of later commits with keyed events; undefined if some no longer exist. */
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
      // Sealed or erased: its rows are in other files.
      if (file === undefined) return undefined;
      files.push(file);
    }
  }
  return files;
}

/** Finds events that version 0.2 stored at these times, unless that would read too much. */
async function lookUpFormer(
  dependencies: RecentKeysDependencies,
  lookUp: BatchLookup,
  times: readonly number[],
): Promise<void> {
  const { files, emptyFile } = dependencies.table.snapshot();
  const keyed = files.filter(isKeyed);
  const near = new Set(times.flatMap((ms) => pruneFiles(keyed, { receivedAt: { fromMs: ms, toMs: ms } })));
  const bytes = [...near].reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  if (times.length === 0 || bytes > maxFormerBytes) return;
  await lookUp.lookUpFormer(await findIntactFiles(dependencies, [...near]), emptyFile);
}

/** Classifies a batch; if keys are reused, also by the events that version 0.2 stored. */
async function classifyByFormer(
  dependencies: RecentKeysDependencies,
  batch: Pick<LoadedBatch, 'classify'>,
  load: KnownEvents['load'],
): Promise<ClassifiedBatch> {
  const classified = await batch.classify({ rule: 'stream', load });
  if (!classified.reusesKeys) return classified;
  return batch.classify({
    rule: 'stream',
    async load(lookUp) {
      // Read first: the load overwrites the previous classification.
      const times = await lookUp.formerTimes();
      await load(lookUp);
      await lookUpFormer(dependencies, lookUp, times);
    },
  });
}

/** Tracks the times of receipt for which the known keys are complete. For one caller at a time. */
function createCoverage(dependencies: RecentKeysDependencies) {
  const { table } = dependencies;
  const { keys } = dependencies.tables;
  /** Sorted and without overlaps. */
  let covered: Range[] = [];
  let seen: { readonly version: number; readonly keysCommit: string | undefined } | undefined;

  async function forget(): Promise<void> {
    // Cleared first, since it must be true also after an error.
    covered = [];
    await keys.clear();
  }

  async function load(range: Range, signal?: AbortSignal): Promise<void> {
    const snapshot = table.snapshot();
    const gaps = findMissingRanges(range, covered);
    if (covered.length === 0) seen = { version: snapshot.version, keysCommit: snapshot.lake?.keysCommit };
    for (const gap of gaps) {
      const bounds = Number.isFinite(gap.toMs) ? gap : { fromMs: gap.fromMs };
      const files = pruneFiles(snapshot.files, { receivedAt: bounds });
      await loadKeys(dependencies, files, { add: (whole) => keys.addReceived(whole, gap), forget }, signal);
      covered = joinRanges([...covered, gap]);
    }
  }

  /** Adds keys of other commits: of a replay, or a flush of this process with an unknown result. */
  async function catchUp(): Promise<void> {
    const snapshot = table.snapshot();
    if (covered.length === 0 || snapshot.lake?.keysCommit === seen?.keysCommit) return;
    const files = await findNewFiles(table.dir, seen?.version ?? -1, snapshot);
    if (files === undefined) return forget();
    await loadKeys(dependencies, files, { add: (whole) => keys.addAll(whole), forget });
    seen = { version: snapshot.version, keysCommit: snapshot.lake?.keysCommit };
  }

  async function cover(batch: BatchLookup): Promise<void> {
    const hours = await batch.keyedHours();
    if (hours.length === 0) return;
    // Done here, because a committed batch must not fail for it.
    await keys.slice();
    await table.refresh();
    await catchUp();
    for (const range of joinRanges(hours.map(aroundHour))) await load(range);
  }

  async function forgetOld(batch: Pick<ClassifiedBatch, 'keyedHours'>): Promise<void> {
    const [first] = await batch.keyedHours();
    if (first === undefined) return;
    const fromMs = first - keyWindowMs - slackMs;
    if (fromMs <= (covered[0]?.fromMs ?? fromMs)) return;
    covered = covered
      .filter(({ toMs }) => toMs >= fromMs)
      .map((range) => ({ ...range, fromMs: Math.max(range.fromMs, fromMs) }));
    await keys.forgetBefore(fromMs);
  }

  return {
    load,
    cover,
    forgetOld,
    seen: () => seen,
    see(commit: NonNullable<typeof seen>) {
      seen = commit;
    },
  };
}

/** Creates the compactor's cache of Idempotency-Keys, which loads on demand all keys that a batch needs. */
export function createIdempotencyKeyCache(dependencies: RecentKeysDependencies) {
  const { table, tables } = dependencies;
  const coverage = createCoverage(dependencies);
  // While keys are loaded, batches without keys are flushed; others wait.
  const oneAtATime = createMutex();

  async function classify(
    batch: Pick<LoadedBatch, 'classify'>,
    lookUpAll: boolean,
    loadMore?: KnownEvents['load'],
  ): Promise<ClassifiedBatch & KeysSeen> {
    const loadAll: KnownEvents['load'] = async (lookUp) => {
      await coverage.cover(lookUp);
      if (lookUpAll) await lookUp.lookUpEvents(table.snapshot().files);
      await loadMore?.(lookUp);
    };
    // Only a batch that was loaded entirely has the values of a retry of version 0.2.
    const classified = await (loadMore === undefined
      ? batch.classify({ rule: 'stream', load: loadAll })
      : classifyByFormer(dependencies, batch, loadAll));
    return { ...classified, keysSeen: coverage.seen()?.keysCommit };
  }
  return {
    /** Loads in advance what a batch received now needs. Concurrent calls wait. Errors: those of `classify`. */
    warmUp: (nowMs: number, signal: AbortSignal) =>
      oneAtATime.run(() =>
        coverage.load({ fromMs: nowMs - keyWindowMs - slackMs, toMs: Number.POSITIVE_INFINITY }, signal),
      ),
    size: () => tables.keys.size(),
    /**
     * Classifies a batch by all keys in the window around its rows. `lookUpAll` also finds events by id. Error:
     * `file_damaged`, retryable if a file was replaced.
     */
    classify: (batch: Pick<LoadedBatch, 'classify'>, lookUpAll: boolean, loadMore?: KnownEvents['load']) =>
      oneAtATime.run(() => classify(batch, lookUpAll, loadMore)),
    /** Adds the keys of a committed batch and drops old ones. `added`: the commit, if it added keys. */
    remember: (
      batch: Pick<ClassifiedBatch, 'keepKeys' | 'keyedHours'>,
      added: { readonly version: number; readonly keysCommit: string } | undefined,
    ): Promise<void> =>
      oneAtATime.run(async () => {
        await batch.keepKeys();
        if (added !== undefined) coverage.see(added);
        await coverage.forgetOld(batch);
      }),
  };
}

export type IdempotencyKeyCache = ReturnType<typeof createIdempotencyKeyCache>;

/** Times of receipt, Unix ms, inclusive. */
interface Range {
  readonly fromMs: number;
  readonly toMs: number;
}

/** Returns the times of receipt that classify keys received in an hour. */
const aroundHour = (fromMs: number): Range => ({ fromMs: fromMs - keyWindowMs, toMs: fromMs + hourMs + keyWindowMs });

/** Returns the parts of a range that `covered`, sorted and without overlaps, lacks. */
export function findMissingRanges({ fromMs, toMs }: Range, covered: readonly Range[]): Range[] {
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

async function addKeysOfBatch(lookUp: BatchLookup, files: readonly DataFile[]): Promise<void> {
  const keyed = files.filter(isKeyed);
  const hours = await lookUp.keyedHours();
  const wanted = new Set(hours.flatMap((hour) => pruneFiles(keyed, { receivedAt: aroundHour(hour) })));
  if (wanted.size === 0) return;
  // A damaged file hides keys, and their events would be stored again.
  await assertFilesIntact([...wanted]);
  await lookUp.addOwnKeys([...wanted]);
}

/** Creates the lookup of a batch of failed events, without other known keys. Repeated calls read only new files. */
export function createLakeLookup(table: Table) {
  const known = new Set<string>();
  return {
    classify: (batch: LoadedBatch): Promise<ClassifiedBatch> =>
      batch.classify({
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
