import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { lookup } from 'node:dns';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openFolderDrop } from '../../../../src/export/deliver/sftp-drop.ts';
import { waitFor } from '../../../helpers/wait.ts';

/** Opens a folder of a server that treats each connection in its own way. */
async function openAt(serve: (socket: Socket) => void, signal = new AbortController().signal, secret = 'secret') {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    serve(socket);
    // A socket that nothing reads never sees its end.
    socket.resume();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const target = { kind: 'sftp', host: '127.0.0.1', port, user: 'u', folder: '.', hostKey: 'SHA256:x' } as const;
  return await openFolderDrop(target, secret, lookup, signal);
}

const countSockets = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'TCPSocketWrap').length;

const banner = 'SSH-2.0-Test\r\n';

describe('a folder of an SFTP server', () => {
  it.each<readonly [string, (socket: Socket) => void]>([
    ['ends the connection at once', (socket) => socket.end()],
    ['resets the connection at once', (socket) => socket.resetAndDestroy()],
    ['sends its banner and ends', (socket) => socket.end(banner)],
    ['sends its banner and resets', (socket) => socket.write(banner, () => socket.resetAndDestroy())],
    ['sends nonsense and resets', (socket) => socket.write(`${banner}x`.repeat(99), () => socket.resetAndDestroy())],
  ])('A server that %s is an error of the delivery only', async (_, serve) => {
    const before = countSockets();
    await expect(openAt(serve)).rejects.toBeInstanceOf(Error);
    // An error without a listener would come before the end of the sockets, and fail the test.
    await waitFor('both sockets are closed', () => countSockets() <= before);
  });

  it('A stop ends the wait for a server that never signs in', async () => {
    const aborter = new AbortController();
    const sockets: Socket[] = [];
    const opening = openAt((socket) => {
      sockets.push(socket);
      socket.write(banner);
      // The client's banner: it has connected, and waits for the sign-in.
      socket.once('data', () => aborter.abort(new Error('stopped')));
    }, aborter.signal);
    await expect(opening).rejects.toThrow('stopped');
    await once(sockets[0] as Socket, 'close');
  });

  it('A key that cannot be read is an error at once', async () => {
    await expect(openAt(() => undefined, undefined, 'PRIVATE KEY')).rejects.toThrow('privateKey');
  });
});
