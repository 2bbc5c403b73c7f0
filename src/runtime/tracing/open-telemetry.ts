/** The export of spans by the OpenTelemetry SDK. Its only importer loads it on demand: tracing.ts. */
import { hostname } from 'node:os';
import { defaultTextMapGetter, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace, TraceFlags } from '@opentelemetry/api';
import type { Context, Span as SdkSpan, SpanOptions, Tracer } from '@opentelemetry/api';
import { ExportResultCode, getNumberFromEnv, W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import {
  BasicTracerProvider,
  BatchSpanProcessor,
  type SpanExporter,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { pause } from '../async/retry.ts';
import { describeError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { createRateLimitedLog } from '../problems/rate-limited-log.ts';
import {
  createSpanCounter,
  type Span,
  type SpanResult,
  type TraceExport,
  type Tracing,
  type TracingDependencies,
} from './tracing.ts';

/** Spans that wait, unless `OTEL_BSP_MAX_QUEUE_SIZE` is set: the default of the specification. */
const defaultQueueSize = 2048;
/** Requests traced per second and process. A span costs CPU, and clients may sample all of theirs. */
const maxRequestsPerSecond = 500;
/** Time to send the last spans at a stop, ms; less after a failure, since the processes stop one after the other. */
const stopWithinMs = { usual: 1000, failing: 200 } as const;
const oneLinePerMinute = { maxLines: 1, windowMs: 60_000 };

const propagator = new W3CTraceContextPropagator();

/** Creates a processor with a bounded queue, and counts the result of each span. `isFailing`: of the last ones. */
function createProcessor(
  exporter: SpanExporter,
  count: (result: SpanResult, spans: number) => void,
  logger: Logger,
): SpanProcessor & { readonly isFailing: () => boolean } {
  const maxQueueSize = getNumberFromEnv('OTEL_BSP_MAX_QUEUE_SIZE') ?? defaultQueueSize;
  const failures = createRateLimitedLog(
    (fields) => logger.warn(fields, 'cannot send spans to the collector'),
    oneLinePerMinute,
  );
  let waiting = 0;
  let failing = false;
  const counted: SpanExporter = {
    export(spans, done) {
      waiting -= spans.length;
      exporter.export(spans, (result) => {
        const isExported = result.code === ExportResultCode.SUCCESS;
        count(isExported ? 'exported' : 'failed', spans.length);
        failing = !isExported;
        if (failing) failures.add({ spans: spans.length, error: describeError(result.error) });
        done(result);
      });
    },
    shutdown: () => exporter.shutdown(),
  };
  const batches = new BatchSpanProcessor(counted, { maxQueueSize });
  return {
    isFailing: () => failing,
    onStart: () => undefined,
    onEnd(span) {
      if (waiting >= maxQueueSize) return count('dropped', 1);
      waiting += 1;
      batches.onEnd(span);
    },
    forceFlush: () => batches.forceFlush(),
    shutdown: () => batches.shutdown(),
  };
}

/** Creates a limit of calls per second. */
function createSecondLimit(most: number) {
  let second = 0;
  let taken = 0;
  return {
    isReached(): boolean {
      const now = Math.floor(performance.now() / 1000);
      if (now !== second) [second, taken] = [now, 0];
      return taken >= most;
    },
    take: (): void => void (taken += 1),
  };
}

function wrapSpan(tracer: Tracer, sdkSpan: SdkSpan): Span {
  const { traceId, spanId } = sdkSpan.spanContext();
  return {
    traceparent: `00-${traceId}-${spanId}-01`,
    set: (attributes) => void sdkSpan.setAttributes(attributes),
    startChild: (name) => wrapSpan(tracer, tracer.startSpan(name, {}, trace.setSpan(ROOT_CONTEXT, sdkSpan))),
    end(attributes = {}, error) {
      if (!sdkSpan.isRecording()) return;
      sdkSpan.setAttributes(attributes);
      if (error !== undefined) sdkSpan.setStatus({ code: SpanStatusCode.ERROR, message: error });
      sdkSpan.end();
    },
  };
}

/** Starts the export of spans. Sampler, queue, resource and headers come from the SDK's variables. */
export function startTracing(
  { protocol }: TraceExport,
  { metrics, logger, role, version }: TracingDependencies,
): Tracing {
  const exporter = protocol === 'http/json' ? new JsonExporter() : new ProtobufExporter();
  const own = { 'service.name': 'tributary', 'service.version': version, 'host.name': hostname() };
  const ofProcess = { ...own, 'process.pid': process.pid, 'tributary.role': role };
  const processor = createProcessor(exporter, createSpanCounter(metrics), logger);
  const provider = new BasicTracerProvider({
    resource: defaultResource()
      .merge(resourceFromAttributes(ofProcess))
      .merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [processor],
  });
  const tracer = provider.getTracer('tributary', version);
  const limit = createSecondLimit(maxRequestsPerSecond);

  function start(name: string, options: SpanOptions, parent: Context): Span | undefined {
    const span = tracer.startSpan(name, options, parent);
    return span.isRecording() ? wrapSpan(tracer, span) : undefined;
  }

  return {
    startRequest(name, headers) {
      if (limit.isReached()) return undefined;
      const client = propagator.extract(ROOT_CONTEXT, headers, defaultTextMapGetter);
      const span = start(name, { kind: SpanKind.SERVER }, client);
      if (span !== undefined) limit.take();
      return span;
    },
    startAfter(traceparent, name, startedAtMs) {
      const parent = propagator.extract(ROOT_CONTEXT, { traceparent }, defaultTextMapGetter);
      const { traceFlags = TraceFlags.NONE } = trace.getSpanContext(parent) ?? {};
      if ((traceFlags & TraceFlags.SAMPLED) === 0) return undefined;
      return start(name, startedAtMs === undefined ? {} : { startTime: startedAtMs }, parent);
    },
    async stop() {
      const settled = new AbortController();
      const sent = provider.shutdown().catch(() => undefined);
      const withinMs = processor.isFailing() ? stopWithinMs.failing : stopWithinMs.usual;
      await Promise.race([sent, pause(withinMs, settled.signal)]);
      settled.abort();
    },
  };
}
