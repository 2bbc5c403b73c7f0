import { expect, test } from 'vitest';
import { AppError } from '../../../src/runtime/errors.ts';
import { createRetryState } from '../../../src/compact/compact-status.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

test('Faults of the stream and kept failed events are warnings with a next step, and no problem', async () => {
  const stream = createMemoryStream();
  const compactor = await startTestCompact(testFolder(), stream);
  expect(compactor.facts()).toMatchObject({ problems: [], warnings: [] });
  stream.publish([eventLine(), eventLine({ age: 'x' })]);
  await waitFor('the events are committed', () => compactor.facts()['streamed'] === 2);
  stream.recreate();
  stream.publish([eventLine()]);
  await waitFor('the new stream is committed', () => compactor.facts()['streamed'] === 3);
  expect(compactor.facts()).toMatchObject({
    problems: [],
    warnings: [
      {
        code: 'stream_fault',
        message: expect.stringMatching(/^at \d{4}-.*Z: the stream was recreated/),
        action: expect.stringContaining('Idempotency-Key'),
      },
      {
        code: 'events_failed',
        message: 'events that could not be written to the lake are kept as failed events: 1',
        action: expect.stringContaining('tributary failed list'),
      },
    ],
  });
  await compactor.stop();
});

test('A lasting failure reports its newest error and its start, until it ends', () => {
  const clock = { nowMs: () => Date.UTC(2024, 0, 1) };
  const retryState = createRetryState(clock, 0);
  expect(retryState.find()).toBeUndefined();
  retryState.note(new Error('first'));
  expect(
    retryState.note(new AppError('disk', 'the disk is full', { hint: 'Free some disk space.' })),
  ).toBeGreaterThanOrEqual(0);
  expect(retryState.find()).toEqual({
    since: '2024-01-01T00:00:00.000Z',
    error: 'the disk is full. Free some disk space.',
  });
  retryState.clear();
  expect(retryState.find()).toBeUndefined();

  const brief = createRetryState(clock);
  brief.note(new Error('passing'));
  expect(brief.find()).toBeUndefined();
});
