/** Maximum number of typing errors; for short names a third of the length. */
const maxTypingErrors = 3;

/** Returns the Levenshtein distance of two words. */
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

/** Finds the known name that an unknown one probably meant, ignoring case; undefined beyond `limit` changes. */
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
