import { pause } from '../runtime/async/retry.ts';
import { mayHoldHashed } from '../lake/find/find-rows.ts';
import { openIdIndex, type IdIndex } from '../lake/find/id-index.ts';
import type { DatasetTable } from '../lake/find/read-rows.ts';
import type { DataFile } from '../lake/log/snapshot.ts';
import { openDuckdb, type DuckdbOptions } from '../lake/sql/duckdb.ts';

interface IndexUpkeepOptions {
  /** Folder of the index of ids. */
  readonly indexDir: string;
  /** The engine is its own: whoever asks does not wait for it. */
  readonly engine: DuckdbOptions;
  /** Says whether somebody asks, who may wait for it. */
  readonly isAsked?: () => boolean;
}

/** Keeps the index of ids up with the lake: indexes what is not indexed yet, removes what nobody needs, makes packs. */
interface IndexUpkeep {
  /**
   * Takes in versions of the tables, unless it knows them. `index`: that of the folder. Errors: of the first file that
   * cannot be indexed, when the others are, and packs are made of them.
   */
  run(index: IdIndex, tables: readonly DatasetTable[], signal: AbortSignal): Promise<void>;
}

/** It rests so many times as long as it works: it is not to be felt by the flushes. Less while somebody asks. */
const restsFor = { asked: 1, otherwise: 4 } as const;

/** Creates the upkeep; nothing is opened. */
export function createIndexUpkeep({ indexDir, engine, isAsked }: IndexUpkeepOptions): IndexUpkeep {
  /** The versions that the index is of. */
  let keptUpTo = '';

  const rest = (workedMs: number, signal: AbortSignal): Promise<void> =>
    pause(workedMs * (isAsked?.() === true ? restsFor.asked : restsFor.otherwise), signal);

  /** Indexes files; returns what came of those that cannot be indexed. */
  async function addAll(files: readonly DataFile[], signal: AbortSignal): Promise<readonly unknown[]> {
    const failures: unknown[] = [];
    if (files.length === 0) return failures;
    const duckdb = await openDuckdb(engine);
    try {
      const index = openIdIndex(indexDir, duckdb);
      for (const file of files) {
        if (signal.aborted) return [];
        const startedAt = performance.now();
        await index.add(file).catch((error: unknown) => failures.push(error));
        await rest(performance.now() - startedAt, signal);
      }
    } finally {
      duckdb.close();
    }
    return failures;
  }

  return {
    async run(index, tables, signal) {
      const upTo = JSON.stringify(tables.map(({ dataset, snapshot }) => [dataset.table, snapshot.version]));
      if (upTo === keptUpTo) return;
      const live = tables.flatMap(({ dataset, snapshot }) =>
        snapshot.files.filter((file) => mayHoldHashed(dataset, file)),
      );
      const failures = await addAll(await index.keepOnly(live), signal);
      let startedAt = performance.now();
      for await (const _ of index.pack(live)) {
        await rest(performance.now() - startedAt, signal);
        if (signal.aborted) return;
        startedAt = performance.now();
      }
      if (failures.length > 0) throw failures[0];
      keptUpTo = upTo;
    },
  };
}
