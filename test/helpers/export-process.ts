import { readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { openAccessReader } from '../../src/access/store.ts';
import { startExport, type ExportOptions } from '../../src/export/export.ts';
import { createClock, type Clock } from '../../src/runtime/clock.ts';
import { createCrashPoint } from '../../src/runtime/crash-point.ts';
import { createLogger } from '../../src/runtime/logger.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import { connectTestBucket } from './connected-bucket.ts';
import type { ProcessConditions } from './export-area.ts';
import { runHere } from './worker-here.ts';

function openClock(file: string | undefined): Clock {
  return file === undefined ? createClock(0) : { nowMs: () => Number(readFileSync(file, 'utf8')) };
}

/**
 * Runs an export stage in a separate process, so that a test can kill it. Its argument is JSON: { dataDir, options,
 * conditions }. Sends { port } to its parent when it listens.
 */
async function run(json: string): Promise<void> {
  const { dataDir, options, conditions } = JSON.parse(json) as {
    readonly dataDir: string;
    readonly options: ExportOptions;
    readonly conditions: ProcessConditions;
  };
  const { clockFile, crashAt, runsHere = false, bucket } = conditions;
  if (bucket !== undefined) await connectTestBucket(dataDir, bucket);
  const logger = createLogger('silent');
  const access = await openAccessReader(
    { access: path.join(dataDir, 'access.json'), keys: path.join(dataDir, 'keys') },
    logger,
  );
  const stage = await startExport(
    {
      access,
      clock: openClock(clockFile),
      metrics: createMetrics(),
      logger,
      crashPoint: createCrashPoint(crashAt),
      ...(runsHere ? { runAttempt: runHere } : {}),
    },
    options,
  );
  process.send?.({ port: stage.port });
}

void run(process.argv[2] ?? '');
