/** A number that is known by its bounds: it is surely between `least` and `most`, and probably about `expected`. */
export interface Count {
  readonly least: number;
  readonly most: number;
  readonly expected: number;
}

export const none: Count = { least: 0, most: 0, expected: 0 };

/** A number between bounds, as near to a guess as they let it be. */
export function within(least: number, most: number, guess: number): Count {
  return { least, most, expected: Math.min(most, Math.max(least, guess)) };
}

/** The sum of numbers that are known by their bounds. */
export function sum(counts: readonly Count[]): Count {
  return counts.reduce(
    (total, { least, most, expected }) => ({
      least: total.least + least,
      most: total.most + most,
      expected: total.expected + expected,
    }),
    none,
  );
}

/** How many of `rows` fulfil every condition, by how many fulfil each: they may be the same rows or others. */
export function all(rows: number, counts: readonly Count[]): Count {
  if (rows === 0 || counts.length === 0) return { least: rows, most: rows, expected: rows };
  const most = Math.min(rows, ...counts.map((count) => count.most));
  const missing = counts.reduce((lost, { least }) => lost + rows - least, 0);
  const share = counts.reduce((product, { expected }) => product * (expected / rows), 1);
  // Of a file whose rows nobody has counted.
  if (rows === Infinity) return { least: 0, most, expected: most };
  return within(Math.max(0, rows - missing), most, rows * share);
}

/** How many of `rows` fulfil one condition at least. */
export function any(rows: number, counts: readonly Count[]): Count {
  const { most, expected } = sum(counts);
  return within(Math.max(0, ...counts.map(({ least }) => least)), Math.min(rows, most), expected);
}
