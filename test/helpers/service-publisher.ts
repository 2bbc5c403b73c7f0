import { dataPaths } from '../../src/config.ts';
import { readServiceStates } from '../../src/runtime/processes/service-state.ts';
import { openConnection } from '../../src/stream/connection.ts';
import { openGuard } from '../../src/stream/guard.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { streamName, type StreamPublisher } from '../../src/stream/stream.ts';
import { silentLogger } from './nats.ts';

/**
 * Opens the stream of the service that runs on a data folder, to publish to it as its import does. `close` ends the
 * connection.
 */
export async function openServicePublisher(dataDir: string, name: string): Promise<StreamPublisher> {
  const [state] = readServiceStates(dataPaths(dataDir).run);
  if (state?.natsUrl === undefined) throw new Error(`no service with a broker runs on ${dataDir}`);
  const connection = await openConnection({ url: state.natsUrl, name, logger: silentLogger });
  const guard = await openGuard(connection, { streamName, claimFile: dataPaths(dataDir).claim, logger: silentLogger });
  return {
    ...openPublisher(connection, guard),
    async close() {
      await guard.stop();
      await connection.close();
    },
  };
}
