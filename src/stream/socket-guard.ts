import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';

const guarded = new WeakSet<Socket>();
const ignore = (): void => undefined;

/**
 * Keeps a listener for errors on a socket whatever is taken off it. The NATS client (3.4) takes every listener off a
 * socket that was closed; an error that was on its way, such as that of a write after the server's end, then has none,
 * and ends the process.
 */
export function guardSocket(socket: Socket): void {
  if (guarded.has(socket)) return;
  guarded.add(socket);
  const removeAll = socket.removeAllListeners.bind(socket);
  socket.removeAllListeners = (...names) => {
    removeAll(...names);
    return socket.on('error', ignore);
  };
}

let guarding = false;

/** Guards each socket that this process opens from now on: those of the NATS client, before it can lose one. */
export function guardClientSockets(): void {
  if (guarding) return;
  guarding = true;
  subscribe('net.client.socket', (message) => guardSocket((message as { socket: Socket }).socket));
}

/** Guards the socket that a connection uses now: over TLS it is not one that was opened. */
export function guardConnectionSocket(nats: object): void {
  // Not in the client's types; without it, only the sockets that were opened are guarded.
  const { socket } = (nats as { protocol?: { transport?: { socket?: Socket } } }).protocol?.transport ?? {};
  if (socket !== undefined) guardSocket(socket);
}
