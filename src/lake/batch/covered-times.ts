/** Times of receipt, Unix milliseconds, both ends included. */
export interface Range {
  readonly fromMs: number;
  readonly toMs: number;
}

/** The parts of a range that others do not cover. `covered` is in order and without overlaps. */
export function findUncovered({ fromMs, toMs }: Range, covered: readonly Range[]): Range[] {
  const gaps: Range[] = [];
  let next = fromMs;
  for (const range of covered) {
    if (range.toMs < next) continue;
    if (range.fromMs > toMs) break;
    if (range.fromMs > next) gaps.push({ fromMs: next, toMs: range.fromMs - 1 });
    next = range.toMs + 1;
  }
  if (next <= toMs) gaps.push({ fromMs: next, toMs });
  return gaps;
}

/** Joins ranges that touch. */
export function joinRanges(ranges: readonly Range[]): Range[] {
  const joined: Range[] = [];
  for (const range of ranges.toSorted((a, b) => a.fromMs - b.fromMs)) {
    const last = joined.at(-1);
    if (last !== undefined && range.fromMs <= last.toMs + 1)
      joined[joined.length - 1] = { fromMs: last.fromMs, toMs: Math.max(last.toMs, range.toMs) };
    else joined.push(range);
  }
  return joined;
}

/** The times of receipt for which a memory is complete. */
export interface CoveredTimes {
  /** Nothing is covered: the memory is empty. */
  isEmpty(): boolean;
  /** The parts of a range that are not covered. */
  findGaps(range: Range): Range[];
  add(range: Range): void;
  /** The first time that is covered. */
  firstMs(): number | undefined;
  forgetBefore(ms: number): void;
  clear(): void;
}

/** Creates the record of them, empty. */
export function createCoveredTimes(): CoveredTimes {
  let covered: Range[] = [];
  return {
    isEmpty: () => covered.length === 0,
    findGaps: (range) => findUncovered(range, covered),
    add(range) {
      covered = joinRanges([...covered, range]);
    },
    firstMs: () => covered[0]?.fromMs,
    forgetBefore(ms) {
      covered = covered.flatMap((range) =>
        range.toMs < ms ? [] : [{ fromMs: Math.max(range.fromMs, ms), toMs: range.toMs }],
      );
    },
    clear() {
      covered = [];
    },
  };
}
