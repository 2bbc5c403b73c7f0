import { ensureNatsServer } from '../setup/ensure-nats-server.ts';
import { parseWords, type Command } from './command.ts';

const usage = 'tributary setup';

/**
 * `tributary setup`: sees to it that there is a nats-server, and prints one line that says which. Fails with
 * `broker_missing` when there is none and none can be fetched.
 */
export const setupCommand: Command = {
  name: 'setup',
  usage,
  summary: 'see to it that there is a nats-server',
  async run(args, { environment, print, note, stop }) {
    parseWords(args, [], {}, usage);
    const provision = await ensureNatsServer(environment, { onFetch: note, signal: stop });
    if (provision.how === 'external') print('nats: the server that TRIBUTARY_NATS_URL names');
    else print(`nats-server ${provision.version} (${provision.how}): ${provision.binary}`);
  },
};
