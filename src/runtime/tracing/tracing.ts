import type { IncomingHttpHeaders } from 'node:http';
import type { Stoppable } from '../lifecycle.ts';
import type { Logger } from '../logger.ts';
import type { Metrics } from '../metrics.ts';

/**
 * Traces: the way of a sampled request through the processes, as spans that an OpenTelemetry collector receives.
 *
 * In: sampled requests, and contexts of earlier spans in W3C format (`traceparent`). Out: OTLP over HTTP.
 * Invariant: no request waits for a span or fails because of one. Spans beyond the queue are dropped and counted. A
 * process without a collector has no `Tracing` and loads no file of the SDK.
 * Crash: spans that were not sent are lost.
 */

export type SpanAttributes = Readonly<Record<string, string | number | boolean>>;

/** A span of a sampled trace. */
export interface Span {
  /** Its context, for spans of other processes. */
  readonly traceparent: string;
  set(attributes: SpanAttributes): void;
  startChild(name: string): Span;
  /** Ends it; `error` marks it as failed. Further calls have no effect. */
  end(attributes?: SpanAttributes, error?: string): void;
}

export interface Tracing extends Stoppable {
  /** Starts the span of a request, in the client's trace if it names one; undefined unless it is sampled. */
  startRequest(name: string, headers: IncomingHttpHeaders): Span | undefined;
  /** Starts a span after that of another process; undefined if the context is invalid or not sampled. */
  startAfter(traceparent: string, name: string, startedAtMs?: number): Span | undefined;
}

/** A collector that receives spans. The SDK reads its address and further variables (`OTEL_...`) itself. */
export interface TraceExport {
  readonly protocol: 'http/protobuf' | 'http/json';
}

export interface TracingDependencies {
  readonly metrics: Metrics;
  readonly logger: Logger;
  /** Role of the process, an attribute of all its spans. */
  readonly role: string;
  readonly version: string;
}

/** The result of a span: `exported`, `failed` (the collector did not take it) or `dropped` (the queue was full). */
export type SpanResult = 'exported' | 'failed' | 'dropped';

/** Registers the counter of spans. */
export function createSpanCounter(metrics: Metrics): (result: SpanResult, spans: number) => void {
  const counter = metrics.counter('trace_spans_total', 'Ended spans of sampled traces, by result.', ['result']);
  for (const result of ['exported', 'failed', 'dropped']) counter.inc({ result }, 0);
  return (result, spans) => counter.inc({ result }, spans);
}

/** Opens the export of spans; undefined without a collector. Only then the SDK is loaded. */
export async function openTracing(
  traceExport: TraceExport | undefined,
  dependencies: TracingDependencies,
): Promise<Tracing | undefined> {
  if (traceExport === undefined) return undefined;
  const { startTracing } = await import('./open-telemetry.ts');
  return startTracing(traceExport, dependencies);
}
