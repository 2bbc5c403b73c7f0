/**
 * Finds the current state of an event that a client has sent.
 *
 * In: an event id, or the start of the ids of a request under an Idempotency-Key, and the app. Out: the state of the
 * events (event-answer.ts).
 * Invariant: an acknowledged event is found wherever it is and while it moves; if that is impossible within the limits,
 * there is an error. Nothing is reported about events of other apps.
 * Crash: only the index of ids is stored, a cache.
 *
 * One lookup at a time, apps in rotation, by an engine of one thread and bounded memory that the first lookup opens.
 */
import path from 'node:path';
import { createKeyedSemaphore } from '../runtime/async/semaphore.ts';
import { AppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { createErasedIdsSearch } from '../lake/find/erased-ids.ts';
import { createFailedIndex } from '../lake/find/failed-index.ts';
import { openIdIndex } from '../lake/find/id-index.ts';
import { lakePaths } from '../lake/lake.ts';
import { openDuckdb, type Duckdb } from '../lake/sql/duckdb.ts';
import { readWatermarkMs } from '../lake/watermark.ts';
import { machineClock } from '../runtime/clock.ts';
import type { EventAnswer } from './event-answer.ts';
import { findEvent, type Places, type Question, type ReadTail } from './find-event.ts';
import { createFollowedTables } from './followed-tables.ts';
import { createIndexUpkeep } from './index-upkeep.ts';

export interface FinderOptions {
  readonly lakeDir: string;
  readonly indexDir: string;
  /** For what its engine spills; exclusive. */
  readonly workDir: string;
  readonly readTail?: ReadTail | undefined;
  /** Larger data files are indexed by `upkeep` only [no limit]. */
  readonly maxIndexedBytes?: number;
  /** With more unread files of failed events, they are left to `upkeep` [no limit]. */
  readonly maxFailedFiles?: number;
}

export interface Finder {
  /** Errors: those of `findEvent`; `overloaded` with too many waiting lookups. */
  find(question: Question): Promise<EventAnswer>;
  /**
   * After the first lookup, also of an earlier process: reads failed events, indexes files, removes unneeded indexes.
   * Errors: of a file that cannot be indexed, after the others.
   */
  upkeep(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

const engine = { memoryMb: 256, threads: 1 } as const;
/** Limits of waiting lookups, in total and per app. */
const maxWaiting = 64;
const maxWaitingOfApp = 8;
/** Time in which clients usually repeat a rejected lookup, ms. */
const askedLatelyMs = 10_000;
/** Stands for the service itself, and for lookups in any app. */
const nobody = 0;

/** Creates the finder of a lake; opens nothing yet. */
export function createFinder(options: FinderOptions): Finder {
  const { lakeDir, indexDir, workDir, readTail, maxIndexedBytes, maxFailedFiles } = options;
  const paths = lakePaths(lakeDir);
  const oneAtATime = createKeyedSemaphore(1, 1);
  let askedAtMs = -Infinity;
  const upkeep = createIndexUpkeep({
    engine: { ...engine, tempDir: path.join(workDir, 'index') },
    isAsked: () => performance.now() - askedAtMs < askedLatelyMs,
  });
  let duckdb: Duckdb | undefined;
  let places: Places | undefined;
  let isClosed = false;

  async function open(): Promise<Places> {
    if (places !== undefined) return places;
    if (isClosed) throw new AppError('overloaded', 'the service stops', { hint: 'Ask again in a while.' });
    duckdb = await openDuckdb({ ...engine, tempDir: path.join(workDir, 'spill') });
    places = {
      duckdb,
      tables: createFollowedTables(lakeDir),
      index: openIdIndex(indexDir),
      maxIndexedBytes,
      versions: new Map(),
      failed: createFailedIndex(paths.failed, paths.table, maxFailedFiles),
      erasedIds: createErasedIdsSearch(paths),
      readWatermarkMs: () => readWatermarkMs(lakeDir, machineClock),
      ...(readTail === undefined ? {} : { readTail }),
    };
    return places;
  }

  return {
    async find(question) {
      const { sought, deadlineMs } = question;
      askedAtMs = performance.now();
      const asker = sought.idApp ?? nobody;
      if (oneAtATime.count() >= maxWaiting || oneAtATime.count(asker) >= maxWaitingOfApp)
        throw new AppError('overloaded', 'too many questions wait for an answer', { hint: 'Ask again in a while.' });
      return oneAtATime.run(asker, async () => {
        if (performance.now() >= deadlineMs)
          throw new AppError('overloaded', 'other questions took all the time', { hint: 'Ask again in a while.' });
        return findEvent(await open(), question);
      });
    },
    async upkeep(signal) {
      if (places === undefined && !(await exists(indexDir))) return;
      const { failed } = await oneAtATime.run(nobody, open);
      await failed.readOn(signal);
      const [index, tables] = await oneAtATime.run(nobody, async () => {
        const opened = await open();
        return [opened.index, await opened.tables.read()] as const;
      });
      await upkeep.run(index, tables, signal);
    },
    close: () =>
      oneAtATime.run(nobody, async () => {
        isClosed = true;
        places = undefined;
        duckdb?.close();
        duckdb = undefined;
        await removeTree(workDir);
      }),
  };
}
