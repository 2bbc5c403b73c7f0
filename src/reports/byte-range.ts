/** What a Range header asks of a file: all of it, one part of it (both ends inclusive), or a part it does not have. */
export type ByteRange =
  | { readonly kind: 'whole' }
  | { readonly kind: 'part'; readonly first: number; readonly last: number }
  | { readonly kind: 'unsatisfiable' };

/**
 * Parses a Range header against a size in bytes (RFC 9110, 14.1.2 and 14.2). A header that is absent, malformed, of
 * another unit or that names several ranges is ignored, as the RFC allows: the whole file answers it.
 */
export function parseRange(header: string | undefined, size: number): ByteRange {
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/i.exec(header?.trim() ?? '');
  const [, from = '', to = ''] = match ?? [];
  if (match === null || (from === '' && to === '')) return { kind: 'whole' };
  if (from === '') {
    const length = Math.min(Number(to), size);
    return length === 0 ? { kind: 'unsatisfiable' } : { kind: 'part', first: size - length, last: size - 1 };
  }
  const first = Number(from);
  const last = to === '' ? size - 1 : Math.min(Number(to), size - 1);
  if (to !== '' && Number(to) < first) return { kind: 'whole' };
  return first >= size ? { kind: 'unsatisfiable' } : { kind: 'part', first, last };
}
