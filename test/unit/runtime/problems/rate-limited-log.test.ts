import { expect, it } from 'vitest';
import { createRateLimitedLog } from '../../../../src/runtime/problems/rate-limited-log.ts';

it('A bounded log writes a limited number of lines in a window, and counts the others', () => {
  const lines: object[] = [];
  const log = createRateLimitedLog((fields) => void lines.push(fields), { maxLines: 3, windowMs: 3_600_000 });
  for (let n = 0; n < 100; n += 1) log.add({ n });
  expect(lines).toEqual([{ n: 0 }, { n: 1 }, { n: 2 }]);
});

it('The next line has the number of lines that were left out', async () => {
  const lines: Readonly<Record<string, unknown>>[] = [];
  const log = createRateLimitedLog((fields) => void lines.push(fields), { maxLines: 1, windowMs: 1 });
  let added = 0;
  while (lines.filter(({ leftOut }) => leftOut !== undefined).length < 3) {
    log.add({});
    added += 1;
    if (added % 100 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  expect(lines.length + lines.reduce((sum, { leftOut }) => sum + Number(leftOut ?? 0), 0)).toBe(added);
});
