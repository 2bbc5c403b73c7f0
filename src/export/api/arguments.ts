import { badRequest, type Refusal } from './envelope.ts';

/**
 * The arguments of a call: for each name the values in the order given, whether as `k=`, `k[]=` or `k[0]=`. A name such
 * as `params[level]` stays whole.
 */
export type Arguments = ReadonlyMap<string, readonly string[]>;

/** Longest body of a call, bytes: 999 event names of 255 characters fit, percent-encoded whatever their alphabet. */
export const maxBodyBytes = 4 * 1024 * 1024;

const listForm = /^([^[\]]+)\[\d{0,6}\]$/;
/** A filter on a parameter of custom events: what is in the brackets is the parameter's name, whatever it is. */
const paramForm = /^(params\[.+?\])(?:\[\d{0,6}\])?$/s;

/** JSON that says nothing: some HTTP libraries send it beside a query on their own. */
const emptyJson = /^\s*(?:\{\s*\}|\[\s*\]|null|"")\s*$/;
/** Bodies that are no form, by how they begin. */
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
 * Parses the query and the form body of a call into one set of arguments, query first. Whatever Content-Type the body
 * has, it is read as a form: official clients send none. The bytes are UTF-8, plain or percent-encoded. An empty JSON
 * value counts as no body.
 */
export function parseArguments(requestTarget: string, body: Buffer | undefined): Arguments | Refusal {
  const mark = requestTarget.indexOf('?');
  // Node hands the request line over as latin1: one character a byte.
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
    // Tools that send a file as the body send its last line break along.
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

/** Shows a value of the caller's in a detail text: quoted, control characters escaped, cut at 100 characters. */
export function quote(value: string): string {
  const characters = Array.from(value);
  return JSON.stringify(characters.length <= 100 ? value : `${characters.slice(0, 100).join('')}...`);
}
