/**
 * Hashes of a Parquet file's row groups, so that a reader of a few apps verifies only what it reads.
 *
 * Layout: row groups, bloom filters, hashes (JSON), footer. Parquet readers ignore bytes that the footer does not name.
 * The log has the place and the hash of everything after the row groups; this part has the hashes of the row groups.
 * Invariant: the engine skips a row group by the footer's range of `id_app` or `subject`, which is among the verified
 * bytes.
 */
import { createHash } from 'node:crypto';
import { isRecord } from '../../runtime/files/checksummed-json.ts';
import { getSize, hashFile, hashRange, insertBytes, readRange } from '../../runtime/files/file-checks.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';

/** Row groups of a merged file. With half the rows, an app's export reads a third less, and all others take longer. */
export const mergedGroups = { rows: 16_384, hashed: true } as const;

/** The last bytes of a Parquet file: the length of its footer, and `PAR1`. */
const trailerBytes = 8;

/** The apps from the first to the last one. */
export type AppRange = readonly [first: number, last: number];

/** The apps of a row group without statistics, which the engine reads for each of them. */
const anyApp: AppRange = [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER];

/** The rows that a reader reads of a file. */
export interface RowsRead {
  readonly apps: readonly AppRange[];
  /** The value of `subject` in its rows, if the file has that column. */
  readonly subject?: string;
}

interface RowGroupHash {
  /** First byte, and the byte after the last one. */
  readonly bytes: readonly [from: number, to: number];
  /** Smallest and largest `id_app`. */
  readonly apps: AppRange;
  /** The value of `subject` in all its rows; absent if there is none. */
  readonly subject?: string;
  /** SHA-256, hex. */
  readonly sha256: string;
}

async function hashRowGroups(duckdb: Duckdb, file: string): Promise<RowGroupHash[]> {
  const rows = await duckdb.rows(
    `SELECT min(coalesce(dictionary_page_offset, data_page_offset)) AS first,
       max(coalesce(dictionary_page_offset, data_page_offset) + total_compressed_size) AS last,
       coalesce(min(TRY_CAST(stats_min_value AS BIGINT)) FILTER (path_in_schema = 'id_app'), ${anyApp[0]}) AS first_app,
       coalesce(max(TRY_CAST(stats_max_value AS BIGINT)) FILTER (path_in_schema = 'id_app'), ${anyApp[1]}) AS last_app,
       any_value(stats_min_value) FILTER (path_in_schema = 'subject' AND stats_min_value = stats_max_value) AS subject
     FROM parquet_metadata(${sqlText(file)}) GROUP BY row_group_id ORDER BY row_group_id`,
  );
  const groups: RowGroupHash[] = [];
  for (const row of rows) {
    const [from, to] = [Number(row['first']), Number(row['last'])];
    const apps = [Number(row['first_app']), Number(row['last_app'])] as const;
    const subject = row['subject'];
    groups.push({
      bytes: [from, to],
      apps,
      ...(typeof subject === 'string' ? { subject } : {}),
      sha256: await hashRange(file, from, to),
    });
  }
  return groups;
}

/**
 * Adds the hashes of its row groups to a Parquet file that no reader knows yet. Returns their mark for the log:
 * `GROUPS-END,HASHES-START,SHA256`, with places in bytes.
 */
export async function addRowGroupHashes(duckdb: Duckdb, file: string): Promise<string> {
  const groups = await hashRowGroups(duckdb, file);
  const size = await getSize(file);
  const footerBytes = (await readRange(file, size - trailerBytes, size)).readUInt32LE(0) + trailerBytes;
  const hashesAt = size - footerBytes;
  await insertBytes(file, hashesAt, Buffer.from(JSON.stringify(groups)));
  const end = groups.at(-1)?.bytes[1] ?? hashesAt;
  return `${end},${hashesAt},${await hashRange(file, end, await getSize(file))}`;
}

function isRowGroupHash(value: unknown): value is RowGroupHash {
  return isRecord(value) && Array.isArray(value['bytes']) && Array.isArray(value['apps']);
}

/** Parses the part of a file after its row groups; undefined if that is not as `addRowGroupHashes` wrote it. */
function parseHashes(tail: Buffer, at: number): RowGroupHash[] | undefined {
  const footerAt = tail.length - trailerBytes - tail.readUInt32LE(tail.length - trailerBytes);
  const groups: unknown = JSON.parse(tail.toString('utf8', at, footerAt));
  return Array.isArray(groups) && groups.every(isRowGroupHash) ? groups : undefined;
}

/** Undefined if the whole file must be hashed, or if that takes as long. */
async function arePartsIntact(file: string, mark: string, rowsRead: RowsRead): Promise<boolean | undefined> {
  const [end, hashesAt, sha256] = mark.split(',');
  const groupsEnd = Number(end);
  const tail = await readRange(file, groupsEnd, await getSize(file));
  if (createHash('sha256').update(tail).digest('hex') !== sha256) return false;
  const groups = parseHashes(tail, Number(hashesAt) - groupsEnd);
  const isRead = ({ apps: [first, last], subject = rowsRead.subject }: RowGroupHash): boolean =>
    subject === (rowsRead.subject ?? subject) && rowsRead.apps.some(([from, to]) => from <= last && to >= first);
  const needed = groups?.filter(isRead);
  if (groups === undefined || needed === undefined || needed.length === groups.length) return undefined;
  for (const { bytes, sha256: expected } of needed) if ((await hashRange(file, ...bytes)) !== expected) return false;
  return true;
}

/**
 * Reports whether a local file has its hash. With `rowsRead`, only what is read of it. `groups`:
 * the mark of `addRowGroupHashes`, if it has one.
 */
export async function isLocalIntact(
  file: string,
  { sha256, groups }: { readonly sha256: string | undefined; readonly groups?: string | undefined },
  rowsRead?: RowsRead,
): Promise<boolean> {
  const parts =
    groups === undefined || rowsRead === undefined ? undefined : await arePartsIntact(file, groups, rowsRead);
  return parts ?? (await hashFile(file)) === sha256;
}
