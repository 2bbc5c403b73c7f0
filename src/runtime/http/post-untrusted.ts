import type { LookupAddress } from 'node:dns';
import { request as requestHttp, type ClientRequest, type RequestOptions } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { withTimeout } from '../async/in-parallel.ts';
import { createDnsLookups, type EgressPolicy } from './egress-policy.ts';

/** A message to an address that a user has named. */
interface OutgoingPost {
  readonly url: URL;
  /** The user who named it: slow names of one owner must not delay others. */
  readonly owner: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Timeout of the response's head after the name lookup, ms. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** Returns why an address is rejected before its host is looked up. */
export function validateUrl(url: URL, rules: EgressPolicy): string | undefined {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return 'it must begin with https:// or http://';
  if (url.username !== '' || url.password !== '') return 'it must not have a user or password';
  const host = hostOf(url);
  if (!rules.allowsHost(host)) return `the operator does not allow ${host}`;
  return isIP(host) !== 0 && !rules.allowsAddress(host) ? `${host} is not a public address` : undefined;
}

function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '');
}

const lookups = createDnsLookups();
/** Timeout of a lookup, ms, including earlier ones of the owner. */
const lookupMs = 60_000;

/** Returns the addresses to connect to; undefined if the host is an address. Throws if any address is not allowed. */
async function findAddresses(
  { url, owner, signal }: OutgoingPost,
  rules: EgressPolicy,
): Promise<readonly LookupAddress[] | undefined> {
  const host = hostOf(url);
  if (isIP(host) !== 0) return undefined;
  const addresses = await withTimeout(lookupMs, lookups.find(host, owner, signal));
  const bad = addresses.find(({ address }) => !rules.allowsAddress(address));
  if (bad !== undefined || addresses.length === 0)
    throw new Error(`${host} is not at a public address (${bad?.address ?? 'none'})`);
  return addresses;
}

/** Restricts a connection to addresses that were checked. */
function toLookup(addresses: readonly LookupAddress[]): LookupFunction {
  return (_host, { all = false }, done) => {
    const [first] = addresses;
    if (all) done(null, [...addresses]);
    else done(null, first?.address ?? '', first?.family);
  };
}

function begin(
  { url, headers, body, signal }: OutgoingPost,
  addresses: readonly LookupAddress[] | undefined,
): ClientRequest {
  const options: RequestOptions = {
    method: 'POST',
    headers: { ...headers, host: url.host, 'content-length': String(Buffer.byteLength(body)) },
    ...(addresses === undefined ? {} : { lookup: toLookup(addresses) }),
    // A kept connection could be to an address that the current rules do not allow.
    agent: false,
    signal,
  };
  return url.protocol === 'https:' ? requestHttps(url, options) : requestHttp(url, options);
}

/** Sends a message and returns the status, without the body or redirects. Throws for a denied address or a timeout. */
export async function postToUntrustedUrl(post: OutgoingPost, rules: EgressPolicy): Promise<number> {
  const refusal = validateUrl(post.url, rules);
  if (refusal !== undefined) throw new Error(refusal);
  const addresses = await findAddresses(post, rules);
  return await new Promise<number>((resolve, reject) => {
    const request = begin(post, addresses);
    const timer = setTimeout(
      () => request.destroy(new Error(`no response within ${post.timeoutMs} ms`)),
      post.timeoutMs,
    );
    request.once('response', (response) => {
      resolve(response.statusCode ?? 0);
      response.destroy();
    });
    // A protocol switch is a response too.
    request.once('upgrade', (response, socket) => {
      resolve(response.statusCode ?? 0);
      socket.destroy();
    });
    request.once('error', reject);
    request.once('close', () => {
      clearTimeout(timer);
      reject(new Error('the connection was closed without a response'));
    });
    request.end(post.body);
  });
}
