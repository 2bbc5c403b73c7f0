import type { IncomingMessage, Server } from 'node:http';
import { isIP, type Socket } from 'node:net';
import { hostname } from 'node:os';
import { addressOf } from '../runtime/http/request-head.ts';

/** Time in which a refused client may read its response and finish its body, ms. */
const lingerMs = 1000;

/** Exempts a connection from being replaced by a new one. */
export type KeepConnection = (socket: Socket) => void;

/**
 * Limits connections to `most`. A new connection replaces the oldest one that is not kept: the port has no
 * authentication, and slow clients must not keep health and metrics from answering.
 */
export function replaceOldest(server: Server, most: number): KeepConnection {
  const open = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    // Node closes a connection so after its last answer. A body that is still coming would reset it, and the client
    // would not read why it was refused.
    socket.destroySoon = () => {
      socket.end();
      setTimeout(() => socket.destroy(), lingerMs).unref();
    };
    const [oldest] = open;
    if (open.size > most) oldest?.destroy();
  });
  return (socket) => void open.delete(socket);
}

/**
 * Creates the check of the host that a request names. A page of another site whose name resolves to this machine (DNS
 * rebinding) names that site. Addresses, localhost, the name of the machine and `names` are the service's own.
 */
export function createHostCheck(names: readonly string[]): (request: IncomingMessage) => boolean {
  const own = new Set(['localhost', hostname(), ...names].map((name) => name.toLowerCase()));
  return (request) => {
    const address = addressOf(request);
    const host = URL.canParse(address) ? new URL(address).hostname : undefined;
    return host !== undefined && (isIP(host.replace(/^\[|\]$/g, '')) !== 0 || own.has(host.replace(/\.$/, '')));
  };
}
