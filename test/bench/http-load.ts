import { connect, type Socket } from 'node:net';

/** Result of one run of a load. Latencies in milliseconds. */
export interface LoadResult {
  /** Requests with a response. */
  readonly requests: number;
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Responses per HTTP status; a load that does not separate them counts those other than 2xx as `failed`. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Processor seconds of the sender. */
  readonly loadSeconds: number;
}

export interface LoadPlan {
  readonly address: URL;
  readonly headers: Readonly<Record<string, string>>;
  /** Body of the requests; several are sent one after the other. */
  readonly body: string | readonly string[];
  /** Keep-alive connections, each with one request in flight. */
  readonly connections: number;
  readonly warmUpMs: number;
  readonly measureMs: number;
  /** Called at the end of the warm-up. */
  readonly onMeasure?: () => void;
}

function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

/** Returns the length of the complete response at the front of `text`; undefined while it is incomplete. */
function answerLength(text: string): number | undefined {
  const head = text.indexOf('\r\n\r\n');
  if (head === -1) return undefined;
  const length = /\r\ncontent-length: (\d+)/i.exec(text.slice(0, head + 2))?.[1];
  if (length === undefined) throw new Error(`an answer without a length: ${text.slice(0, head)}`);
  return head + 4 + Number(length);
}

/** Sends requests over one socket, each after the response to the previous one. */
function runConnection(
  plan: LoadPlan,
  nextRequest: () => Buffer,
  record: (status: string, ms: number) => void,
  signal: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket: Socket = connect({ host: plan.address.hostname, port: Number(plan.address.port), noDelay: true });
    let received = '';
    let sentAt = 0;
    const send = (): void => {
      sentAt = performance.now();
      socket.write(nextRequest());
    };
    socket.setEncoding('latin1');
    socket.on('connect', send);
    socket.on('error', reject);
    socket.on('data', (chunk: string) => {
      received += chunk;
      const length = answerLength(received);
      if (length === undefined || received.length < length) return;
      record(received.slice(9, 12), performance.now() - sentAt);
      received = received.slice(length);
      if (signal.aborted) {
        socket.destroy();
        resolve();
      } else {
        send();
      }
    });
  });
}

/** Renders a complete request, head and body. */
export function renderRequest({ address, headers }: LoadPlan, body: string): Buffer {
  const fields = { host: address.host, 'content-length': String(Buffer.byteLength(body)), ...headers };
  const head = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(`POST ${address.pathname}${address.search} HTTP/1.1\r\n${head.join('')}\r\n${body}`);
}

/**
 * Sends load to one address over raw sockets. This costs less than any client library, so that a small machine measures
 * the server. Responses during the warm-up do not count.
 */
export async function runHttpLoad(plan: LoadPlan): Promise<LoadResult> {
  const requests = [plan.body].flat().map((body) => renderRequest(plan, body));
  let sent = 0;
  const nextRequest = (): Buffer => requests[sent++ % requests.length] ?? Buffer.alloc(0);

  const statuses: Record<string, number> = {};
  const latencies: number[] = [];
  const countFrom = performance.now() + plan.warmUpMs;
  const record = (status: string, ms: number): void => {
    if (performance.now() < countFrom) return;
    statuses[status] = (statuses[status] ?? 0) + 1;
    latencies.push(ms);
  };
  let usage = process.cpuUsage();
  setTimeout(() => {
    usage = process.cpuUsage();
    plan.onMeasure?.();
  }, plan.warmUpMs);
  const signal = AbortSignal.timeout(plan.warmUpMs + plan.measureMs);
  await Promise.all(Array.from({ length: plan.connections }, () => runConnection(plan, nextRequest, record, signal)));
  const seconds = (performance.now() - countFrom) / 1000;
  latencies.sort((a, b) => a - b);
  const { user, system } = process.cpuUsage(usage);
  return {
    requests: latencies.length,
    requestsPerSecond: latencies.length / seconds,
    p50Ms: percentile(latencies, 0.5),
    p99Ms: percentile(latencies, 0.99),
    statuses,
    loadSeconds: (user + system) / 1e6,
  };
}
