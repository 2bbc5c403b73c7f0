import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { openDuckdb, type Duckdb, type DuckdbOptions } from './sql/duckdb.ts';
import { followGroupAccess } from '../runtime/files/group-access.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { lakePaths } from './lake.ts';

/** An engine for one command that changes the lake. */
export interface CommandEngine {
  readonly duckdb: Duckdb;
  /** Closes the engine and removes what it has spilled. */
  close(): Promise<void>;
}

/**
 * Opens one. What it spills are rows of the lake, perhaps of a person who is erased later: they lie in the staging
 * folder, where the next holder of the maintenance lock removes what a killed command has left. Errors: those of
 * `openDuckdb`.
 */
export async function openCommandEngine(
  lakeDir: string,
  limits: Pick<DuckdbOptions, 'memoryMb' | 'threads'>,
): Promise<CommandEngine> {
  await followGroupAccess(lakePaths(lakeDir).root);
  const tempDir = path.join(lakePaths(lakeDir).staging, `spill-${randomUUID()}`);
  const duckdb = await openDuckdb({ ...limits, tempDir });
  return {
    duckdb,
    async close() {
      duckdb.close();
      await removeTree(tempDir);
    },
  };
}
