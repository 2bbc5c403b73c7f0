import { badRequest, type ExportApiError } from './envelope.ts';

/** The values of each argument in their order, given as `k=`, `k[]=` or `k[0]=`. `params[level]` stays as it is. */
export type Arguments = ReadonlyMap<string, readonly string[]>;

/** Longest body, bytes: fits 999 event names of 255 characters, percent-encoded. */
export const maxFormBytes = 4 * 1024 * 1024;

const listForm = /^([^[\]]+)\[\d{0,6}\]$/;
/** `params[level]` and its list forms, such as `params[level][]`. */
const paramForm = /^(params[A-Za-z]*\[.+?\])(?:\[\d{0,6}\])?$/s;

/** Empty JSON, which some HTTP libraries send with a query. */
const emptyJson = /^\s*(?:\{\s*\}|\[\s*\]|null|"")\s*$/;
/** Bodies that are not forms, by their start. */
const otherBodies: readonly (readonly [begin: RegExp, what: string])[] = [
  [/^\s*[{["]/, 'JSON'],
  [/^(?:\r?\n)?--[^\r\n]+\r?\n(?:content-|--)/i, 'multipart/form-data'],
];

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return undefined;
  }
}

/**
 * Parses the query, then the form body, into arguments. The Content-Type is ignored: official clients send none. The
 * bytes are UTF-8, plain or percent-encoded. Empty JSON counts as no body.
 */
export function parseArguments(requestTarget: string, body: Buffer | undefined): Arguments | ExportApiError {
  const mark = requestTarget.indexOf('?');
  // Node passes the request line as latin1: one character per byte.
  const query = mark === -1 ? Buffer.alloc(0) : Buffer.from(requestTarget.slice(mark + 1), 'latin1');
  const values = new Map<string, string[]>();
  for (const bytes of [query, body ?? Buffer.alloc(0)]) {
    let text: string;
    try {
      text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      return badRequest('The arguments are not valid UTF-8');
    }
    if (bytes === body) {
      if (emptyJson.test(text)) continue;
      const other = otherBodies.find(([begin]) => begin.test(text));
      if (other !== undefined)
        return badRequest(`The body is ${other[1]}: send a form (application/x-www-form-urlencoded) or the query`);
    }
    // Tools that send a file as the body send its last line break.
    for (const pair of text.replace(/[\r\n]+$/, '').split('&')) {
      if (pair === '') continue;
      const equals = pair.indexOf('=');
      const name = decode(equals === -1 ? pair : pair.slice(0, equals));
      const value = equals === -1 ? '' : decode(pair.slice(equals + 1));
      if (name === undefined || value === undefined)
        return badRequest(`The arguments are not valid percent-encoded UTF-8: ${quote(pair)}`);
      const key = (paramForm.exec(name) ?? listForm.exec(name))?.[1] ?? name;
      const known = values.get(key);
      if (known === undefined) values.set(key, [value]);
      else known.push(value);
    }
  }
  return values;
}

/** Quotes a value for a detail: control characters escaped, at most 100 characters. */
export function quote(value: string): string {
  const characters = Array.from(value);
  return JSON.stringify(characters.length <= 100 ? value : `${characters.slice(0, 100).join('')}...`);
}
