import { dataPaths, type Config } from '../config.ts';
import { openEnrichment } from '../enrichment/enrichment.ts';
import { openCommandEngine } from '../lake/command-engine.ts';
import { enrichLake, type TableEnriched } from '../operate/enrich.ts';
import { createClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';

/** What `tributary lake enrich` has done. */
export interface LakeEnriched {
  /** Date of the database that places came from. */
  readonly geoDate: string;
  readonly tables: readonly TableEnriched[];
}

/**
 * `tributary lake enrich`: fills what rows do not say, with the service running or stopped. Errors: those of
 * `enrichLake`, and `geo_database_damaged` where the database cannot be read: nothing is changed then.
 */
export async function runLakeEnrich(config: Config, signal: AbortSignal): Promise<LakeEnriched> {
  const { lake: lakeDir } = dataPaths(config.dataDir);
  const enricher = await openEnrichment(config);
  const { databaseDate: geoDate } = enricher;
  if (geoDate === undefined)
    throw new AppError('geo_database_damaged', enricher.problems()[0]?.what ?? 'there is no geo database', {
      hint: 'Name a good MMDB file by TRIBUTARY_GEO_DB, or leave it out for the database of the package.',
    });
  const engine = await openCommandEngine(lakeDir, { memoryMb: config.duckdbMemoryMb, threads: 2 });
  try {
    const clock = createClock(config.clockOffsetSeconds);
    const { duckdb } = engine;
    const { retentionMs } = config;
    const dependencies = { lakeDir, duckdb, enricher, clock, crashPoint: noCrashPoint, signal, retentionMs };
    return { geoDate, tables: await enrichLake(dependencies) };
  } finally {
    await engine.close();
    enricher.close();
  }
}
