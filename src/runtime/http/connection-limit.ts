import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Logger } from '../logger.ts';

/** Minimum time between two log lines about refused connections, ms. */
const logEveryMs = 10_000;

/**
 * Closes each connection beyond `maxConnections` at once, and logs it. The server's own `maxConnections` logs nothing,
 * and in a cluster that hands its connections round it gives them back to the supervisor, which keeps what no worker
 * takes.
 */
export function limitConnections(server: Server, maxConnections: number, logger: Logger): void {
  let open = 0;
  let refused = 0;
  let toldMs = Number.NEGATIVE_INFINITY;
  server.on('connection', (socket: Socket) => {
    open += 1;
    socket.once('close', () => {
      open -= 1;
    });
    if (open <= maxConnections) return;
    socket.destroy();
    refused += 1;
    if (performance.now() - toldMs < logEveryMs) return;
    toldMs = performance.now();
    logger.warn({ maxConnections, refused }, 'connections refused: too many');
    refused = 0;
  });
}
