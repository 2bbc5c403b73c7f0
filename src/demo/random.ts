/** A source of numbers that a seed fixes for ever. Not for secrets. */
export interface Random {
  /** A number from 0 up to but without 1. */
  next(): number;
  /** A whole number from `min` to `max`, both included. */
  integer(min: number, max: number): number;
  /** One of the items, which must not be empty. */
  pick<T>(items: readonly T[]): T;
  /** True with the given probability. */
  chance(probability: number): boolean;
  /** `digits` hexadecimal digits. */
  hex(digits: number): string;
}

/** Creates the source of a seed (any whole number): Mulberry32, whose 32-bit state is enough for made-up data. */
export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
  const integer = (min: number, max: number): number => min + Math.floor(next() * (max - min + 1));
  return {
    next,
    integer,
    pick<T>(items: readonly T[]): T {
      if (items.length === 0) throw new RangeError('nothing to pick from');
      return items[integer(0, items.length - 1)] as T;
    },
    chance: (probability) => next() < probability,
    hex: (digits) => Array.from({ length: digits }, () => integer(0, 15).toString(16)).join(''),
  };
}
