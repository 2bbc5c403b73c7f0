import path from 'node:path';
import process from 'node:process';
import { fastify } from 'fastify';
import { openAccessReader } from '../../src/access/store.ts';
import { startIngest } from '../../src/ingest/ingest.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { createLogger } from '../../src/runtime/logger.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';

/**
 * One of two baselines of the ingest benchmark, in a separate process. Arguments: the mode, a data folder with an app.
 * Sends { port } to its parent.
 *
 * - `bare`: Fastify with its own JSON parser and a route that returns the same body
 * - `no-publish`: the complete ingest stage with a stream that confirms at once
 */
async function startBare(): Promise<number> {
  const server = fastify();
  server.post('/v1/*', async () => ({ message: 'Ok' }));
  const address = await server.listen({ host: '127.0.0.1', port: 0 });
  return Number(new URL(address).port);
}

async function startWithoutPublish(dataDir: string): Promise<number> {
  const logger = createLogger('silent');
  const access = await openAccessReader(
    { access: path.join(dataDir, 'access.json'), keys: path.join(dataDir, 'keys') },
    logger,
  );
  const publisher = {
    publish: async () => ({ stream: 'none', sequence: 1 }),
    ping: async () => undefined,
    close: async () => undefined,
  };
  const stage = await startIngest(
    { access, publisher, clock: createClock(0), metrics: createMetrics(), logger },
    { host: '127.0.0.1', port: 0 },
  );
  return stage.port;
}

async function run([mode, dataDir = '']: readonly string[]): Promise<void> {
  const port = await (mode === 'bare' ? startBare() : startWithoutPublish(dataDir));
  process.send?.({ port });
  process.on('disconnect', () => process.exit());
}

void run(process.argv.slice(2));
