import type { Environment } from '../config.ts';
import { ensureNatsServer } from '../setup/ensure-nats-server.ts';

/**
 * `tributary setup`: sees to it that there is a nats-server, and prints one line that says which. `print` takes a line
 * of standard output, `note` one of standard error. Throws `broker_missing` when there is none and none can be fetched.
 */
export async function runSetup(environment: Environment, print: (line: string) => void, note: (line: string) => void): Promise<void> {
  const provision = await ensureNatsServer(environment, { onFetch: note });
  if (provision.how === 'external') print('nats: the server that TRIBUTARY_NATS_URL names');
  else print(`nats-server ${provision.version} (${provision.how}): ${provision.binary}`);
}
