import type { SlotSpan } from './slot-rule.ts';

/**
 * Spans that are kept; of more, the two oldest are joined. Each further span is a stop longer than `catchUp`, or a
 * clock that was ahead.
 */
const mostSpans = 64;

export function isMade(made: readonly SlotSpan[], slot: number): boolean {
  return made.some(([first, last]) => first <= slot && slot <= last);
}

/** Adds a slot to spans, which are sorted and apart. */
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

/** The slots of a schedule that are due. */
export interface DueSlots {
  readonly firstSlot: number;
  /** Missed slots that are caught up, the newest included. */
  readonly catchUp: number;
  readonly made: readonly SlotSpan[];
}

/**
 * Finds the oldest due slot if `newest` is the newest whose time has come. Skipped slots are not recorded: after a
 * clock that was ahead is set back, they are due again.
 */
export function findDueSlot({ firstSlot, catchUp, made }: DueSlots, newest: number): number | undefined {
  for (let slot = Math.max(firstSlot, newest - catchUp + 1); slot <= newest; slot += 1)
    if (!isMade(made, slot)) return slot;
  return undefined;
}

/** Finds the first slot after `newest` without an export. */
export function findNextSlot({ firstSlot, made }: DueSlots, newest: number): number {
  let slot = Math.max(firstSlot, newest + 1);
  for (const [first, last] of made) if (first <= slot && slot <= last) slot = last + 1;
  return slot;
}
