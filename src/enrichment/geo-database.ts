import { Reader, type Response } from 'mmdb-lib';
import { AppError } from '../runtime/errors.ts';
import { getBytes } from '../runtime/files/text-file.ts';
import type { Address } from './address.ts';
import { createGeoTree } from './geo-tree.ts';

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
