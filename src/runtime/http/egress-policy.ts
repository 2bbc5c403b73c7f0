import { BlockList, isIP, type LookupFunction } from 'node:net';
import { lookup as resolveHost, type LookupAddress } from 'node:dns';
import { once } from 'node:events';
import { createKeyedSemaphore } from '../async/semaphore.ts';

/** Addresses that the service may reach for users: public ones, and those that the operator allows. */
export interface EgressPolicy {
  /** Reports whether a host may be named. An IPv6 address has no brackets. */
  allowsHost(host: string): boolean;
  allowsAddress(address: string): boolean;
}

/** Returns the version of an IP address; 0 for other texts and for addresses with a zone (`%eth0`). */
function versionOf(address: string): 0 | 4 | 6 {
  const version = address.includes('%') ? 0 : isIP(address);
  return version === 4 || version === 6 ? version : 0;
}

function isIn(networks: BlockList, address: string): boolean {
  const version = versionOf(address);
  return version !== 0 && networks.check(address, `ipv${version}`);
}

function addNetwork(networks: BlockList, entry: string): boolean {
  const [address = '', bits, ...rest] = entry.split('/');
  const version = versionOf(address);
  const most = version === 4 ? 32 : 128;
  if (version === 0 || rest.length > 0 || (bits !== undefined && !/^\d{1,3}$/.test(bits)) || Number(bits ?? 0) > most)
    return false;
  networks.addSubnet(address, Number(bits ?? most), `ipv${version}`);
  return true;
}

function toNetworks(entries: string): BlockList {
  const networks = new BlockList();
  for (const entry of entries.split(' ')) addNetwork(networks, entry);
  return networks;
}

/** Special-purpose networks of RFC 6890 and the IANA registries, and 6to4 and Teredo, which carry any IPv4 address. */
const special = toNetworks(
  '0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 ' +
    '192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 ' +
    '203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 2001::/23 2001:db8::/32 2002::/16 3fff::/20',
);
const globalUnicast = toNetworks('2000::/3');

function isPublic(address: string): boolean {
  return (versionOf(address) === 4 || isIn(globalUnicast, address)) && !isIn(special, address);
}

const namePattern = /^(?:\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;

/**
 * Creates the rules from an operator's addresses, networks (`10.1.0.0/16`) and names (`hooks.example.com`,
 * `*.example.com`), besides public addresses. With names, no others are allowed. If it is closed, no other host is
 * allowed anyway. Returns the first invalid entry.
 */
export function createEgressPolicy(
  entries: readonly string[],
  { isClosed = false }: { readonly isClosed?: boolean } = {},
): EgressPolicy | string {
  const listed = new BlockList();
  const names: string[] = [];
  for (const entry of entries.map((text) => text.trim().toLowerCase())) {
    if (addNetwork(listed, entry)) continue;
    if (!namePattern.test(entry)) return entry;
    names.push(entry);
  }
  const isNamed = (host: string): boolean =>
    names.some((name) => (name.startsWith('*.') ? host.endsWith(name.slice(1)) : host === name));
  return {
    allowsHost(host) {
      const plain = host.toLowerCase().replace(/\.$/, '');
      return (!isClosed && names.length === 0) || (isIP(plain) === 0 ? isNamed(plain) : isIn(listed, plain));
    },
    allowsAddress: (address) => isPublic(address) || isIn(listed, address),
  };
}

function resolve(host: string): Promise<readonly LookupAddress[]> {
  return new Promise((done, fail) => {
    resolveHost(host, { all: true }, (error, addresses) => (error === null ? done(addresses) : fail(error)));
  });
}

/** Settles as the work does, or rejects with the signal's reason if that aborts first. */
async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const settled = new AbortController();
  const aborted = once(signal, 'abort', { signal: settled.signal }).then(() => signal.throwIfAborted());
  // Their rejections may have no other handler.
  for (const one of [work, aborted]) one.catch(() => undefined);
  try {
    signal.throwIfAborted();
    await Promise.race([work, aborted]);
    return await work;
  } finally {
    settled.abort();
  }
}

/** Creates name lookups, one at a time per owner: the system runs two at once, and one may take ten seconds. */
export function createDnsLookups() {
  const turns = createKeyedSemaphore();
  /** Running and waiting lookups by owner and name. */
  const pending = new Map<string, Promise<readonly LookupAddress[]>>();
  return {
    /** Returns the addresses of a name. Rejects with the system's error, and when the signal aborts. */
    async find(host: string, owner: string, signal: AbortSignal): Promise<readonly LookupAddress[]> {
      const key = `${owner} ${host}`;
      const known = pending.get(key);
      const found = known ?? turns.run(owner, () => resolve(host)).finally(() => pending.delete(key));
      if (known === undefined) pending.set(key, found);
      return await untilAborted(found, signal);
    },
  };
}

const connectionLookups = createDnsLookups();

/** Creates a lookup for connections that only returns addresses which the rules allow. */
export function createCheckedLookup(rules: EgressPolicy, owner: string, signal: AbortSignal): LookupFunction {
  return (host, { all = false }, answer) => {
    const fail = (error: Error): void => answer(error, '', 0);
    const check = (addresses: readonly LookupAddress[]): void => {
      const bad = addresses.find(({ address }) => !rules.allowsAddress(address));
      const [first] = addresses;
      if (bad !== undefined || first === undefined) fail(new Error(`${host} is not at an allowed address`));
      else if (all) answer(null, [...addresses]);
      else answer(null, first.address, first.family);
    };
    connectionLookups.find(host, owner, signal).then(check, fail);
  };
}
