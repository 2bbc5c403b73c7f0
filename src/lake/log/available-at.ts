import type { Clock } from '../../runtime/clock.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import type { LakeState } from './lake-state.ts';

/**
 * `available_at` orders the rows for whoever reads them bit by bit: every commit that brings rows has a later one than
 * all before it, whatever the clock does. After a clock that was ahead, the values go on from there by a millisecond a
 * commit.
 */

/** A clock that is further behind than this was wrong before, or is now; time servers correct by less, milliseconds. */
export const clockToleranceMs = 5 * 60_000;

/** The `available_at` of the next commit that brings rows, Unix milliseconds. */
export function nextAvailableAtMs(clock: Clock, lake: LakeState): number {
  return Math.max(clock.nowMs(), lake.availableAtMs + 1);
}

/** Says whether a time that was given in the past lies so far in the future that a clock must be wrong. */
export function isClockBehind(timeMs: number, nowMs: number): boolean {
  return timeMs - nowMs > clockToleranceMs;
}

const units = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
] as const;

function describeSpan(ms: number): string {
  const [unit, length] = units.find(([, size]) => ms >= size) ?? units[2];
  const count = Math.round((10 * ms) / length) / 10;
  return `${count} ${unit}${count === 1 ? '' : 's'}`;
}

/** Describes an `available_at` that lies ahead of the clock; `since`: when that was seen first, ISO 8601. */
export function describeClock(availableAtMs: number, nowMs: number, since?: string): Problem {
  return {
    code: 'clock_behind_lake',
    what: `the newest available_at of the lake, ${new Date(availableAtMs).toISOString()}, is ${describeSpan(availableAtMs - nowMs)} ahead of this machine's clock${since === undefined ? '' : `, seen since ${since}`}: the clock was ahead when rows were stored, or is behind now; filters by availability miss new rows`,
    todo: "Set the clock right if it is behind; otherwise run 'tributary lake repair', which gives those rows a time that has passed, in the same order. Nothing is lost meanwhile.",
  };
}
