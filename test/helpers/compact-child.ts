import path from 'node:path';
import process from 'node:process';
import { startCompact } from '../../src/compact/compact.ts';
import { openEnrichment } from '../../src/enrichment/enrichment.ts';
import { openTable } from '../../src/lake/log/table.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { eraseEvents } from '../../src/admin/erase/erase.ts';
import { replayFailedEvents } from '../../src/admin/replay.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { createCrashPoint } from '../../src/runtime/crash-point.ts';
import { isAppError } from '../../src/runtime/errors.ts';
import { createLogger } from '../../src/runtime/logger.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import { openConnection } from '../../src/stream/connection.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { openReader } from '../../src/stream/reader.ts';
import type { ProcessSettings } from './compact-process.ts';

/**
 * Runs the compactor, one erasure or one replay on `folder`/lake, so that tests can kill the process at a named step.
 * It ends on SIGTERM, or when its work is done. Its argument is JSON: the settings, the lake's folder and the broker's
 * address. Prints `ready`; exits with 3 when fenced.
 */
const settings = JSON.parse(process.argv[2] ?? '') as ProcessSettings & {
  readonly folder: string;
  readonly url: string;
};
const logger = createLogger(process.env['TEST_LOG'] ?? 'silent');
const clock = createClock(0);
const crashPoint = createCrashPoint(settings.crashAt);
const lakeDir = path.join(settings.folder, 'lake');
const retentionMs = 6000;
const duckdbMemoryMb = 256;

async function openLake() {
  const table = await openTable(path.join(lakeDir, 'events'), { clock, crashPoint });
  const duckdb = await openDuckdb({ memoryMb: duckdbMemoryMb, threads: 1 });
  return { table, lakeDir, duckdb, clock, crashPoint };
}

async function compact(connection: Awaited<ReturnType<typeof openConnection>>): Promise<void> {
  const reader = await openReader(connection);
  const enrichment = settings.enriches === true ? await openEnrichment() : undefined;
  const stage = await startCompact(
    { reader, clock, metrics: createMetrics(), logger, crashPoint, enrichment },
    {
      lakeDir,
      spoolDir: path.join(settings.folder, settings.spool ?? 'spool'),
      flushAgeMs: 40,
      flushMaxBytes: 1 << 26,
      flushMaxRows: 250_000,
      sealAgeMs: 300,
      sealMaxBytes: 1 << 27,
      mergeAfterMs: 0,
      retentionMs,
      duckdbMemoryMb,
      checkpointEvery: 10,
      ...settings.options,
    },
  );
  // Before `ready` is printed: the signal may follow at once.
  process.once('SIGTERM', () => void stage.stop());
  process.stdout.write('ready\n');
  await stage.failed.catch((error: unknown) => {
    if (isAppError(error, 'fenced')) process.exitCode = 3;
    else if (!isAppError(error, 'stopping')) throw error;
  });
  await stage.stop();
}

async function run(): Promise<void> {
  const connection = await openConnection({ url: settings.url, name: 'child', logger });
  if (settings.replay === true) await replayFailedEvents(await openLake());
  else if (settings.erase === undefined) await compact(connection);
  else {
    const signal = new AbortController().signal;
    const dependencies = { ...(await openLake()), publisher: openPublisher(connection), signal };
    await eraseEvents(dependencies, { users: [settings.erase] }, { retentionMs });
  }
  process.exit();
}

void run();
