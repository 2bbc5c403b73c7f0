/** Says whether a client takes bodies that are compressed by gzip (RFC 9110, 12.5.3), by its Accept-Encoding. */
export function takesGzip(acceptEncoding: string | undefined): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/.test(acceptEncoding ?? '');
}
