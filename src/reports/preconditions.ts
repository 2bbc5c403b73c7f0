/** The conditional header fields of a request, as Node has them. */
export interface ConditionalHeaders {
  readonly 'if-match'?: string | undefined;
  readonly 'if-none-match'?: string | undefined;
  readonly 'if-range'?: string | undefined;
  readonly range?: string | undefined;
}

const tagPattern = /^(W\/)?("[\x21\x23-\x7e\x80-\xff]*")$/;

/** Parses a list of entity tags; undefined for other texts. A tag may contain commas. */
function parseTags(list: string): string[] | undefined {
  const parts = list.match(/(?:W\/)?"[^"]*"|[^\s,]+/g) ?? [];
  return parts.every((part) => tagPattern.test(part)) ? parts : undefined;
}

function isStrongMatch(list: string, etag: string | undefined): boolean {
  return list.trim() === '*' || (etag !== undefined && parseTags(list)?.includes(etag) === true);
}

function isWeakMatch(list: string, etag: string | undefined): boolean {
  return (
    list.trim() === '*' ||
    (etag !== undefined && parseTags(list)?.some((tag) => tag.replace(/^W\//, '') === etag) === true)
  );
}

/**
 * Evaluates the conditions of a GET or HEAD of an existing file, in the order of RFC 9110, 13.2.2. If-Match compares
 * strongly, If-None-Match weakly. Dates are ignored, since no Last-Modified is sent. `etag`: strong tag with quotes;
 * undefined if the file has none.
 */
export function checkPreconditions(
  headers: ConditionalHeaders,
  etag: string | undefined,
): 'proceed' | 'not_modified' | 'failed' {
  const { 'if-match': ifMatch, 'if-none-match': ifNoneMatch } = headers;
  if (ifMatch !== undefined && !isStrongMatch(ifMatch, etag)) return 'failed';
  return ifNoneMatch !== undefined && isWeakMatch(ifNoneMatch, etag) ? 'not_modified' : 'proceed';
}

/** Returns the Range header that applies to a GET (RFC 9110, 13.1.5): none if If-Range is a date or another tag. */
export function applicableRange(headers: ConditionalHeaders, etag: string): string | undefined {
  const ifRange = headers['if-range']?.trim();
  return ifRange === undefined || ifRange === etag ? headers.range : undefined;
}

/** A parsed Range header: the whole file, a part (both ends inclusive), or a part beyond its end. */
type ByteRange =
  | { readonly kind: 'whole' }
  | { readonly kind: 'part'; readonly first: number; readonly last: number }
  | { readonly kind: 'unsatisfiable' };

/** Parses a Range header (RFC 9110, 14). One that is absent, malformed, or of several ranges means the whole file. */
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
