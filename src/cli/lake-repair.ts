import { dataPaths, type Config } from '../config.ts';
import { openCommandEngine } from '../lake/command-engine.ts';
import { repairLake, type LakeRepair } from '../lake/repair/repair-lake.ts';
import { createClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';

/** `tributary lake repair`: mends the lake, with the service running or stopped. */
export async function runLakeRepair(config: Config, acceptsLoss: boolean): Promise<LakeRepair> {
  const { lake: lakeDir } = dataPaths(config.dataDir);
  const engine = await openCommandEngine(lakeDir, { memoryMb: config.duckdbMemoryMb, threads: 2 });
  try {
    return await repairLake(
      { lakeDir, duckdb: engine.duckdb, clock: createClock(config.clockOffsetSeconds), crashPoint: noCrashPoint },
      acceptsLoss,
    );
  } finally {
    await engine.close();
  }
}
