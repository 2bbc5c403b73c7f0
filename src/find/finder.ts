/**
 * Finds events: where one is that a client has sent.
 *
 * In: an event id, or what the ids of a request under an Idempotency-Key begin with, and whose app's they must be. Out:
 * where the events are now, from the stream to the erasure (event-answer.ts).
 * Invariant: an acknowledged event is found wherever it is and while it moves; where that cannot be said within the time
 * and the bounds, there is an error, and no answer. Nothing is said of an event of another app than the one asked for.
 * Crash: nothing rests here but the index of ids, a cache.
 *
 * One question at a time, of those who wait each app's in turn, by an engine of one thread and bounded memory that is
 * opened for the first: whoever never asks pays nothing.
 */
import path from 'node:path';
import { createFairMutex } from '../runtime/async/semaphore.ts';
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
  /** Folder of the index of ids. */
  readonly indexDir: string;
  /** Working folder of this finder alone, for what its engine spills. */
  readonly workDir: string;
  readonly readTail?: ReadTail | undefined;
  /** A data file with more bytes is indexed by `upkeep` alone: no other question waits for it. Absent: none is. */
  readonly maxIndexedBytes?: number;
  /** Where more files of failed events are still to be read they are left to `upkeep`, too. Absent: never. */
  readonly maxFailedFiles?: number;
}

export interface Finder {
  /** Errors: those of `findEvent`; `overloaded` when too many wait. */
  find(question: Question): Promise<EventAnswer>;
  /**
   * Once anybody has asked, of this process or one before: reads the failed events, indexes the files that are not
   * indexed yet, and removes indexes that nobody needs. Errors: of a file that cannot be indexed, when the others are.
   */
  upkeep(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

const engine = { memoryMb: 256, threads: 1 } as const;
/** Questions that wait at a time, and those of one app; further ones are refused. */
const maxWaiting = 64;
const maxWaitingOfApp = 8;
/** Who was told to come again does so within this time, as a rule. */
const askedLatelyMs = 10_000;
/** Has a turn among the apps: the service itself, and who asks for any app's event. */
const nobody = 0;

/** Creates the finder of a lake; nothing is opened yet. */
export function createFinder(options: FinderOptions): Finder {
  const { lakeDir, indexDir, workDir, readTail, maxIndexedBytes, maxFailedFiles } = options;
  const paths = lakePaths(lakeDir);
  const oneAtATime = createFairMutex();
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
