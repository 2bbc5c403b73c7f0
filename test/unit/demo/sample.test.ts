import { expect, it } from 'vitest';
import { makeSample } from '../../../src/demo/sample.ts';
import { importMethods } from '../../../src/datasets/dataset.ts';
import { parseImportRequest } from '../../../src/ingest/import-request.ts';

const until = Date.UTC(2026, 5, 1) / 1000;

it('Every event of the sample is valid for a website, and is of the two weeks before', () => {
  const sample = makeSample(until);
  expect(sample.get('customEventBatch')).toHaveLength(2000);
  for (const [method, bodies] of sample) {
    const [name = 'customEvent'] = [...importMethods.keys()].filter((one) => one === method);
    expect(bodies.length).toBeGreaterThan(5);
    for (const body of bodies) {
      const parsed = parseImportRequest({
        method: name,
        head: { headers: {}, headersDistinct: {} },
        body: Buffer.from(JSON.stringify([body])),
        app: { idApp: 1, platform: 'web' },
        receivedAtMs: until * 1000,
      });
      expect('reason' in parsed ? parsed : parsed.count).toBe(1);
      expect(Number(body['eventTimestamp'])).toBeGreaterThanOrEqual(until - 14 * 86_400);
      expect(Number(body['eventTimestamp'])).toBeLessThan(until);
    }
  }
});

it('The sample is the same for the same time, and each payment has its own transaction', () => {
  expect([...makeSample(until)]).toEqual([...makeSample(until)]);
  const payments = makeSample(until).get('customRevenueBatch') ?? [];
  expect(new Set(payments.map(({ idTransaction }) => idTransaction)).size).toBe(payments.length);
});
