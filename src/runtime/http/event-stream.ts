import type { ServerResponse } from 'node:http';

/** An answer of server-sent events (HTML standard 9.2) that goes on until either side ends it. */
export interface EventStream {
  /**
   * Sends an event; `data` is one line. Says whether it did: a client that does not read what it was sent gets nothing
   * more until it has, and the memory that waits for it is bounded.
   */
  send(name: string, data: string): boolean;
  /** Shows proxies and the client that the connection lives. */
  beat(): void;
  /** How long the client has not read what waits for it, milliseconds; 0 when nothing waits. */
  stalledMs(): number;
  end(): void;
}

interface EventStreamOptions {
  /** How long the client is to wait before it comes again, milliseconds. */
  readonly retryMs: number;
  /** Most bytes that wait for the client. */
  readonly maxWaitingBytes: number;
  /** Called once, whoever ended it. */
  readonly onEnd: () => void;
}

/** A client whose sending half has ended is written to at these times after it, ms: a gone one resets the connection. */
const probeMs = [0, 250, 1000];

/**
 * Begins the answer. Its connection ends with it, and no proxy is to keep, change or collect it. Each event has a number
 * of this answer as its id; nothing is sent again to who comes back with one.
 */
export function openEventStream(response: ServerResponse, options: EventStreamOptions): EventStream {
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
  // It may have left, or only have nothing more to send.
  response.socket?.once('end', () => {
    for (const afterMs of probeMs) probes.push(setTimeout(beat, afterMs));
  });
  response.on('drain', () => (stalledSinceMs = undefined));
  // A connection that breaks is closed next.
  response.on('error', () => undefined);

  function write(text: string): void {
    if (!response.writableEnded && !response.write(text)) stalledSinceMs ??= performance.now();
  }

  const beat = (): void => {
    if (response.writableLength <= maxWaitingBytes) write(':\n\n');
  };

  // Who asks for the head alone has it at once.
  if (response.req.method === 'HEAD') response.end();
  write(`retry: ${retryMs}\n\n`);
  return {
    send(name, data) {
      if (response.writableEnded || response.writableLength > maxWaitingBytes) return false;
      id += 1;
      // What would be two lines cannot become a field of its own.
      write(`event: ${name}\nid: ${id}\ndata: ${data.replaceAll(/[\r\n]+/g, ' ')}\n\n`);
      return true;
    },
    beat,
    stalledMs: () => (stalledSinceMs === undefined ? 0 : performance.now() - stalledSinceMs),
    end() {
      if (response.writableLength > 0) response.destroy();
      else response.end();
    },
  };
}
