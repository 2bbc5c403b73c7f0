/** A name that is so many letters away from a known one was meant to be it: at most, and of a short name a third. */
const maxTypingErrors = 3;

/** Number of letters to change, add or take away until one word is the other. */
function editDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let index = 0; index < one.length; index += 1) {
    const next = [index + 1];
    for (let column = 0; column < other.length; column += 1) {
      next.push(
        Math.min(
          (next[column] ?? 0) + 1,
          (row[column + 1] ?? 0) + 1,
          (row[column] ?? 0) + (one[index] === other[column] ? 0 : 1),
        ),
      );
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}

/**
 * The known name that was probably meant by one that is none, its case set aside; undefined: no name is within `limit`
 * letters.
 */
export function findNearest(
  name: string,
  known: Iterable<string>,
  limit = Math.min(maxTypingErrors, Math.floor(name.length / 3)),
): string | undefined {
  let nearest: { readonly name: string; readonly distance: number } | undefined;
  for (const candidate of known) {
    if (Math.abs(candidate.length - name.length) > limit) continue;
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance <= limit && distance < (nearest?.distance ?? Infinity)) nearest = { name: candidate, distance };
  }
  return nearest?.name;
}
