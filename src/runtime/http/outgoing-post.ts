import { lookup as resolveHost, type LookupAddress } from 'node:dns';
import { request as requestHttp, type ClientRequest, type RequestOptions } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import type { OutgoingRules } from './outgoing-rules.ts';

/** A message to an address that somebody else has named. */
export interface OutgoingPost {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The answer's head must be there within this time, milliseconds. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** Says why an address cannot be named at all; undefined where its host has to be looked up to tell. */
export function refuseUrl(url: URL, rules: OutgoingRules): string | undefined {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return 'it must begin with https:// or http://';
  if (url.username !== '' || url.password !== '') return 'it must hold no user and no password';
  const host = hostOf(url);
  if (!rules.allowsHost(host)) return `the operator does not allow ${host}`;
  return isIP(host) !== 0 && !rules.allowsAddress(host) ? `${host} is not a public address` : undefined;
}

/** The host without the brackets of an IPv6 address. */
function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '');
}

/** Looks a host up, and gives only what may be connected to: of several addresses one that may not spoils them all. */
function createLookup(rules: OutgoingRules): LookupFunction {
  return (host, options, done) => {
    resolveHost(host, { ...options, all: true }, (error, addresses: LookupAddress[]) => {
      if (error !== null) return done(error, []);
      const bad = addresses.find(({ address }) => !rules.allowsAddress(address));
      if (bad !== undefined || addresses.length === 0)
        return done(new Error(`${host} is not at a public address (${bad?.address ?? 'none'})`), []);
      const [first] = addresses;
      if (options.all === true) done(null, addresses);
      else done(null, first?.address ?? '', first?.family);
    });
  };
}

function begin({ url, headers, body, signal }: OutgoingPost, rules: OutgoingRules): ClientRequest {
  const options: RequestOptions = {
    method: 'POST',
    headers: { ...headers, host: url.host, 'content-length': String(Buffer.byteLength(body)) },
    lookup: createLookup(rules),
    // A connection that was kept could be to an address that the rules of today do not allow.
    agent: false,
    signal,
  };
  return url.protocol === 'https:' ? requestHttps(url, options) : requestHttp(url, options);
}

/**
 * Sends a message and returns the status of the answer, whose body is not read. A redirect is an answer like any other
 * and is not followed. Throws where the address may not be sent to, and where no answer comes in time.
 */
export async function postOutside(post: OutgoingPost, rules: OutgoingRules): Promise<number> {
  const refusal = refuseUrl(post.url, rules);
  if (refusal !== undefined) throw new Error(refusal);
  return await new Promise<number>((resolve, reject) => {
    const request = begin(post, rules);
    const timer = setTimeout(() => request.destroy(new Error(`no answer within ${post.timeoutMs} ms`)), post.timeoutMs);
    request.once('response', (response) => {
      resolve(response.statusCode ?? 0);
      response.destroy();
    });
    // To switch protocols is an answer too, but not one that this has asked for.
    request.once('upgrade', (response, socket) => {
      resolve(response.statusCode ?? 0);
      socket.destroy();
    });
    request.once('error', reject);
    request.once('close', () => {
      clearTimeout(timer);
      reject(new Error('the connection was closed without an answer'));
    });
    request.end(post.body);
  });
}
