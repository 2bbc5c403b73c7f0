import { expect, test } from 'vitest';
import { createLogger } from '../../../../src/runtime/logger.ts';
import { createLivenessWatch, type ReportingProcess } from '../../../../src/runtime/processes/heartbeat.ts';

/**
 * Runs `times` checks; `reportedAtMs` returns the last report at a check. Returns the checks at which it was killed.
 */
function look(times: number, reportedAtMs: (look: number) => number): number[] {
  const ended: number[] = [];
  const watch = createLivenessWatch(createLogger('silent'));
  for (let n = 0; n < times; n += 1) {
    const process: ReportingProcess = {
      name: 'ingest-1',
      reportedAtMs: reportedAtMs(n),
      renew: () => void ended.push(n),
    };
    watch.check([process]);
  }
  return ended;
}

test('A process that is silent for half a minute of checks is ended, and the next one has its own half minute', () => {
  expect(look(100, () => 5)).toEqual([30, 61, 92]);
});

test('A process that reports now and then is left alone', () => {
  expect(look(100, (n) => Math.floor(n / 29))).toEqual([]);
});

test('A process that was absent for a while starts a new half minute', () => {
  const ended: string[] = [];
  const watch = createLivenessWatch(createLogger('silent'));
  const process: ReportingProcess = { name: 'compact', reportedAtMs: 1, renew: () => void ended.push('compact') };
  for (let n = 0; n < 30; n += 1) watch.check([process]);
  watch.check([]);
  for (let n = 0; n < 30; n += 1) watch.check([process]);
  expect(ended).toEqual([]);
});
