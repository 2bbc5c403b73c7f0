import process from 'node:process';
import { acquireLock } from '../../src/runtime/files/lock.ts';
import { createLogger } from '../../src/runtime/logger.ts';
import { startNatsServer } from '../../src/stream/nats-server.ts';

/**
 * Starts a nats-server in a folder while holding the folder's lock, and then idles: for tests that kill this process.
 * Arguments: the folder, the binary. Prints the server's process id.
 */
async function run([folder = '', binary = '']: readonly string[]): Promise<void> {
  const lock = acquireLock(folder, 'the parent');
  const server = await startNatsServer({
    binary,
    folder,
    maxStoreBytes: 1 << 26,
    lockFds: [lock.fd],
    logger: createLogger('silent'),
  });
  process.stdout.write(`${server.pid}\n`);
  setInterval(() => undefined, 60_000);
}

void run(process.argv.slice(2));
