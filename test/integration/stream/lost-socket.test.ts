import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { guardSocket } from '../../../src/stream/transport.ts';
import { startTestNats, type TestNats } from '../../helpers/nats.ts';

/** An error of a socket without a listener ends the process: vitest fails the run for it. */

let nats: TestNats;
beforeAll(async () => {
  nats = await startTestNats();
});
afterAll(() => nats.stop());

test('A write after the end of a socket without listeners does not end the process', async () => {
  const server = createServer((peer) => peer.on('error', () => undefined).resume()).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const socket = guardSocket(connect((server.address() as AddressInfo).port, '127.0.0.1'));
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  socket.end();
  const failed = new Promise<NodeJS.ErrnoException>((resolve) =>
    socket.write('late', (error) => resolve(error as NodeJS.ErrnoException)),
  );
  socket.removeAllListeners();
  socket.destroy();
  expect((await failed).code).toBe('ERR_STREAM_WRITE_AFTER_END');
});

test('The socket of a connection to the broker keeps an error listener, the first one and the one after a restart', async () => {
  const connection = await nats.connect();
  const socketNow = (): Socket | undefined =>
    (connection.nats as unknown as { protocol: { transport: { socket?: Socket } } }).protocol.transport.socket;
  const first = socketNow();
  await nats.kill();
  await nats.restart();
  await expect.poll(() => connection.isConnected() && socketNow() !== first, { timeout: 20_000 }).toBe(true);
  const second = socketNow();
  for (const socket of [first, second]) {
    socket?.removeAllListeners();
    expect(socket?.listenerCount('error')).toBe(1);
  }
});
