import { rm } from 'node:fs/promises';
import path from 'node:path';
import { dataPaths, type Config } from '../config.ts';
import { openDuckdb } from '../lake/duckdb.ts';
import { repairLake, type LakeRepair } from '../lake/repair-lake.ts';
import { ensureFolder } from '../runtime/durable-file.ts';
import { createClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';

/** `tributary lake repair`: mends the lake, with the service running or stopped. */
export async function runLakeRepair(config: Config, acceptsLoss: boolean): Promise<LakeRepair> {
  const paths = dataPaths(config.dataDir);
  const tempDir = path.join(paths.tmp, 'repair');
  // The engine makes its folder, but not the parent of that.
  await ensureFolder(tempDir);
  const duckdb = await openDuckdb({ memoryMb: config.duckdbMemoryMb, threads: 2, tempDir });
  try {
    return await repairLake({ lakeDir: paths.lake, duckdb, clock: createClock(config.clockOffsetSeconds), crashPoint: noCrashPoint }, acceptsLoss);
  } finally {
    duckdb.close();
    await rm(tempDir, { recursive: true, force: true });
  }
}
