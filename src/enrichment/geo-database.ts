import { BlockList, isIP, SocketAddress } from 'node:net';
import { Reader, type Response } from 'mmdb-lib';
import { AppError, describeError } from '../runtime/errors.ts';
import { findStamp } from '../runtime/files/file-checks.ts';
import { getBytes } from '../runtime/files/input-file.ts';

/** An address to look up. */
interface Address {
  readonly address: string;
  readonly version: 4 | 6;
}

/**
 * Parses what a client gave as its address: an IPv4 address that is mapped into IPv6 becomes the IPv4 one, a zone
 * (`%eth0`) is left out. Undefined for a text that is no address. Cost: bounded by the 45 characters of an address.
 */
export function parseAddress(text: string): Address | undefined {
  const version = isIP(text);
  if (version === 0) return undefined;
  if (version === 4) return { address: text, version };
  const address = text.split('%', 1)[0] ?? '';
  const [, mapped] = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(new SocketAddress({ address, family: 'ipv6' }).address) ?? [];
  return mapped === undefined ? { address, version: 6 } : { address: mapped, version: 4 };
}

/** Networks that are nobody's on the internet, by IANA's registries of special-purpose addresses. */
const reservedNetworks = [
  '0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24',
  '192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4',
  // The first: the unspecified address, the loopback, and IPv4 addresses in a form that was given up.
  '::/96 100::/64 2001::/23 2001:db8::/32 fc00::/7 fe80::/10 ff00::/8',
];

const reserved = new BlockList();
for (const network of reservedNetworks.flatMap((line) => line.split(' '))) {
  const [address = '', length] = network.split('/');
  reserved.addSubnet(address, Number(length), isIP(address) === 4 ? 'ipv4' : 'ipv6');
}

/** The first bytes of IPv4 addresses of which some are reserved. The list takes 8 us, and most addresses have none. */
const mayBeReserved = /^(?:0|10|100|127|169|172|192|198|203|2[2-5]\d)\./;

/** Says whether an address is private, or for another special purpose: it is no place on the internet. */
export function isReserved({ address, version }: Address): boolean {
  return (version === 6 || mayBeReserved.test(address)) && reserved.check(address, `ipv${version}`);
}

/** A database of addresses, whole in memory: some megabytes of the package's own, as many as its file has of others. */
interface GeoDatabase {
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

const hint = 'Put a good MMDB file in its place: TRIBUTARY_GEO_DB names it, or the package of the program has it.';

/** What the reader does not compare: whether the tree that the metadata speak of is in the file. */
function checkMetadata({ metadata }: Reader<Response>, size: number): void {
  const { ipVersion, searchTreeSize, nodeCount } = metadata;
  if (ipVersion !== 4 && ipVersion !== 6) throw new Error(`its IP version is ${String(ipVersion)}`);
  if (!(nodeCount > 0) || !(searchTreeSize < size)) throw new Error('it is shorter than its search tree');
}

/**
 * Reads a database in MaxMind's MMDB format, and lets go of the file. Errors: `geo_database_damaged` when it cannot be
 * read, or is no such database; damage inside it shows when an address is looked up.
 */
async function openGeoDatabase(file: string): Promise<GeoDatabase> {
  const wrap = (cause: unknown): AppError =>
    new AppError('geo_database_damaged', `the geo database ${file} cannot be read`, { cause, hint });
  try {
    const bytes = await getBytes(file);
    const records = new Map<string | number, unknown>();
    const remember = (key: string | number, record: unknown): void => {
      if (records.size >= maxRecords) records.clear();
      records.set(key, record);
    };
    const reader = new Reader<Response>(bytes, { cache: { get: (key) => records.get(key), set: remember } });
    checkMetadata(reader, bytes.length);
    return {
      date: reader.metadata.buildEpoch.toISOString().slice(0, 10),
      find({ address, version }) {
        // The tree of a database of IPv4 alone has nothing to say of the other version.
        if (version > reader.metadata.ipVersion) return undefined;
        try {
          return reader.get(address) ?? undefined;
        } catch (error) {
          throw wrap(error);
        }
      },
    };
  } catch (error) {
    throw wrap(error);
  }
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
export async function openWatchedDatabase(file: string) {
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
    /** What was read last; undefined while nothing could be. */
    current: () => database,
    /** Why the newest reading failed; undefined when it did not. */
    fault: () => fault,
    /** Reads the file again when it has changed; returns whether another database is in use now. */
    refresh: async (): Promise<boolean> => look(file) !== stamp && (await read()),
  };
}
