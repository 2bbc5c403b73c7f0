import path from 'node:path';
import { expect, it } from 'vitest';
import { pino } from 'pino';
import { startLastSequenceTracker } from '../../../src/compact/position/last-sequence.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import type { StreamReader } from '../../../src/stream/stream.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

/** Watches a stream until three checks have failed; returns the log. */
async function logOf(error: Error): Promise<string[]> {
  const lines: string[] = [];
  let looks = 0;
  const reader = {
    state() {
      looks += 1;
      return Promise.reject(error);
    },
  } as unknown as StreamReader;
  const end = await startLastSequenceTracker({
    reader,
    file: path.join(testFolder(), 'stream-end.json'),
    position: () => 0,
    assertFolder: () => undefined,
    alarm: () => undefined,
    idleStream: { isIdle: () => false },
    logger: pino({ base: null }, { write: (line: string) => void lines.push(line) }),
  });
  await waitFor('the stream was looked at three times', () => looks >= 3);
  await end.stop();
  return lines;
}

it('A failing check of the end of the stream is logged once, not at each attempt', async () => {
  const lines = await logOf(
    new AppError('disk', 'the claim on the stream cannot be read', { cause: new Error('EIO') }),
  );
  expect(lines).toEqual([expect.stringContaining('cannot check the end of the stream, will retry')]);
  expect(lines[0]).toContain('EIO');
});

it('A check of the end of the stream without a broker is left to the flush loop to report', async () => {
  expect(await logOf(new AppError('broker_away', 'not connected'))).toEqual([]);
});
