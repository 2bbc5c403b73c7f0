import { BlockList, isIP, SocketAddress } from 'node:net';
import { Reader, type Response } from 'mmdb-lib';
import { AppError, describeError } from '../runtime/errors.ts';
import { findStamp } from '../runtime/files/file-checks.ts';
import { getBytes } from '../runtime/files/input-file.ts';

interface Address {
  readonly address: string;
  readonly version: 4 | 6;
}

/** Parses an address. IPv4 mapped into IPv6 becomes IPv4; a zone (`%eth0`) is removed. Undefined for other texts. */
export function parseAddress(text: string): Address | undefined {
  const version = isIP(text);
  if (version === 0) return undefined;
  if (version === 4) return { address: text, version };
  const address = text.split('%', 1)[0] ?? '';
  const [, mapped] = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(new SocketAddress({ address, family: 'ipv6' }).address) ?? [];
  return mapped === undefined ? { address, version: 6 } : { address: mapped, version: 4 };
}

/** Special-purpose networks of IANA's registries. */
const reservedNetworks = [
  '0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24',
  '192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4',
  // The first: the unspecified address, loopback, and a deprecated form of IPv4.
  '::/96 100::/64 2001::/23 2001:db8::/32 fc00::/7 fe80::/10 ff00::/8',
];

const reserved = new BlockList();
for (const network of reservedNetworks.flatMap((line) => line.split(' '))) {
  const [address = '', length] = network.split('/');
  reserved.addSubnet(address, Number(length), isIP(address) === 4 ? 'ipv4' : 'ipv6');
}

/** First bytes of reserved IPv4 addresses. The list takes 8 us, and most addresses do not need it. */
const mayBeReserved = /^(?:0|10|100|127|169|172|192|198|203|2[2-5]\d)\./;

export function isReserved({ address, version }: Address): boolean {
  return (version === 6 || mayBeReserved.test(address)) && reserved.check(address, `ipv${version}`);
}

const maxRecords = 10_000;

const hint = 'Replace the MMDB file that TRIBUTARY_GEO_DB names, or reinstall the package if it is unset.';

/** The reader does not check that the file contains the search tree. */
function checkMetadata({ metadata }: Reader<Response>, size: number): void {
  const { ipVersion, searchTreeSize, nodeCount } = metadata;
  if (ipVersion !== 4 && ipVersion !== 6) throw new Error(`its IP version is ${String(ipVersion)}`);
  if (!(nodeCount > 0) || !(searchTreeSize < size)) throw new Error('it is shorter than its search tree');
}

/** Reads an MMDB database into memory. Errors: `geo_database_damaged`; internal damage shows in lookups. */
async function openGeoDatabase(file: string) {
  const wrap = (cause: unknown): AppError =>
    new AppError('geo_database_damaged', `cannot read the geo database ${file}`, { cause, hint });
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
      /** Returns the record of an address; cached ones are the same object. Error: `geo_database_damaged`. */
      find({ address, version }: Address): unknown {
        // A database of IPv4 has no IPv6 addresses.
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

function readStamp(file: string): string | undefined {
  try {
    return findStamp(file);
  } catch {
    // Reading it reports the error.
    return undefined;
  }
}

/** Reads the database of a file. An unreadable one leaves the previous one in use until the file changes. */
export async function openWatchedDatabase(file: string) {
  let stamp: string | undefined;
  let database: Awaited<ReturnType<typeof openGeoDatabase>> | undefined;
  let openError: string | undefined;

  async function read(): Promise<boolean> {
    // First: a change during the read is seen by the next check.
    stamp = readStamp(file);
    try {
      database = await openGeoDatabase(file);
      openError = undefined;
      return true;
    } catch (error) {
      openError = describeError(error);
      return false;
    }
  }

  await read();
  return {
    current: () => database,
    fault: () => openError,
    /** Reads a changed file; returns whether it replaced the database. */
    refresh: async (): Promise<boolean> => readStamp(file) !== stamp && (await read()),
  };
}
