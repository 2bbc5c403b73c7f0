import type { LookupAddress } from 'node:dns';
import { request as requestHttp, type ClientRequest, type RequestOptions } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { boundedBy } from '../async/in-parallel.ts';
import { createNameLookups, type OutgoingRules } from './outgoing-rules.ts';

/** A message to an address that somebody else has named. */
interface OutgoingPost {
  readonly url: URL;
  /** Who has named it: what the names of one owner take is waited for by that one alone. */
  readonly owner: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The answer's head must be there within this time of the look-up of the name, milliseconds. */
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

const lookups = createNameLookups();
/** An owner's names are looked up one after the other. */
const lookupMs = 60_000;

/**
 * Finds the addresses that may be connected to: of several one that may not spoils them all. Undefined for a host that is an
 * address itself, and was judged as such.
 */
async function findAddresses(
  { url, owner, signal }: OutgoingPost,
  rules: OutgoingRules,
): Promise<readonly LookupAddress[] | undefined> {
  const host = hostOf(url);
  if (isIP(host) !== 0) return undefined;
  const addresses = await boundedBy(lookupMs, lookups.find(host, owner, signal));
  const bad = addresses.find(({ address }) => !rules.allowsAddress(address));
  if (bad !== undefined || addresses.length === 0)
    throw new Error(`${host} is not at a public address (${bad?.address ?? 'none'})`);
  return addresses;
}

/** Has a connection made to addresses that were found before, and to no others. */
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
    // Without addresses the host is one itself.
    ...(addresses === undefined ? {} : { lookup: toLookup(addresses) }),
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
  const addresses = await findAddresses(post, rules);
  return await new Promise<number>((resolve, reject) => {
    const request = begin(post, addresses);
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
