/**
 * Finds events: where one is that a client has sent.
 *
 * In: an event id, or what the ids of a request under an Idempotency-Key begin with, and whose app's they must be. Out:
 * where the events are now, from the stream to the erasure (event-answer.ts).
 * Invariant: an acknowledged event is found wherever it is and while it moves; where that cannot be said within the time
 * and the bounds, there is an error, and no answer. Nothing is said of an event of another app than the one asked for.
 * Crash: nothing rests here but the index of ids, a cache.
 *
 * One question at a time, by an engine of one thread and bounded memory that is opened for the first: whoever never asks
 * pays nothing.
 */
import path from 'node:path';
import { createMutex } from '../runtime/async/mutex.ts';
import { pause } from '../runtime/async/retry.ts';
import { AppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { mayHoldHashed } from '../lake/find/find-rows.ts';
import { createFailedIndex } from '../lake/find/failed-index.ts';
import { openIdIndex } from '../lake/find/id-index.ts';
import { lakePaths } from '../lake/lake.ts';
import type { DataFile } from '../lake/log/snapshot.ts';
import { openDuckdb, type Duckdb } from '../lake/sql/duckdb.ts';
import type { EventAnswer } from './event-answer.ts';
import { findEvent, type Places, type Question, type ReadTail } from './find-event.ts';
import { createFollowedTables } from './followed-tables.ts';

export interface FinderOptions {
  readonly lakeDir: string;
  /** Folder of the index of ids. */
  readonly indexDir: string;
  /** Working folder of this finder alone, for what its engine spills. */
  readonly workDir: string;
  readonly readTail?: ReadTail | undefined;
  /** Questions that wait at a time; further ones are refused. */
  readonly maxWaiting?: number;
}

export interface Finder {
  /** Errors: those of `findEvent`; `overloaded` when too many wait. */
  find(question: Question): Promise<EventAnswer>;
  /**
   * Once anybody has asked, of this process or one before: indexes the files that are not indexed yet, and removes
   * indexes that nobody needs. Errors: of a file that cannot be indexed, when the others are.
   */
  upkeep(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

const engine = { memoryMb: 256, threads: 1 } as const;
/** The upkeep rests so many times as long as it works: it is not to be felt by the flushes. */
const restsFor = 4;

/** Creates the finder of a lake; nothing is opened yet. */
export function createFinder(options: FinderOptions): Finder {
  const { lakeDir, indexDir, workDir, readTail, maxWaiting = 16 } = options;
  const paths = lakePaths(lakeDir);
  const oneAtATime = createMutex();
  let duckdb: Duckdb | undefined;
  let places: Places | undefined;
  let waiting = 0;
  /** The versions of the tables that the index is of. */
  let keptUpTo = '';

  async function open(): Promise<Places> {
    if (places !== undefined) return places;
    duckdb = await openDuckdb({ ...engine, tempDir: path.join(workDir, 'spill') });
    places = {
      duckdb,
      tables: createFollowedTables(lakeDir),
      index: openIdIndex(indexDir, duckdb),
      failed: createFailedIndex(paths.failed, paths.table),
      erasedIds: paths.erasedIds,
      ...(readTail === undefined ? {} : { readTail }),
    };
    return places;
  }

  /** Indexes files by an engine of its own, so that whoever asks does not wait for it. */
  async function indexAll(files: readonly DataFile[], signal: AbortSignal): Promise<void> {
    const own = await openDuckdb({ ...engine, tempDir: path.join(workDir, 'index') });
    const failures: unknown[] = [];
    try {
      const index = openIdIndex(indexDir, own);
      for (const file of files) {
        if (signal.aborted) return;
        const startedAt = performance.now();
        await index.add(file).catch((error: unknown) => failures.push(error));
        await pause((performance.now() - startedAt) * restsFor, signal);
      }
    } finally {
      own.close();
    }
    if (failures.length > 0) throw failures[0];
  }

  return {
    async find(question) {
      if (waiting >= maxWaiting)
        throw new AppError('overloaded', 'too many questions wait for an answer', { hint: 'Ask again in a while.' });
      waiting += 1;
      try {
        return await oneAtATime.run(async () => {
          if (performance.now() >= question.deadlineMs)
            throw new AppError('overloaded', 'other questions took all the time', { hint: 'Ask again in a while.' });
          return findEvent(await open(), question);
        });
      } finally {
        waiting -= 1;
      }
    },
    async upkeep(signal) {
      if (places === undefined && !(await exists(indexDir))) return;
      const [index, tables] = await oneAtATime.run(async () => {
        const opened = await open();
        return [opened.index, await opened.tables.read()] as const;
      });
      const upTo = JSON.stringify(tables.map(({ dataset, snapshot }) => [dataset.table, snapshot.version]));
      if (upTo === keptUpTo) return;
      const live = tables.flatMap(({ dataset, snapshot }) =>
        snapshot.files.filter((file) => mayHoldHashed(dataset, file)),
      );
      const missing = await index.keepOnly(live);
      if (missing.length > 0) await indexAll(missing, signal);
      keptUpTo = upTo;
    },
    close: () =>
      oneAtATime.run(async () => {
        places = undefined;
        duckdb?.close();
        duckdb = undefined;
        await removeTree(workDir);
      }),
  };
}
