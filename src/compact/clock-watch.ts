import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { describeClock, isClockBehind } from '../lake/log/available-at.ts';

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
