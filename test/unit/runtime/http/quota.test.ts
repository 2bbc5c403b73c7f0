import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createQuotaCounter } from '../../../../src/runtime/async/rate-limits.ts';

describe('a quota', () => {
  it('A quota admits calls up to its limit and gives the wait for the next', () => {
    const counter = createQuotaCounter([{ limit: 3, windowMs: 10_000 }]);
    expect([0, 1, 2].map((ms) => counter.take('a', ms))).toEqual([undefined, undefined, undefined]);
    expect(counter.take('a', 4000)).toBe(6);
    expect(counter.take('b', 4000)).toBeUndefined();
  });

  it('A quota does not let a burst at the end of one window be followed by another at the start of the next', () => {
    const counter = createQuotaCounter([{ limit: 10, windowMs: 1000 }]);
    for (let call = 0; call < 10; call += 1) expect(counter.take('a', 990)).toBeUndefined();
    expect(counter.take('a', 1991)).toBeDefined();
    expect(counter.take('a', 3000)).toBeUndefined();
  });

  it('A quota holds every one of its limits', () => {
    const counter = createQuotaCounter([
      { limit: 2, windowMs: 1000 },
      { limit: 3, windowMs: 60_000 },
    ]);
    expect([0, 1, 2000, 4000].map((ms) => counter.take('a', ms))).toEqual([undefined, undefined, undefined, 56]);
  });

  it('A quota without limits refuses nothing', () => {
    const counter = createQuotaCounter([]);
    expect(Array.from({ length: 100 }, () => counter.take('a', 0)).every((wait) => wait === undefined)).toBe(true);
  });

  it('A quota never admits more calls than its limit in a fixed window, whenever calls come', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(200), { maxLength: 200 }), (gaps) => {
        const counter = createQuotaCounter([{ limit: 5, windowMs: 1000 }]);
        let nowMs = 0;
        const passed = new Map<number, number>();
        for (const gap of gaps) {
          nowMs += gap;
          if (counter.take('a', nowMs) === undefined)
            passed.set(
              Math.floor((nowMs - (gaps[0] ?? 0)) / 1000),
              (passed.get(Math.floor((nowMs - (gaps[0] ?? 0)) / 1000)) ?? 0) + 1,
            );
        }
        for (const count of passed.values()) expect(count).toBeLessThanOrEqual(5);
      }),
    );
  });
});
