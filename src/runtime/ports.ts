import { createServer } from 'node:net';
import { AppError, isSystemError } from './errors.ts';

/**
 * Settles which port will be listened on: the asked one if it is free, any free one for 0. Settled before the processes
 * start, so that a restarted one comes back at the same address.
 */
export function settlePort(host: string, port: number, what: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (error) => {
      const reason = isSystemError(error, 'EADDRINUSE') ? 'is in use' : `cannot be used (${error.message})`;
      reject(new AppError('start_failed', `${what}: ${host}:${port} ${reason}`, { hint: 'Choose another port, or 0 for any free one.', retryable: false }));
    });
    server.listen({ host, port, exclusive: true }, () => {
      const address = server.address();
      const settled = typeof address === 'object' && address !== null ? address.port : port;
      server.close(() => resolve(settled));
    });
  });
}

/** The http address of a host and port, with IPv6 in brackets. */
export function httpAddress(host: string, port: number): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
