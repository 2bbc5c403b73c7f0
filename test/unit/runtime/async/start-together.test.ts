import { once } from 'node:events';
import { expect, test } from 'vitest';
import { AppError } from '../../../../src/runtime/errors.ts';
import { startTogether } from '../../../../src/runtime/async/in-parallel.ts';

const never = new AbortController().signal;

async function fail(): Promise<void> {
  throw new AppError('file_damaged', 'the reason');
}

test('Starts run concurrently', async () => {
  const begun = new AbortController();
  const steps: string[] = [];
  await startTogether(
    [
      async () => {
        await once(begun.signal, 'abort');
        steps.push('first');
      },
      async () => {
        steps.push('second');
        begun.abort();
      },
    ],
    never,
  );
  expect(steps).toEqual(['second', 'first']);
});

test('A start that fails ends the others, and its error is thrown when they have ended', async () => {
  const ended: string[] = [];
  const abandoned = async (signal: AbortSignal): Promise<void> => {
    await once(signal, 'abort');
    ended.push('abandoned');
    throw new AppError('stopping', 'asked to stop');
  };
  await expect(startTogether([abandoned, fail, async () => void ended.push('started')], never)).rejects.toMatchObject({
    code: 'file_damaged',
    message: 'the reason',
  });
  expect(ended.toSorted()).toEqual(['abandoned', 'started']);
});

test('Starts that are not wanted any more are aborted', async () => {
  const stop = new AbortController();
  const start = async (signal: AbortSignal): Promise<void> => {
    stop.abort();
    if (signal.aborted) throw new AppError('stopping', 'asked to stop');
  };
  await expect(startTogether([start], stop.signal)).rejects.toMatchObject({ code: 'stopping' });
});
