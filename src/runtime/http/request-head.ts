/**
 * HTTP of both public ports: heads, connections, ports, the frame of the API reference.
 *
 * In: bytes from untrusted clients. Out: a fault with its status, before a handler sees the request.
 * Invariant: no route is known here; both ports reject the same heads. Crash: nothing is stored here.
 */
import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import { httpAddress } from './ports.ts';

/** The reason for rejecting a request by its head: 417 for an expectation (RFC 9110, 10.1.1), otherwise 400. */
interface RequestHeadError {
  readonly status: 400 | 417;
  /** A sentence for the client's developer, which repeats nothing of the request. */
  readonly detail: string;
}

/** Maximum number of header lines. Node 20 drops further ones silently, which could include a key or a Host. */
export const maxHeaderLines = 2000;

/** Describes HPE_HEADER_OVERFLOW, which does not distinguish too many headers from too large a head. */
export function describeHeadOverflow(maxHeadBytes: number): string {
  return `the request has more than ${maxHeaderLines} headers, or a head of more than ${maxHeadBytes} bytes`;
}

/** RFC 3986, 3.2.2 without brackets: unreserved, percent-encoded and sub-delims; then a port of RFC 9110's http URI. */
const namePattern = /^(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2}){1,255}(?::(\d{0,5}))?$/;
const literalPattern = /^\[(?:([0-9A-Fa-f:.]+)|v[0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\](?::(\d{0,5}))?$/i;

/** Reports whether a text is a valid Host header (RFC 9110, 7.2): empty, or a name or address with an optional port. */
export function isHost(text: string): boolean {
  if (text === '') return true;
  const literal = literalPattern.exec(text);
  const port = (literal === null ? namePattern.exec(text)?.[1] : literal[2]) ?? '';
  if (Number(port) > 65_535) return false;
  return literal === null ? namePattern.test(text) : literal[1] === undefined || isIPv6(literal[1]);
}

/** Returns the host of a target in absolute form, which replaces the Host header (RFC 9112, 3.2.2). */
function hostOfTarget(target: string | undefined): string | undefined {
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

/** The last valid host: clients of one address send it with each request. */
let rightHost: string | undefined;

function isRightHost(text: string): boolean {
  if (text === rightHost) return true;
  const isRight = isHost(text);
  if (isRight) rightHost = text;
  return isRight;
}

/** Finds a violation of RFC 9110 or 9112 (3.2) that a server must reject. */
export function findRequestHeadError(request: IncomingMessage): RequestHeadError | undefined {
  const { rawHeaders, headers } = request;
  if (rawHeaders.length > 2 * maxHeaderLines)
    return { status: 400, detail: `the request has more than ${maxHeaderLines} headers` };
  const hosts = countHosts(rawHeaders);
  if (hosts > 1 || (hosts === 0 && request.httpVersion === '1.1'))
    return { status: 400, detail: 'the request must have one Host header' };
  if (headers.host !== undefined && !isRightHost(headers.host))
    return { status: 400, detail: 'the Host header must be a host with an optional port' };
  const target = hostOfTarget(request.url);
  if (target !== undefined && (target === '' || !isHost(target)))
    return { status: 400, detail: 'the request target must have a host and an optional port' };
  if (headers.expect !== undefined && headers.expect.toLowerCase() !== '100-continue')
    return { status: 417, detail: 'the only supported expectation is 100-continue' };
  return undefined;
}

/** Returns the HTTP address of a request, without a trailing slash: from its target, its Host, or its socket. */
export function addressOf({ url, headers, socket }: IncomingMessage): string {
  const host = hostOfTarget(url) ?? headers.host ?? '';
  if (host !== '') return `http://${host}`;
  const { localAddress = '127.0.0.1', localPort = 80 } = socket;
  return httpAddress(localAddress.replace(/^::ffff:(?=\d+\.)/, '').replace(/%.*$/, ''), localPort);
}

function refuse(): never {
  throw new Error('a route has a Fastify schema; validate and render with schema-registry.ts and openapi.ts');
}

/** Fastify options without schema compilers, which saves 15 ms per start: datasets validate, handlers render. */
export const noRouteSchemas = {
  compilersFactory: { buildValidator: () => refuse, buildSerializer: () => refuse },
};

/** Reports whether a client accepts gzip (RFC 9110, 12.5.3), by its Accept-Encoding. */
export function takesGzip(acceptEncoding: string | undefined): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/.test(acceptEncoding ?? '');
}
