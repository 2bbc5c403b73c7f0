import type { ServerResponse } from 'node:http';

interface EventStreamOptions {
  /** Reconnection delay of the client, ms. */
  readonly retryMs: number;
  /** Maximum number of buffered bytes. */
  readonly maxWaitingBytes: number;
  /** Called once when either side ends the stream. */
  readonly onEnd: () => void;
}

/** Heartbeats after a client has ended its sending half, ms: a disconnected client resets the connection. */
const probeMs = [0, 250, 1000];

/** Starts an event stream, unbuffered by proxies. Event ids count within the response: a reconnect replays nothing. */
export function openEventStream(response: ServerResponse, options: EventStreamOptions) {
  const { retryMs, maxWaitingBytes, onEnd } = options;
  let id = 0;
  let stalledSinceMs: number | undefined;

  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store, no-transform',
    'x-accel-buffering': 'no',
    'x-content-type-options': 'nosniff',
    connection: 'close',
  });
  const probes: NodeJS.Timeout[] = [];
  response.once('close', () => {
    for (const timer of probes) clearTimeout(timer);
    onEnd();
  });
  // It may have disconnected, or only have nothing more to send.
  response.socket?.once('end', () => {
    for (const afterMs of probeMs) probes.push(setTimeout(beat, afterMs));
  });
  response.on('drain', () => (stalledSinceMs = undefined));
  // The connection closes next.
  response.on('error', () => undefined);

  function write(text: string): void {
    if (!response.writableEnded && !response.write(text)) stalledSinceMs ??= performance.now();
  }

  const beat = (): void => {
    if (response.writableLength <= maxWaitingBytes) write(':\n\n');
  };

  if (response.req.method === 'HEAD') response.end();
  write(`retry: ${retryMs}\n\n`);
  return {
    /** Sends an event; `data` is one line. Returns false if the client has not read earlier data. */
    send(name: string, data: string): boolean {
      if (response.writableEnded || response.writableLength > maxWaitingBytes) return false;
      id += 1;
      // A line break would start another field.
      write(`event: ${name}\nid: ${id}\ndata: ${data.replaceAll(/[\r\n]+/g, ' ')}\n\n`);
      return true;
    },
    beat,
    /** Returns for how long the client has not read buffered data, ms; 0 if nothing is buffered. */
    stalledMs: (): number => (stalledSinceMs === undefined ? 0 : performance.now() - stalledSinceMs),
    end(): void {
      if (response.writableLength > 0) response.destroy();
      else response.end();
    },
  };
}

export type EventStream = ReturnType<typeof openEventStream>;
