import { expect, test } from 'vitest';
import { createMetrics, renderMetrics } from '../../../src/runtime/metrics.ts';

test('A gauge that is read has the value of the moment at each snapshot, and processes add up', async () => {
  const metrics = createMetrics();
  let waiting = 3;
  metrics.readGauge('ingest_waiting_bytes', 'Bytes that wait.', () => waiting);
  const first = await metrics.snapshot();
  waiting = 9;
  const second = await metrics.snapshot();
  expect((await renderMetrics([first])).body).toContain('\ntributary_ingest_waiting_bytes 3\n');
  expect((await renderMetrics([first, second])).body).toContain('\ntributary_ingest_waiting_bytes 12\n');
});
