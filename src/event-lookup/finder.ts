/**
 * Finds the current state of an event that a client has sent.
 *
 * In: an event id, or the start of the ids of a request under an Idempotency-Key, and the app. Out: the state of the
 * events (lookup-result.ts).
 * Invariant: an acknowledged event is found wherever it is and while it moves; if that is impossible within the limits,
 * there is an error. Nothing is reported about events of other apps.
 * Crash: only the index of ids is stored, a cache.
 *
 * One lookup at a time, apps in rotation, by an engine of one thread and bounded memory that the first lookup opens.
 */
import path from 'node:path';
import { pause } from '../runtime/async/retry.ts';
import { createKeyedSemaphore } from '../runtime/async/semaphore.ts';
import { AppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { createErasedIdsSearch } from '../lake/event-index/erased-ids.ts';
import { createFailedIndex } from '../lake/event-index/failed-index.ts';
import { type DatasetTable, mayHoldHashed } from '../lake/event-index/find-rows.ts';
import { type IdIndex, openIdIndex } from '../lake/event-index/id-index.ts';
import { lakePaths } from '../lake/lake.ts';
import { createStateSearch } from '../lake/log/change-feed.ts';
import type { DataFile } from '../lake/log/snapshot.ts';
import { createLazyDuckdb, type DuckdbOptions, type Statements } from '../lake/sql/duckdb.ts';
import { findWatermarkMs } from '../lake/watermark.ts';
import { machineClock } from '../runtime/clock.ts';
import type { EventLookupResult, EventsLookupResult } from './lookup-result.ts';
import { findEvents, type EventsLookupRequest } from './find-events.ts';
import {
  openTailedTables,
  findEvent,
  type LookupSources,
  type EventLookupRequest,
  type ReadBacklog,
} from './find-event.ts';

export interface FinderOptions {
  readonly lakeDir: string;
  readonly indexDir: string;
  /** For what its engine spills; exclusive. */
  readonly workDir: string;
  readonly readBacklog?: ReadBacklog | undefined;
  /** Larger data files are indexed by `maintain` only [no limit]. */
  readonly maxIndexedBytes?: number;
  /** With more unread files of failed events, they are left to `maintain` [no limit]. */
  readonly maxFailedFiles?: number;
}

const engine = { memoryMb: 256, threads: 1 } as const;
/** Limits of waiting lookups, in total and per app. */
const maxWaiting = 64;
const maxWaitingOfApp = 8;
/** Time in which clients usually repeat a rejected lookup, ms. */
const recentLookupMs = 10_000;
/** Stands for the service itself, and for lookups in any app. */
const noApp = 0;

export function createEventFinder(options: FinderOptions) {
  const { lakeDir, indexDir, workDir, readBacklog, maxIndexedBytes, maxFailedFiles } = options;
  const paths = lakePaths(lakeDir);
  const oneAtATime = createKeyedSemaphore(1, 1);
  let lastLookupAtMs = -Infinity;
  const maintenance = createIndexMaintenance({
    engine: { ...engine, tempDir: path.join(workDir, 'index') },
    hasRecentLookups: () => performance.now() - lastLookupAtMs < recentLookupMs,
  });
  const duckdb = createLazyDuckdb({ ...engine, tempDir: path.join(workDir, 'spill') });
  let lookupSources: LookupSources | undefined;
  let isClosed = false;

  async function open(): Promise<LookupSources> {
    if (lookupSources !== undefined) return lookupSources;
    if (isClosed) throw new AppError('overloaded', 'the service is stopping', { hint: 'Retry later.' });
    const findState = createStateSearch(paths.table);
    lookupSources = {
      duckdb,
      tables: openTailedTables(lakeDir),
      index: openIdIndex(indexDir),
      maxIndexedBytes,
      versions: new Map(),
      failed: createFailedIndex(paths.failed, paths.table, maxFailedFiles),
      erasedIds: createErasedIdsSearch(paths),
      readWatermarkMs: async () => {
        const newest = await findState().catch(() => undefined);
        return await findWatermarkMs(lakeDir, newest?.epoch, machineClock);
      },
      ...(readBacklog === undefined ? {} : { readBacklog }),
    };
    return lookupSources;
  }

  /** Runs one lookup at a time. Error: `overloaded` with too many waiting lookups, or at the deadline. */
  async function run<T>(idApp: number, deadlineMs: number, find: (sources: LookupSources) => Promise<T>): Promise<T> {
    lastLookupAtMs = performance.now();
    if (oneAtATime.count() >= maxWaiting || oneAtATime.count(idApp) >= maxWaitingOfApp)
      throw new AppError('overloaded', 'too many waiting lookups', { hint: 'Retry later.' });
    return oneAtATime.run(idApp, async () => {
      if (performance.now() >= deadlineMs)
        throw new AppError('overloaded', 'the lookup timed out in the queue', { hint: 'Retry later.' });
      return find(await open());
    });
  }

  return {
    /** Errors: those of `findEvent`; `overloaded` with too many waiting lookups. */
    find: (request: EventLookupRequest): Promise<EventLookupResult> =>
      run(request.target.idApp ?? noApp, request.deadlineMs, (sources) => findEvent(sources, request)),
    /** Looks up many events of an app. Errors: those of `findEvents`; `overloaded` as above. */
    findMany: (request: EventsLookupRequest): Promise<EventsLookupResult> =>
      run(request.idApp, request.deadlineMs, (sources) => findEvents(sources, request)),
    /** Maintains the index after the first lookup, also of an earlier process. Error: of a failed file, at the end. */
    async maintain(signal: AbortSignal) {
      if (lookupSources === undefined && !(await exists(indexDir))) return;
      const { failed } = await oneAtATime.run(noApp, open);
      await failed.readOn(signal);
      const [index, tables] = await oneAtATime.run(noApp, async () => {
        const opened = await open();
        return [opened.index, await opened.tables.read()] as const;
      });
      await maintenance.run(index, tables, signal);
    },
    close: () =>
      oneAtATime.run(noApp, async () => {
        isClosed = true;
        lookupSources = undefined;
        await duckdb.close();
        await removeTree(workDir);
      }),
  };
}

export type EventFinder = ReturnType<typeof createEventFinder>;

interface IndexMaintenanceOptions {
  /** Of a separate engine: lookups do not wait for it. */
  readonly engine: DuckdbOptions;
  readonly hasRecentLookups?: () => boolean;
}

/** Delays as multiples of the work, so that flushes are not slowed down. */
const pauseFactors = { recentLookups: 1, otherwise: 4 } as const;

/** Maintains the index of ids: indexes new files, removes unneeded parts, merges small ones. */
export function createIndexMaintenance({ engine: engineOptions, hasRecentLookups }: IndexMaintenanceOptions) {
  let maintainedVersions = '';

  const pauseAfterWork = (workedMs: number, signal: AbortSignal): Promise<void> =>
    pause(workedMs * (hasRecentLookups?.() === true ? pauseFactors.recentLookups : pauseFactors.otherwise), signal);

  async function addAll(duckdb: Statements, index: IdIndex, files: readonly DataFile[], signal: AbortSignal) {
    const failures: unknown[] = [];
    for (const file of files) {
      if (signal.aborted) break;
      const startedAt = performance.now();
      await index.add(duckdb, file).catch((error: unknown) => failures.push(error));
      await pauseAfterWork(performance.now() - startedAt, signal);
    }
    return failures;
  }

  return {
    /** Processes new versions of the tables. Errors: of the first file that cannot be indexed, at the end. */
    async run(index: IdIndex, tables: readonly DatasetTable[], signal: AbortSignal) {
      const versions = JSON.stringify(tables.map(({ dataset, snapshot }) => [dataset.table, snapshot.version]));
      if (versions === maintainedVersions) return;
      const live = tables.flatMap(({ dataset, snapshot }) =>
        snapshot.files.filter((file) => mayHoldHashed(dataset, file)),
      );
      const duckdb = createLazyDuckdb(engineOptions);
      try {
        const failures = await addAll(duckdb, index, await index.keepOnly(duckdb, live), signal);
        for (const merge of index.planMerges(live)) {
          if (signal.aborted) return;
          const startedAt = performance.now();
          await index.merge(duckdb, merge);
          await pauseAfterWork(performance.now() - startedAt, signal);
        }
        if (failures.length > 0) throw failures[0];
      } finally {
        await duckdb.close();
      }
      if (signal.aborted) return;
      maintainedVersions = versions;
    },
  };
}
