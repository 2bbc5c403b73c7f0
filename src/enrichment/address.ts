import { isIPv6 } from 'node:net';

/** An address to look up. */
export interface Address {
  readonly address: string;
  readonly version: 4 | 6;
  /** Its numbers of 16 bits: two of an IPv4 address, eight of an IPv6 one. */
  readonly groups: readonly number[];
}

const [zero, nine, dot] = ['0', '9', '.'].map((character) => character.charCodeAt(0)) as [number, number, number];

/**
 * The two groups of an IPv4 address; undefined for a text that is none: four numbers up to 255, without zeros before
 * them. By hand, since every address of every event comes here.
 */
function readIpv4(text: string): [number, number] | undefined {
  if (text.length > 15) return undefined;
  let [parts, digits, part, all] = [0, 0, 0, 0];
  for (let index = 0; index <= text.length; index += 1) {
    const code = index === text.length ? dot : text.charCodeAt(index);
    if (code === dot) {
      if (digits === 0 || parts === 4) return undefined;
      all = all * 256 + part;
      parts += 1;
      [digits, part] = [0, 0];
      continue;
    }
    if (code < zero || code > nine || (digits > 0 && part === 0)) return undefined;
    part = part * 10 + (code - zero);
    digits += 1;
    if (part > 255) return undefined;
  }
  return parts === 4 ? [Math.floor(all / 65_536), all % 65_536] : undefined;
}

function readTexts(texts: readonly string[]): number[] {
  return texts.flatMap((text) => readIpv4(text) ?? [Number.parseInt(text, 16)]);
}

/** The eight groups of an IPv6 address that `isIPv6` has found good; its end may be written as an IPv4 address. */
function readGroups(address: string): number[] {
  const [left = [], right = []] = address
    .split('::')
    .map((half) => readTexts(half.split(':').filter((group) => group !== '')));
  return [...left, ...Array.from({ length: 8 - left.length - right.length }, () => 0), ...right];
}

/**
 * The address to look up for what a client gave: an IPv4 address that is mapped into IPv6 becomes the IPv4 one, a zone
 * (`%eth0`) is left out. Undefined for a text that is no address. Cost: bounded by the 45 characters of an address.
 */
export function parseAddress(text: string): Address | undefined {
  const ipv4 = readIpv4(text);
  if (ipv4 !== undefined) return { address: text, version: 4, groups: ipv4 };
  if (!isIPv6(text)) return undefined;
  const address = text.split('%', 1)[0] ?? '';
  const groups = readGroups(address);
  const isMapped = groups[5] === 0xffff && groups.slice(0, 5).every((group) => group === 0);
  if (!isMapped) return { address, version: 6, groups };
  const [high = 0, low = 0] = groups.slice(6);
  return { address: [high >> 8, high & 255, low >> 8, low & 255].join('.'), version: 4, groups: [high, low] };
}

/** Networks that are nobody's on the internet, by IANA's registries of special-purpose addresses. */
const reservedNetworks = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  // The unspecified address, the loopback, and IPv4 addresses in a form that was given up.
  '::/96',
  '100::/64',
  '2001::/23',
  '2001:db8::/32',
  'fc00::/7',
  'fe80::/10',
  'ff00::/8',
];

interface Network {
  readonly groups: readonly number[];
  /** The bits of each group that belong to the network. */
  readonly masks: readonly number[];
}

function toNetwork(text: string): Network {
  const [address = '', length] = text.split('/');
  const groups = readIpv4(address) ?? readGroups(address);
  const masks = groups.map((_, index) => {
    const bits = Math.min(16, Math.max(0, Number(length) - index * 16));
    return (0xffff << (16 - bits)) & 0xffff;
  });
  return { groups, masks };
}

const reserved = { 4: [] as Network[], 6: [] as Network[] };
for (const network of reservedNetworks.map(toNetwork)) reserved[network.groups.length === 2 ? 4 : 6].push(network);

/** The first bytes of IPv4 addresses of which some are reserved: most addresses have none of them. */
const reservedBytes = new Set(
  Array.from({ length: 256 }, (_, byte) => byte).filter((byte) =>
    reserved[4].some(({ groups: [first = 0], masks: [mask = 0] }) => ((byte << 8) & mask) === (first & mask & 0xff00)),
  ),
);

/** Says whether an address is private, or for another special purpose: it is no place on the internet. */
export function isReserved({ version, groups }: Address): boolean {
  if (version === 4 && !reservedBytes.has((groups[0] ?? 0) >> 8)) return false;
  return reserved[version].some((network) =>
    network.masks.every((mask, index) => ((groups[index] ?? 0) & mask) === network.groups[index]),
  );
}
