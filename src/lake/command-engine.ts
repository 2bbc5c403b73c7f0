import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { events } from '../datasets/dataset.ts';
import { openDuckdb, type Duckdb, type DuckdbOptions } from './sql/duckdb.ts';
import { followGroupAccess } from '../runtime/files/group-access.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { lakePaths, tablePaths } from './lake.ts';

export interface CommandEngine {
  readonly duckdb: Duckdb;
  close(): Promise<void>;
}

/** Opens an engine for a command that changes the lake. It spills into the table's staging folder. */
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
