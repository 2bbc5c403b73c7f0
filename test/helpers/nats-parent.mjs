import process from 'node:process';

/**
 * A process that starts a nats-server in a folder, holding the folder's lock, and then only lives: for tests that kill
 * it. Arguments: the compiled sources, the folder, the binary.
 */
const [dist, folder, binary] = process.argv.slice(2);
const { acquireLock } = await import(`${dist}/runtime/files/lock.js`);
const { createLogger } = await import(`${dist}/runtime/logger.js`);
const { startNatsServer } = await import(`${dist}/stream/nats-server.js`);
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
