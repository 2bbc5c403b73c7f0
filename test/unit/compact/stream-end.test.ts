import path from 'node:path';
import { expect, it } from 'vitest';
import { pino } from 'pino';
import { watchStreamEnd } from '../../../src/compact/position/stream-end.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import type { StreamReader } from '../../../src/stream/stream.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

/** Watches a stream whose every look fails, until three have; returns what was logged. */
async function logOf(error: Error): Promise<string[]> {
  const lines: string[] = [];
  let looks = 0;
  const reader = {
    state() {
      looks += 1;
      return Promise.reject(error);
    },
  } as unknown as StreamReader;
  const end = await watchStreamEnd({
    reader,
    file: path.join(testFolder(), 'stream-end.json'),
    position: () => 0,
    assertFolder: () => undefined,
    alarm: () => undefined,
    stillness: { holds: () => false },
    logger: pino({ base: null }, { write: (line: string) => void lines.push(line) }),
  });
  await waitFor('the stream was looked at three times', () => looks >= 3);
  await end.stop();
  return lines;
}

it('A look at the end of the stream that fails by itself is logged once, not at each try', async () => {
  const lines = await logOf(
    new AppError('disk', 'the claim on the stream cannot be read', { cause: new Error('EIO') }),
  );
  expect(lines).toEqual([expect.stringContaining('cannot check the end of the stream, will retry')]);
  expect(lines[0]).toContain('EIO');
});

it('A look at the end of the stream that a broker does not answer is left to the flush loop to report', async () => {
  expect(await logOf(new AppError('broker_away', 'not connected'))).toEqual([]);
});
