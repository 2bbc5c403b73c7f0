import type { SlotSpan } from './slot-rule.ts';

/**
 * Spans that are remembered; of more the two oldest become one. Slots come one after another, so that each further span
 * is a stop longer than was made up, or a clock that was ahead.
 */
const mostSpans = 64;

/** Whether a slot is in one of the spans. */
export function isMade(made: readonly SlotSpan[], slot: number): boolean {
  return made.some(([first, last]) => first <= slot && slot <= last);
}

/** The spans with one slot more; spans are apart and in their order. */
export function addSlot(made: readonly SlotSpan[], slot: number): readonly SlotSpan[] {
  const spans: SlotSpan[] = [];
  let [first, last] = [slot, slot];
  for (const span of made) {
    if (span[1] + 1 < first || last + 1 < span[0]) spans.push(span);
    else [first, last] = [Math.min(first, span[0]), Math.max(last, span[1])];
  }
  spans.push([first, last]);
  const ordered = spans.toSorted((a, b) => a[0] - b[0]);
  const [oldest, second, ...others] = ordered;
  return ordered.length > mostSpans && oldest !== undefined && second !== undefined
    ? [[oldest[0], second[1]], ...others]
    : ordered;
}

/** Which slots of a schedule are still to be made. */
export interface DueSlots {
  /** The first slot that the schedule has. */
  readonly firstSlot: number;
  /** How many slots back, the newest included, are made up. */
  readonly catchUp: number;
  readonly made: readonly SlotSpan[];
}

/**
 * The oldest slot that is to be made when `newest` is the newest whose time has come; undefined: none. What it skips,
 * because more slots were missed than are made up, is not written down: a clock that was ahead by mistake, and is set
 * back, leaves them to be made.
 */
export function findDueSlot({ firstSlot, catchUp, made }: DueSlots, newest: number): number | undefined {
  for (let slot = Math.max(firstSlot, newest - catchUp + 1); slot <= newest; slot += 1)
    if (!isMade(made, slot)) return slot;
  return undefined;
}

/** The first slot after `newest` that is not made. */
export function findNextSlot({ firstSlot, made }: DueSlots, newest: number): number {
  let slot = Math.max(firstSlot, newest + 1);
  for (const [first, last] of made) if (first <= slot && slot <= last) slot = last + 1;
  return slot;
}
