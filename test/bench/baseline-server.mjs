// The two baselines of the ingest benchmark, each in a process of its own, from the built program.
//   bare:       Fastify with its own JSON parser, a route that answers the same body, and nothing else
//   no-publish: our ingest stage, complete, but with a stream that confirms at once
import process from 'node:process';
import Fastify from 'fastify';
import { openAccessReader } from '../../dist/access/store.js';
import { startIngest } from '../../dist/ingest/ingest.js';
import { createClock } from '../../dist/runtime/clock.js';
import { createLogger } from '../../dist/runtime/logger.js';
import { createMetrics } from '../../dist/runtime/metrics.js';

const [mode, dataDir] = process.argv.slice(2);

async function startBare() {
  const server = Fastify();
  server.post('/v1/*', async () => ({ message: 'Ok' }));
  await server.listen({ host: '127.0.0.1', port: 0 });
  return server.server.address().port;
}

async function startWithoutPublish() {
  const logger = createLogger('silent');
  const access = openAccessReader({ access: `${dataDir}/access.json`, keys: `${dataDir}/keys` }, logger);
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

const port = await (mode === 'bare' ? startBare() : startWithoutPublish());
process.send({ port });
process.on('disconnect', () => process.exit());
