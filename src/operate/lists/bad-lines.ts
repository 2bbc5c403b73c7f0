import type { BadLine } from './text-lines.ts';

/** Why a list was not taken: nothing was changed. */
export interface RefusedList {
  /** The list's name, as the command got it. */
  readonly file: string;
  readonly badLines: number;
  /** The first of them. */
  readonly first: readonly BadLine[];
}

/** Collects the bad lines of a list: all are counted, the first are kept. */
export interface BadLines {
  add(bad: BadLine): void;
  readonly count: number;
  toRefused(file: string): RefusedList;
}

const namedLines = 20;

/** Creates an empty collection. */
export function createBadLines(): BadLines {
  const first: BadLine[] = [];
  let count = 0;
  return {
    add(bad) {
      count += 1;
      if (first.length < namedLines) first.push(bad);
    },
    get count() {
      return count;
    },
    toRefused: (file) => ({ file, badLines: count, first }),
  };
}
