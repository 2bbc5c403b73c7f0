import { connect, type Socket } from 'node:net';

/** What one run of a load brought. Latencies in milliseconds. */
export interface LoadResult {
  /** Requests that were answered. */
  readonly requests: number;
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Answers by HTTP status; a load that does not tell them apart counts those that are no success as `failed`. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Processor seconds that sending took. */
  readonly loadSeconds: number;
}

export interface LoadPlan {
  readonly address: URL;
  readonly headers: Readonly<Record<string, string>>;
  /** What is sent; several, in turn. */
  readonly body: string | readonly string[];
  /** Keep-alive connections, each with one request on its way. */
  readonly connections: number;
  readonly warmUpMs: number;
  readonly measureMs: number;
  /** Called when the warm-up is over. */
  readonly onMeasure?: () => void;
}

function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

/** Length of the whole answer at the front of `text`, or undefined while its head or body is incomplete. */
function answerLength(text: string): number | undefined {
  const head = text.indexOf('\r\n\r\n');
  if (head === -1) return undefined;
  const length = /\r\ncontent-length: (\d+)/i.exec(text.slice(0, head + 2))?.[1];
  if (length === undefined) throw new Error(`an answer without a length: ${text.slice(0, head)}`);
  return head + 4 + Number(length);
}

/** Sends one request after the other on one socket, each after the answer to the one before. */
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

/** Renders a whole request, head and body. */
export function renderRequest({ address, headers }: LoadPlan, body: string): Buffer {
  const fields = { host: address.host, 'content-length': String(Buffer.byteLength(body)), ...headers };
  const head = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(`POST ${address.pathname}${address.search} HTTP/1.1\r\n${head.join('')}\r\n${body}`);
}

/**
 * Loads one address over raw sockets, cheaper than any client library, so that on a small machine the server is what is
 * measured. Answers during the warm-up are not counted.
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
