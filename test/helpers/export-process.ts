import path from 'node:path';
import process from 'node:process';
import { openAccessReader } from '../../src/access/store.ts';
import { startExport, type ExportOptions } from '../../src/export/export.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { createLogger } from '../../src/runtime/logger.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';

/**
 * An export stage in a process of its own, so that a test can kill it. Its one argument is a JSON of { dataDir, options
 * }. It sends { port } to its parent when it listens.
 */
async function run(json: string): Promise<void> {
  const { dataDir, options } = JSON.parse(json) as { readonly dataDir: string; readonly options: ExportOptions };
  const logger = createLogger('silent');
  const access = openAccessReader(
    { access: path.join(dataDir, 'access.json'), keys: path.join(dataDir, 'keys') },
    logger,
  );
  const stage = await startExport({ access, clock: createClock(0), metrics: createMetrics(), logger }, options);
  process.send?.({ port: stage.port });
}

void run(process.argv[2] ?? '');
