import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gunzipSync } from 'node:zlib';
import { onTestFinished } from 'vitest';

type Value = { readonly stringValue?: string; readonly intValue?: number | string; readonly boolValue?: boolean };
type Attribute = { readonly key: string; readonly value: Value };

/** A span as a collector gets it, with its attributes by name. Times are Unix ms. */
export interface ReceivedSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  /** Absent or empty for the first span of a trace. */
  readonly parentSpanId?: string | undefined;
  readonly startMs: number;
  readonly endMs: number;
  /** 2: failed. */
  readonly status: number;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly resource: Readonly<Record<string, unknown>>;
}

/** A request of OTLP, as JSON. */
interface ExportRequest {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeSpans: readonly {
      readonly spans: readonly {
        readonly name: string;
        readonly traceId: string;
        readonly spanId: string;
        readonly parentSpanId?: string;
        readonly startTimeUnixNano: string;
        readonly endTimeUnixNano: string;
        readonly status?: { readonly code?: number };
        readonly attributes?: readonly Attribute[];
      }[];
    }[];
  }[];
}

const valueOf = ({ stringValue, intValue, boolValue }: Value): unknown =>
  intValue === undefined ? (stringValue ?? boolValue) : Number(intValue);
const byName = (attributes: readonly Attribute[] = []): Readonly<Record<string, unknown>> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, valueOf(value)]));
const toMs = (nanos: string): number => Number(BigInt(nanos) / 1000n) / 1000;

/** Reads the spans of a request of OTLP in JSON, as its exporters and the collector's file exporter write it. */
export function readSpans(text: string): ReceivedSpan[] {
  const { resourceSpans } = JSON.parse(text) as ExportRequest;
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map(({ startTimeUnixNano, endTimeUnixNano, status, attributes, ...span }) => ({
        ...span,
        startMs: toMs(startTimeUnixNano),
        endMs: toMs(endTimeUnixNano),
        status: status?.code ?? 0,
        attributes: byName(attributes),
        resource: byName(resource.attributes),
      })),
    ),
  );
}

/** Starts a receiver of OTLP over HTTP in JSON, whose end is that of the running test. */
export async function startTraceReceiver() {
  const spans: ReceivedSpan[] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts);
      const isGzip = request.headers['content-encoding'] === 'gzip';
      if (request.url === '/v1/traces') spans.push(...readSpans((isGzip ? gunzipSync(body) : body).toString()));
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, spans };
}
