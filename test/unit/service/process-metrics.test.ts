import { expect, it } from 'vitest';
import { createProcessMetrics } from '../../../src/service/process-metrics.ts';

/** A process that answers with these metrics each time, or never; and how often it was asked. */
function createProcess(answer: ((metrics: unknown[]) => void) | undefined, metrics: unknown[] = []) {
  const process = {
    asked: 0,
    current: () => ({
      send() {
        process.asked += 1;
        answer?.(metrics);
      },
    }),
  };
  return process;
}

it('The metrics of every process that runs are those of the moment, however many ask at once', async () => {
  const collection = createProcessMetrics();
  const one = createProcess((metrics) => collection.take('one', metrics), ['of one']);
  const gone = { current: () => undefined };
  const processes = new Map(Object.entries({ one, gone }));
  const answers = await Promise.all([collection.collect(processes), collection.collect(processes)]);
  expect(answers).toEqual([[['of one']], [['of one']]]);
  expect(one.asked).toBe(1);
  await collection.collect(processes);
  expect(one.asked).toBe(2);
});

it('A suspended process keeps its last metrics, and does not delay those of the others', async () => {
  const collection = createProcessMetrics(20);
  collection.take('still', ['earlier']);
  const processes = new Map([
    ['still', createProcess(undefined)],
    ['well', createProcess((metrics) => collection.take('well', metrics), ['now'])],
  ]);
  expect(await collection.collect(processes)).toEqual([['earlier'], ['now']]);
});

it('The metrics of an exited process are not shown, neither meanwhile nor as those of its successor', async () => {
  const collection = createProcessMetrics(20);
  collection.take('one', ['earlier']);
  expect(await collection.collect(new Map([['one', { current: () => undefined }]]))).toEqual([]);
  collection.forget('one');
  expect(await collection.collect(new Map([['one', createProcess(undefined)]]))).toEqual([]);
});
