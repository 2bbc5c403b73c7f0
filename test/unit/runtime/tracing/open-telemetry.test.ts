import { afterEach, describe, expect, it, vi } from 'vitest';
import { createLogger } from '../../../../src/runtime/logger.ts';
import { createMetrics } from '../../../../src/runtime/metrics.ts';
import { openTracing, type Tracing } from '../../../../src/runtime/tracing/tracing.ts';
import { startTraceReceiver } from '../../../helpers/trace-collector.ts';
import { startAnsweringReceiver, startHangingReceiver } from '../../../helpers/webhook-receiver.ts';

const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
const contextOf = (flags: string): string => `00-${trace}-00f067aa0ba902b7-${flags}`;

/** Opens the export of spans with some variables of the SDK. Returns it with the log's warnings and the counts. */
async function open(variables: Readonly<Record<string, string>>) {
  for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value);
  const metrics = createMetrics();
  const logger = createLogger('silent');
  const warn = vi.spyOn(logger, 'warn');
  const tracing = await openTracing({ protocol: 'http/json' }, { metrics, logger, role: 'ingest', version: '1' });
  if (tracing === undefined) throw new Error('the export of spans was not opened');
  async function counts(): Promise<Record<string, number>> {
    const [counter] = (await metrics.snapshot()) as {
      readonly values: readonly { readonly labels: { readonly result: string }; readonly value: number }[];
    }[];
    return Object.fromEntries((counter?.values ?? []).map(({ labels, value }) => [labels.result, value]));
  }
  return { tracing, warn, counts };
}

/** Returns the traces of requests: the client's, a new one, or none. */
function sampled(tracing: Tracing, ...contexts: readonly (string | undefined)[]): string[] {
  return contexts.map((traceparent) => {
    const span = tracing.startRequest('POST', traceparent === undefined ? {} : { traceparent });
    return span === undefined ? 'none' : span.traceparent.includes(trace) ? 'own' : 'new';
  });
}

afterEach(() => vi.unstubAllEnvs());

describe('the choice of traced requests', () => {
  it.each([
    ['parentbased_always_off', ['own', 'own', 'none', 'none', 'none']],
    ['parentbased_always_on', ['own', 'own', 'none', 'new', 'new']],
    ['parentbased_traceidratio', ['own', 'own', 'none', 'none', 'none']],
    ['traceidratio', ['none', 'none', 'none', 'none', 'none']],
    ['always_on', ['own', 'own', 'own', 'new', 'new']],
  ])(
    'With %s, requests of a trace that the client samples, or not, or names wrongly, are as specified',
    async (sampler, expected) => {
      const { tracing } = await open({ OTEL_TRACES_SAMPLER: sampler, OTEL_TRACES_SAMPLER_ARG: '0' });
      // sampled, sampled with a random id, not sampled, malformed, absent
      const contexts = [contextOf('01'), contextOf('03'), contextOf('00'), `${contextOf('01')}-x`, undefined];
      expect(sampled(tracing, ...contexts)).toEqual(expected);
    },
  );

  it('Without an own trace of the client, the ratio decides', async () => {
    const { tracing } = await open({ OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.5' });
    const traces = sampled(tracing, ...Array.from({ length: 200 }, () => undefined));
    const count = traces.filter((found) => found === 'new').length;
    expect(count).toBeGreaterThan(50);
    expect(count).toBeLessThan(150);
  });

  it('A process traces at most 500 requests a second, also if its clients sample more', async () => {
    const { tracing } = await open({});
    const traces = sampled(tracing, ...Array.from({ length: 3000 }, () => contextOf('01')));
    const count = traces.filter((found) => found === 'own').length;
    expect(count).toBeGreaterThanOrEqual(500);
    expect(count).toBeLessThanOrEqual(1500);
  });

  it.each(['', 'x', contextOf('00'), `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`, contextOf('01').toUpperCase()])(
    'The stored context "%s" starts no span',
    async (traceparent) => {
      const { tracing } = await open({ OTEL_TRACES_SAMPLER: 'always_on' });
      expect(tracing.startAfter(traceparent, 'flush')).toBeUndefined();
      expect(tracing.startAfter(contextOf('01'), 'flush')?.traceparent).toContain(trace);
    },
  );
});

describe('the export of spans', () => {
  it('Spans reach the collector with their parents, and a stop sends the last ones', async () => {
    const { url, spans } = await startTraceReceiver();
    const { tracing, counts } = await open({ OTEL_EXPORTER_OTLP_ENDPOINT: url });
    const request = tracing.startRequest('POST', { traceparent: contextOf('01') });
    const child = request?.startChild('publish');
    child?.end({ bytes: 7 }, 'no broker');
    child?.end({ bytes: 8 });
    const after = tracing.startAfter(request?.traceparent ?? '', 'flush', Date.now() - 5000);
    after?.end();
    request?.end();
    await tracing.stop();
    expect(spans.map(({ name, traceId }) => [name, traceId])).toEqual([
      ['publish', trace],
      ['flush', trace],
      ['POST', trace],
    ]);
    const [publish, flush, post] = spans;
    expect(post?.parentSpanId).toBe('00f067aa0ba902b7');
    expect(publish).toMatchObject({ parentSpanId: post?.spanId, status: 2, attributes: { bytes: 7 } });
    expect(flush?.parentSpanId).toBe(post?.spanId);
    expect((flush?.endMs ?? 0) - (flush?.startMs ?? 0)).toBeGreaterThan(4900);
    expect(await counts()).toEqual({ exported: 3, failed: 0, dropped: 0 });
  });

  it('A collector that never answers costs spans beyond the queue, and at most a second of a stop', async () => {
    const { url } = await startHangingReceiver();
    const { tracing, counts } = await open({
      OTEL_EXPORTER_OTLP_ENDPOINT: url,
      OTEL_BSP_MAX_QUEUE_SIZE: '20',
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '10',
    });
    for (let n = 0; n < 50; n += 1) tracing.startAfter(contextOf('01'), 'flush')?.end();
    // The first batch is on its way, and the queue is full.
    expect(await counts()).toEqual({ exported: 0, failed: 0, dropped: 20 });
    const beganMs = performance.now();
    await tracing.stop();
    expect(performance.now() - beganMs).toBeLessThan(1500);
  });

  it('A collector that refuses spans is one line of the log in a minute, and a count', async () => {
    const { url } = await startAnsweringReceiver(() => 400);
    const { tracing, warn, counts } = await open({
      OTEL_EXPORTER_OTLP_ENDPOINT: url,
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '1',
    });
    for (let n = 0; n < 5; n += 1) tracing.startAfter(contextOf('01'), 'flush')?.end();
    await tracing.stop();
    await expect.poll(counts).toEqual({ exported: 0, failed: 5, dropped: 0 });
    expect(warn.mock.calls.map(([, message]) => message)).toEqual(['cannot send spans to the collector']);
  });
});

it('Without a collector, no spans are started', async () => {
  const dependencies = { metrics: createMetrics(), logger: createLogger('silent'), role: 'ingest', version: '1' };
  expect(await openTracing(undefined, dependencies)).toBeUndefined();
});
