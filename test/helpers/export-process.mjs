// An export stage in a process of its own, run from the compiled sources, so that a test can kill it. Its one argument
// is JSON: { dataDir, options }. It sends { port } to its parent when it listens.
import path from 'node:path';
import { openAccessReader } from '../../dist/access/store.js';
import { startExport } from '../../dist/export/export.js';
import { createClock } from '../../dist/runtime/clock.js';
import { createLogger } from '../../dist/runtime/logger.js';
import { createMetrics } from '../../dist/runtime/metrics.js';

const { dataDir, options } = JSON.parse(process.argv[2] ?? '');
const logger = createLogger('silent');
const access = openAccessReader(
  { access: path.join(dataDir, 'access.json'), keys: path.join(dataDir, 'keys') },
  logger,
);
const stage = await startExport({ access, clock: createClock(0), metrics: createMetrics(), logger }, options);
process.send?.({ port: stage.port });
