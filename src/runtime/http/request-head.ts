/**
 * HTTP, as both public ports need it: heads, connections, ports, the frame of the API reference.
 *
 * In: bytes of strangers. Out: a fault with its status, before any handler sees the request.
 * Invariant: nothing here knows a route. What is wrong with a head is the same for both ports. Crash: nothing rests
 * here.
 */
import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import { httpAddress } from './ports.ts';

/** Why a request is refused by its head alone: 417 for an expectation (RFC 9110, 10.1.1), 400 for everything else. */
interface HeadFault {
  readonly status: 400 | 417;
  /** One sentence for the client's developer; it repeats nothing of the request. */
  readonly detail: string;
}

/**
 * Most header lines of a request. Node 20 passes no more of them on and reports nothing: a key or a Host could be among
 * the rest. Later ones break off.
 */
export const maxHeaderLines = 2000;

/** Says what a parser that breaks off with HPE_HEADER_OVERFLOW has met: it does not say which of the two. */
export function describeHeadOverflow(maxHeadBytes: number): string {
  return `the request has more than ${maxHeaderLines} headers, or a head of more than ${maxHeadBytes} bytes`;
}

/** RFC 3986, 3.2.2 without brackets: unreserved, percent-encoded and sub-delims; then a port of RFC 9110's http URI. */
const namePattern = /^(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2}){1,255}(?::(\d{0,5}))?$/;
const literalPattern = /^\[(?:([0-9A-Fa-f:.]+)|v[0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\](?::(\d{0,5}))?$/i;

/**
 * Says whether a text is what a Host header may hold (RFC 9110, 7.2): a name or an address, and a port where there is
 * one; or nothing.
 */
export function isHost(text: string): boolean {
  if (text === '') return true;
  const literal = literalPattern.exec(text);
  const port = (literal === null ? namePattern.exec(text)?.[1] : literal[2]) ?? '';
  if (Number(port) > 65_535) return false;
  return literal === null ? namePattern.test(text) : literal[1] === undefined || isIPv6(literal[1]);
}

/**
 * The host of a target in absolute form, which counts instead of the Host header (RFC 9112, 3.2.2); undefined for any
 * other form.
 */
function hostOfTarget(target: string | undefined): string | undefined {
  // Of the usual form, a path, nothing more is to be looked at.
  return target?.startsWith('/') === false ? /^https?:\/\/([^/?#]*)/i.exec(target)?.[1] : undefined;
}

function countHosts(rawHeaders: readonly string[]): number {
  let hosts = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index];
    if (name?.length === 4 && name.toLowerCase() === 'host') hosts += 1;
  }
  return hosts;
}

/** The host that was last found right: clients of one address send it with each of their requests. */
let rightHost: string | undefined;

function isRightHost(text: string): boolean {
  if (text === rightHost) return true;
  const isRight = isHost(text);
  if (isRight) rightHost = text;
  return isRight;
}

/** Finds what is wrong with the head of a request: what RFC 9110 and 9112 (3.2) leave no server a choice about. */
export function findHeadFault(request: IncomingMessage): HeadFault | undefined {
  const { rawHeaders, headers } = request;
  if (rawHeaders.length > 2 * maxHeaderLines)
    return { status: 400, detail: `the request has more than ${maxHeaderLines} headers` };
  const hosts = countHosts(rawHeaders);
  if (hosts > 1 || (hosts === 0 && request.httpVersion === '1.1'))
    return { status: 400, detail: 'the request must have one Host header' };
  if (headers.host !== undefined && !isRightHost(headers.host))
    return { status: 400, detail: 'the Host header must be a host, and a port where there is one' };
  const target = hostOfTarget(request.url);
  if (target !== undefined && (target === '' || !isHost(target)))
    return { status: 400, detail: 'the target of the request must name a host, and a port where there is one' };
  if (headers.expect !== undefined && headers.expect.toLowerCase() !== '100-continue')
    return { status: 417, detail: 'the only expectation that is met is 100-continue' };
  return undefined;
}

/**
 * The http address that a request was sent to, without a slash at its end: of its target or its Host, which
 * `findHeadFault` has looked at; without one, of the socket that it came in by.
 */
export function addressOf({ url, headers, socket }: IncomingMessage): string {
  const host = hostOfTarget(url) ?? headers.host ?? '';
  if (host !== '') return `http://${host}`;
  const { localAddress = '127.0.0.1', localPort = 80 } = socket;
  return httpAddress(localAddress.replace(/^::ffff:(?=\d+\.)/, '').replace(/%.*$/, ''), localPort);
}

function refuse(): never {
  throw new Error('a route has a schema of the framework: check and render by ours (schema-registry.ts, openapi.ts)');
}

/**
 * Our routes have no schemas of the framework's: bodies are checked by the datasets' own, answers rendered by us. Said
 * so, Fastify does not load the compilers of them: 15 ms of processor time at each start of a process that serves.
 */
export const ownSchemas = {
  compilersFactory: { buildValidator: () => refuse, buildSerializer: () => refuse },
};

/** Says whether a client takes bodies that are compressed by gzip (RFC 9110, 12.5.3), by its Accept-Encoding. */
export function takesGzip(acceptEncoding: string | undefined): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/.test(acceptEncoding ?? '');
}
