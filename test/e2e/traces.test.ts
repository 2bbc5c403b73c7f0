import path from 'node:path';
import { expect, it } from 'vitest';
import { testFolder } from '../helpers/folder.ts';
import { inWholeRun } from '../helpers/in-turn.ts';
import { startCollector } from '../helpers/otel-collector.ts';
import { startTraceReceiver, type ReceivedSpan } from '../helpers/trace-collector.ts';
import { startTraced, traceEverything, type TracedIds } from '../helpers/traced-requests.ts';

/** Traces of a running service, as a collector gets them. */

const attributesOf = (span: ReceivedSpan | undefined): Readonly<Record<string, unknown>> => span?.attributes ?? {};

/** Checks that each span begins no earlier than the previous one ends. Starts are rounded down to milliseconds. */
function expectInOrder(spans: readonly ReceivedSpan[]): void {
  for (const [index, span] of spans.entries()) {
    expect(span.endMs, span.name).toBeGreaterThanOrEqual(span.startMs);
    expect(span.startMs + 1, span.name).toBeGreaterThan(spans[index - 1]?.endMs ?? 0);
  }
}

function expectImport(spans: readonly ReceivedSpan[], { trace, clientSpan }: TracedIds): void {
  const [request] = spans.filter(({ parentSpanId }) => parentSpanId === clientSpan);
  expect(request).toMatchObject({ name: 'POST /v1/customEvent', traceId: trace, status: 0 });
  expect(request?.resource).toMatchObject({ 'service.name': 'events', 'tributary.role': 'ingest' });
  expect(attributesOf(request)).toEqual({
    'http.request.method': 'POST',
    'http.route': '/v1/customEvent',
    'http.response.status_code': 200,
    'tributary.app.id': 1,
    'tributary.kind': 'custom_event',
    'tributary.events': 1,
  });
  const children = spans.filter(({ parentSpanId }) => parentSpanId === request?.spanId);
  const [publish, flush] = children.toSorted((a, b) => a.startMs - b.startMs);
  expect(children).toHaveLength(2);
  expect(publish).toMatchObject({ name: 'publish', traceId: trace, status: 0 });
  expect(flush).toMatchObject({ name: 'flush', traceId: trace });
  expect(flush?.resource).toMatchObject({ 'tributary.role': 'compact' });
  expect(attributesOf(flush)['tributary.lake.version']).toBeGreaterThan(0);
  expect(publish?.startMs).toBeGreaterThanOrEqual(request?.startMs ?? Infinity);
  expect(flush?.endMs).toBeGreaterThan(publish?.endMs ?? Infinity);
}

function expectExport(spans: readonly ReceivedSpan[], { trace, clientSpan }: TracedIds): void {
  const [create] = spans.filter(({ parentSpanId }) => parentSpanId === clientSpan);
  expect(create).toMatchObject({ name: 'create /api/raw/v1/export/create.json', traceId: trace });
  const [attempt] = spans.filter(({ parentSpanId }) => parentSpanId === create?.spanId);
  expect(attempt).toMatchObject({ name: 'export attempt', traceId: trace, status: 0 });
  expect(attributesOf(attempt)).toMatchObject({
    'tributary.export.event': 'customEvents',
    'tributary.export.attempt': 1,
    'tributary.export.rows': 2,
    'tributary.export.files': 1,
  });
  const phases = spans.filter(({ parentSpanId }) => parentSpanId === attempt?.spanId);
  expect(phases.map(({ name }) => name)).toEqual(['start', 'read', 'query', 'write', 'files', 'store']);
  expectInOrder(phases);
}

it('A sampled request is one trace from the span of its client to the commit, and so is a sampled export', async () => {
  const receiver = await startTraceReceiver();
  const started = await startTraced(path.join(testFolder(), 'data'), receiver.url, 'http/json');
  const { service } = started;
  const traced = await traceEverything(started);
  // The stop sends what waits.
  await service.stop();
  expect(receiver.spans.length).toBe(3 + 8);
  expectImport(receiver.spans, traced.import);
  expectExport(receiver.spans, traced.export);
  expect(JSON.stringify(receiver.spans)).not.toContain('sampled user');
  expect(service.lastLog(1000)).not.toContain('cannot send spans');
}, 120_000);

it('The OpenTelemetry Collector gets both traces in protobuf, from the spans of the clients to commit and files', async ({
  skip,
}) => {
  inWholeRun(skip);
  const collector = await startCollector();
  skip(collector === undefined, 'the collector is not available');
  if (collector === undefined) return;
  const started = await startTraced(path.join(testFolder(), 'data'), collector.url, 'http/protobuf');
  const traced = await traceEverything(started);
  await started.service.stop();
  await expect.poll(() => collector.spans().length).toBe(3 + 8);
  const spans = collector.spans();
  /** Lists the spans below a span, each with its depth. */
  const below = (parent: string, depth = 0): string[] =>
    spans
      .filter(({ parentSpanId }) => parentSpanId === parent)
      .flatMap(({ name, spanId }) => [`${depth} ${name}`, ...below(spanId, depth + 1)]);
  expect(below(traced.import.clientSpan).toSorted()).toEqual(['0 POST /v1/customEvent', '1 flush', '1 publish']);
  const phases = ['start', 'read', 'query', 'write', 'files', 'store'].map((phase) => `2 ${phase}`);
  const create = ['0 create /api/raw/v1/export/create.json', '1 export attempt'];
  expect(below(traced.export.clientSpan)).toEqual([...create, ...phases]);
  expect(new Set(spans.map(({ traceId }) => traceId))).toEqual(new Set([traced.import.trace, traced.export.trace]));
  expect(spans.find(({ name }) => name === 'flush')?.text).toMatch(/tributary\.lake\.version: Int\(\d+\)/);
}, 1_800_000);
