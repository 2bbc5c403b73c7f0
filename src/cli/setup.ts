import { ensureNatsServer } from '../setup/ensure-nats-server.ts';
import { verb } from './command.ts';

/**
 * `tributary setup`: sees to it that there is a nats-server, and prints one line that says which. Fails with
 * `broker_missing` when there is none and none can be fetched.
 */
export const setupCommand = verb({
  name: 'setup',
  summary: 'see to it that there is a nats-server',
  isWithoutData: true,
  examples: ['setup'],
  async run(_given, { environment, print, note, stop }) {
    const provision = await ensureNatsServer(environment, { onFetch: note, signal: stop });
    if (provision.how === 'external') print('nats: the server that TRIBUTARY_NATS_URL names');
    else print(`nats-server ${provision.version} (${provision.how}): ${provision.binary}`);
  },
});
