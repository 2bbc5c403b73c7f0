import { isIPv6 } from 'node:net';
import { Reader, type Response } from 'mmdb-lib';
import { AppError, describeError } from '../runtime/errors.ts';
import { getBytes } from '../runtime/files/text-file.ts';
import { createGeoTree } from './geo-tree.ts';
import { findStamp } from '../runtime/files/file-stamp.ts';

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

/** A database of addresses, whole in memory: some megabytes of the package's own, as many as its file has of others. */
export interface GeoDatabase {
  /** When it was made, ISO 8601 (YYYY-MM-DD), by its own metadata. */
  readonly date: string;
  /**
   * What it has of an address: the same object for addresses of the same record, as long as it is remembered. Undefined
   * for an address that it does not have. Error: `geo_database_damaged`.
   */
  find(address: Address): unknown;
}

/** Records that are remembered, decoded: more than the package's own database has. */
const maxRecords = 10_000;

interface RecordMemory {
  get(key: string | number): unknown;
  set(key: string | number, value: unknown): void;
}

function createRecordMemory(): RecordMemory {
  const known = new Map<string | number, unknown>();
  return {
    get: (key) => known.get(key),
    set(key, value) {
      if (known.size >= maxRecords) known.clear();
      known.set(key, value);
    },
  };
}

const hint = 'Put a good MMDB file in its place: TRIBUTARY_GEO_DB names it, or the package of the program has it.';

/** What the reader does not compare: whether the tree that the metadata speak of is in the file. */
function checkMetadata(
  { metadata }: Reader<Response>,
  size: number,
): { readonly date: string; readonly ipVersion: 4 | 6 } {
  const { ipVersion, searchTreeSize, buildEpoch, nodeCount } = metadata;
  if (ipVersion !== 4 && ipVersion !== 6) throw new Error(`its IP version is ${String(ipVersion)}`);
  if (!(nodeCount > 0) || !(searchTreeSize < size)) throw new Error('it is shorter than its search tree');
  return { date: buildEpoch.toISOString().slice(0, 10), ipVersion };
}

/**
 * Reads a database in MaxMind's MMDB format, and lets go of the file. Errors: `geo_database_damaged` when it cannot be
 * read, or is no such database; damage inside it shows when an address is looked up.
 */
export async function openGeoDatabase(file: string): Promise<GeoDatabase> {
  const wrap = (error: unknown): AppError =>
    new AppError('geo_database_damaged', `the geo database ${file} cannot be read`, { cause: error, hint });
  try {
    const bytes = await getBytes(file);
    const reader = new Reader<Response>(bytes, { cache: createRecordMemory() });
    const { date, ipVersion } = checkMetadata(reader, bytes.length);
    const tree = createGeoTree(bytes, { ...reader.metadata, ipVersion });
    const records = createRecordMemory();
    return {
      date,
      find({ address, version, groups }) {
        // The tree of a database of IPv4 alone has nothing to say of the other version.
        if (version > ipVersion) return undefined;
        const place = tree.find(groups);
        if (place === undefined) return undefined;
        const known = records.get(place);
        if (known !== undefined) return known;
        try {
          const record = reader.get(address) ?? undefined;
          records.set(place, record);
          return record;
        } catch (error) {
          throw wrap(error);
        }
      },
    };
  } catch (error) {
    throw wrap(error);
  }
}

/** The geo database of a file that others may replace. */
export interface WatchedDatabase {
  /** What was read last; undefined while nothing could be. */
  current(): GeoDatabase | undefined;
  /** Why the newest reading failed; undefined when it did not. */
  fault(): string | undefined;
  /** Reads the file again when it has changed; returns whether another database is in use now. */
  refresh(): Promise<boolean>;
}

function look(file: string): string | undefined {
  try {
    return findStamp(file);
  } catch {
    // The reading says what is wrong.
    return undefined;
  }
}

/**
 * Reads the database of a file. Never fails: one that cannot be read leaves the one before in use, if there was one,
 * and is read again once its file has changed.
 */
export async function openWatchedDatabase(file: string): Promise<WatchedDatabase> {
  let stamp: string | undefined;
  let database: GeoDatabase | undefined;
  let fault: string | undefined;

  async function read(): Promise<boolean> {
    // Before the file is read: what is written meanwhile is read at the next look.
    stamp = look(file);
    try {
      database = await openGeoDatabase(file);
      fault = undefined;
      return true;
    } catch (error) {
      fault = describeError(error);
      return false;
    }
  }

  await read();
  return {
    current: () => database,
    fault: () => fault,
    refresh: async () => look(file) !== stamp && (await read()),
  };
}
