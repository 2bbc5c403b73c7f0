import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { describeClock, isClockBehind } from '../lake/log/lake-state.ts';

/** Watches whether the lake's newest `available_at` lies in the future: then the clock was ahead, or is behind now. */
export interface ClockWatch {
  problems(): Problem[];
}

/** Creates the watch. Small steps of the clock, as time servers make them, are no problem (available-at.ts). */
export function createClockWatch(clock: Clock, availableAtMs: () => number): ClockWatch {
  let since: string | undefined;
  return {
    problems() {
      const nowMs = clock.nowMs();
      if (!isClockBehind(availableAtMs(), nowMs)) {
        since = undefined;
        return [];
      }
      since ??= new Date(nowMs).toISOString();
      return [describeClock(availableAtMs(), nowMs, since)];
    },
  };
}

/**
 * A broker's clock that is further ahead than this, milliseconds, leaves the lake without a watermark now and then, and
 * soon always: one that lies in the future is not told (lake/watermark.ts).
 */
const brokerToleranceMs = 2000;

/** Describes a broker's clock that is so many milliseconds ahead of this machine's, if that matters. */
export function describeBrokerClock(aheadMs: number): Problem[] {
  if (aheadMs <= brokerToleranceMs) return [];
  return [
    {
      code: 'broker_clock_ahead',
      what: `the broker's clock is ${(aheadMs / 1000).toFixed(1)} seconds ahead of this machine's: the watermark lies in the future and is not told, and scheduled exports of periods wait for it, up to three hours`,
      todo: 'Have both machines follow a time server; the watermark is told again by itself. Nothing is lost meanwhile, and change feeds go on.',
    },
  ];
}
