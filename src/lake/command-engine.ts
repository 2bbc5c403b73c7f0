import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { events } from '../datasets/dataset.ts';
import { openDuckdb, type Duckdb, type DuckdbOptions } from './sql/duckdb.ts';
import { followGroupAccess } from '../runtime/files/group-access.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { lakePaths, tablePaths } from './lake.ts';

/** An engine for one command that changes the lake. */
export interface CommandEngine {
  readonly duckdb: Duckdb;
  /** Closes the engine and removes what it has spilled. */
  close(): Promise<void>;
}

/**
 * Opens one. What it spills are rows of the lake, perhaps of a person who is erased later: they lie in the staging
 * folder of the table whose maintenance lock the command takes, that of the events by default, where the next holder
 * removes what a killed command has left. Errors: those of `openDuckdb`.
 */
export async function openCommandEngine(
  lakeDir: string,
  limits: Pick<DuckdbOptions, 'memoryMb' | 'threads'>,
  dataset = events,
): Promise<CommandEngine> {
  await followGroupAccess(lakePaths(lakeDir).root);
  const tempDir = path.join(tablePaths(lakeDir, dataset).staging, `spill-${randomUUID()}`);
  const duckdb = await openDuckdb({ ...limits, tempDir });
  return {
    duckdb,
    async close() {
      duckdb.close();
      await removeTree(tempDir);
    },
  };
}
