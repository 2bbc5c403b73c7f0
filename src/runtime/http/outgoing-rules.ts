import { BlockList, isIP } from 'node:net';
import { lookup as resolveHost, type LookupAddress } from 'node:dns';
import { once } from 'node:events';
import { createKeyedSemaphore } from '../async/semaphore.ts';

/**
 * Which addresses the service may send to when somebody else than its operator has named them: public ones, and those
 * that the operator allows. Whoever can name a webhook must not reach what only the service's own network can.
 */
export interface OutgoingRules {
  /** Says whether a host may be named at all. An IPv6 address has no brackets. */
  allowsHost(host: string): boolean;
  /** Says whether an IP address may be connected to. */
  allowsAddress(address: string): boolean;
}

/** Networks that are nobody's on the internet: RFC 6890 and the IANA registries of special-purpose addresses. */
const special = {
  ipv4: [
    ['0.0.0.0', 8],
    ['10.0.0.0', 8],
    ['100.64.0.0', 10],
    ['127.0.0.0', 8],
    ['169.254.0.0', 16],
    ['172.16.0.0', 12],
    ['192.0.0.0', 24],
    ['192.0.2.0', 24],
    ['192.31.196.0', 24],
    ['192.52.193.0', 24],
    ['192.88.99.0', 24],
    ['192.168.0.0', 16],
    ['192.175.48.0', 24],
    ['198.18.0.0', 15],
    ['198.51.100.0', 24],
    ['203.0.113.0', 24],
    ['224.0.0.0', 4],
    ['240.0.0.0', 4],
  ],
  // All of IPv6 but 2000::/3, and of that what leads elsewhere: 6to4 and Teredo carry any IPv4 address.
  ipv6: [
    ['2001::', 23],
    ['2001:db8::', 32],
    ['2002::', 16],
    ['3fff::', 20],
  ],
} as const;

const notPublic = new BlockList();
for (const [network, bits] of special.ipv4) notPublic.addSubnet(network, bits, 'ipv4');
for (const [network, bits] of special.ipv6) notPublic.addSubnet(network, bits, 'ipv6');
const globalUnicast = new BlockList();
globalUnicast.addSubnet('2000::', 3, 'ipv6');

/** The version of an IP address; 0 for anything else, and for one with a zone (`%eth0`), which only a link has. */
function versionOf(address: string): number {
  return address.includes('%') ? 0 : isIP(address);
}

function isPublic(address: string): boolean {
  const version = versionOf(address);
  if (version === 4) return !notPublic.check(address, 'ipv4');
  return version === 6 && globalUnicast.check(address, 'ipv6') && !notPublic.check(address, 'ipv6');
}

const namePattern = /^(?:\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;

/** What an operator's list says: the networks, and the names. */
interface Allowed {
  readonly networks: BlockList;
  readonly names: readonly string[];
}

/** Adds an entry that is an address or a network; false where it is none. */
function addNetwork(networks: BlockList, entry: string): boolean {
  const [address = '', bits, ...rest] = entry.split('/');
  const version = versionOf(address);
  const most = version === 4 ? 32 : 128;
  if (version === 0 || rest.length > 0 || (bits !== undefined && !/^\d{1,3}$/.test(bits)) || Number(bits ?? 0) > most)
    return false;
  networks.addSubnet(address, Number(bits ?? most), version === 4 ? 'ipv4' : 'ipv6');
  return true;
}

function parseAllowed(entries: readonly string[]): Allowed | string {
  const networks = new BlockList();
  const names: string[] = [];
  for (const entry of entries.map((text) => text.trim().toLowerCase())) {
    if (addNetwork(networks, entry)) continue;
    if (!namePattern.test(entry)) return entry;
    names.push(entry);
  }
  return { networks, names };
}

function isNamed(host: string, names: readonly string[]): boolean {
  return names.some((name) => (name.startsWith('*.') ? host.endsWith(name.slice(1)) : host === name));
}

/**
 * Creates the rules of an operator's list: addresses and networks (`10.1.0.0/16`) that may be sent to beside the public
 * ones, and names (`hooks.example.com`, `*.example.com`). Where the list has names, no others may be named. Returns the
 * first entry that is neither.
 */
export function createOutgoingRules(entries: readonly string[]): OutgoingRules | string {
  const allowed = parseAllowed(entries);
  if (typeof allowed === 'string') return allowed;
  const { networks, names } = allowed;
  const isListed = (address: string): boolean => {
    const version = versionOf(address);
    return version !== 0 && networks.check(address, version === 4 ? 'ipv4' : 'ipv6');
  };
  return {
    allowsHost(host) {
      const plain = host.toLowerCase().replace(/\.$/, '');
      return isIP(plain) === 0 ? names.length === 0 || isNamed(plain, names) : isListed(plain) || names.length === 0;
    },
    allowsAddress: (address) => isPublic(address) || isListed(address),
  };
}

/**
 * Looks names up for those who have named them. The system does two look-ups at a time for the whole process, and one of
 * a name whose name server says nothing takes it some ten seconds, whether anybody still waits for it or not. So an owner
 * has one under way at a time, and each of its names once.
 */
interface NameLookups {
  /** The addresses of a name. Rejects when the system does, and when the signal aborts. */
  find(host: string, owner: string, signal: AbortSignal): Promise<readonly LookupAddress[]>;
}

function resolve(host: string): Promise<readonly LookupAddress[]> {
  return new Promise((done, fail) => {
    resolveHost(host, { all: true }, (error, addresses) => (error === null ? done(addresses) : fail(error)));
  });
}

/** Settles as the work does, or rejects with the signal's reason where that aborts first. */
async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const settled = new AbortController();
  const aborted = once(signal, 'abort', { signal: settled.signal }).then(() => signal.throwIfAborted());
  // Nobody may wait for them any more when they fail.
  for (const one of [work, aborted]) one.catch(() => undefined);
  try {
    signal.throwIfAborted();
    await Promise.race([work, aborted]);
    return await work;
  } finally {
    settled.abort();
  }
}

/** Creates it; nothing is looked up yet. */
export function createNameLookups(): NameLookups {
  const turns = createKeyedSemaphore();
  /** Those under way, or waiting for their turn, by owner and name. */
  const pending = new Map<string, Promise<readonly LookupAddress[]>>();
  return {
    async find(host, owner, signal) {
      const key = `${owner} ${host}`;
      const known = pending.get(key);
      const found = known ?? turns.run(owner, () => resolve(host)).finally(() => pending.delete(key));
      if (known === undefined) pending.set(key, found);
      return await untilAborted(found, signal);
    },
  };
}
