import { createHash, randomUUID } from 'node:crypto';
import path from 'node:path';
import { isHashedSql, requestKeyOf } from '../../datasets/event-id.ts';
import { isAppError } from '../../runtime/errors.ts';
import { ensureFolder, moveFile, removeFile } from '../../runtime/files/durable-file.ts';
import { findSize, hashFile } from '../../runtime/files/file-checks.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';

/**
 * The index of ids that do not contain their time of receipt: those under an Idempotency-Key or of a natural key.
 *
 * Its parts are Parquet files of (key, file, span), sorted by key. A key is 48 bits of a hash of the app and of the
 * start of the id that its request's events share; including the app keeps lookups of another app's events from any
 * file. A span is the time of receipt in units of 65 s, which finds the row in the data file by row group statistics. A
 * row per request and file takes 6 bytes; a lookup in a part of 5 million takes 2 to 4 ms.
 *
 * A part covers data files, and is named after the hash of its bytes; its metadata has the hashes of its data files. So
 * damage is detected, and parts remain valid if the lake is moved, copied or restored. It is a cache: missing, damaged
 * or older parts are made again, and until then their files count as missing. Several processes may share a folder.
 */
export interface IdIndex {
  /** Looks keys up in the index of files. */
  find(duckdb: Duckdb, files: readonly DataFile[], keys: readonly number[]): Promise<IndexAnswer>;
  /** Indexes a file. Errors: the engine's, also if the file is damaged or missing. */
  add(duckdb: Duckdb, file: DataFile): Promise<void>;
  /**
   * Removes parts that cover none of the files, and leftovers of killed processes. Returns the files without an index.
   */
  keepOnly(duckdb: Duckdb, live: readonly DataFile[]): Promise<DataFile[]>;
  /** Lists due merges: of parts that cover a removed file, and of many small parts. */
  planMerges(live: readonly DataFile[]): Merge[];
  /** Merges parts into one, without the rows of removed files. */
  merge(duckdb: Duckdb, merge: Merge): Promise<void>;
}

/** Parts to merge, and the short names of the data files that the result covers. */
interface Merge {
  readonly parts: readonly Part[];
  readonly covers: ReadonlySet<string>;
}

interface Part {
  readonly name: string;
  readonly bytes: number;
  /** Short names of its data files. */
  readonly covers: ReadonlySet<string>;
}

/** A file that may have the event, and its time of receipt, Unix ms, inclusive. */
export interface Candidate {
  readonly file: DataFile;
  readonly fromMs: number;
  readonly toMs: number;
}

interface IndexAnswer {
  readonly candidates: readonly Candidate[];
  /** Files without an index. */
  readonly missing: readonly DataFile[];
}

const partEnd = '.ids.parquet';
const temporaryEnd = '.tmp';
/** Age at which a temporary file is a leftover, ms. */
const leftAfterMs = 3_600_000;
/** Number of parts of a similar size that are merged. */
const partsOfMerge = 16;
/** Larger parts (5 million requests) are not merged, bytes. */
const mostMergedBytes = 32 * 1024 * 1024;
const spanMs = 65_536;

const digitsOfKey = 12;
/** Length of the start of an id that its request's events share. */
const sharedLength = requestKeyOf('x'.repeat(36)).length;

/** Returns the key of an app's event by its id or the start of its request's ids. */
export function indexKeyOf(idApp: number, idStart: string): number {
  const shared = idStart.slice(0, sharedLength);
  const hash = createHash('sha256').update(`${idApp}\n${shared}`).digest('hex');
  return Number.parseInt(hash.slice(0, digitsOfKey), 16);
}

const keySql = `('0x' || substr(sha256(id_app::VARCHAR || chr(10) || substr(event_id, 1, ${sharedLength})), 1, ${digitsOfKey}))::BIGINT`;

/** Short name of a data file. Files of other engines have no hash in the log, and never change. */
function nameOf({ sha256, path: name, sizeBytes }: DataFile): string {
  return (sha256 ?? createHash('sha256').update(`${name}\n${sizeBytes}`).digest('hex')).slice(0, 32);
}

/** Sizes that differ by less than 16 times are merged, so that a row is rarely rewritten. */
const sizeClassOf = ({ bytes }: Part): number => Math.floor(Math.log2(1 + bytes / 4096) / 4);

/** The intact parts of a folder. */
interface Parts {
  list(): Part[];
  covered(): ReadonlySet<string>;
  readonly fileOf: (part: Pick<Part, 'name'>) => string;
  /** Reads new parts; returns the names of the folder's files. */
  follow(duckdb: Duckdb): Promise<ReadonlySet<string>>;
  /** Reads all parts again, after one was removed or damaged. */
  readAgain(duckdb: Duckdb): Promise<void>;
  /** Writes the rows of a query as a part. */
  write(duckdb: Duckdb, select: string, covers: ReadonlySet<string>): Promise<Part>;
  remove(part: Part): Promise<void>;
}

function openParts(folder: string): Parts {
  const parts = new Map<string, Part>();
  const fileOf = ({ name }: Pick<Part, 'name'>): string => path.join(folder, name);

  /** Undefined: the part was not intact, and is removed. */
  async function readPart(duckdb: Duckdb, name: string): Promise<Part | undefined> {
    const file = fileOf({ name });
    const bytes = await findSize(file);
    if (bytes === undefined) return undefined;
    if (`${await hashFile(file).catch(() => '')}${partEnd}` === name) {
      const [row] = await duckdb.rows(
        `SELECT decode(value) AS covers FROM parquet_kv_metadata(${sqlText(file)}) WHERE decode(key) = 'covers'`,
      );
      return { name, bytes, covers: new Set(String(row?.['covers']).split(' ')) };
    }
    await removeFile(file);
    return undefined;
  }

  async function follow(duckdb: Duckdb): Promise<ReadonlySet<string>> {
    const names = new Set(await findNames(folder));
    for (const name of parts.keys()) if (!names.has(name)) parts.delete(name);
    for (const name of names) {
      if (!name.endsWith(partEnd) || parts.has(name)) continue;
      const part = await readPart(duckdb, name);
      if (part !== undefined) parts.set(name, part);
    }
    return names;
  }

  return {
    list: () => [...parts.values()],
    covered: () => new Set([...parts.values()].flatMap(({ covers }) => [...covers])),
    fileOf,
    follow,
    async readAgain(duckdb) {
      parts.clear();
      await follow(duckdb);
    },
    async write(duckdb, select, covers) {
      await ensureFolder(folder);
      const temporary = path.join(folder, `${Date.now()}.${randomUUID()}${temporaryEnd}`);
      try {
        // Hashes do not compress; version 2 of Parquet packs ordered numbers.
        await duckdb.run(
          `COPY (${select} ORDER BY key) TO ${sqlText(temporary)} (FORMAT parquet, PARQUET_VERSION v2, COMPRESSION uncompressed, KV_METADATA {covers: ${sqlText([...covers].join(' '))}})`,
        );
        const name = `${await hashFile(temporary)}${partEnd}`;
        const part = { name, bytes: (await findSize(temporary)) ?? 0, covers };
        await moveFile(temporary, fileOf(part));
        parts.set(name, part);
        return part;
      } finally {
        await removeFile(temporary);
      }
    },
    async remove(part) {
      parts.delete(part.name);
      await removeFile(fileOf(part));
    },
  };
}

/** Looks keys up in the current parts: files that are added meanwhile count as missing. */
async function lookUp(
  duckdb: Duckdb,
  parts: Parts,
  wanted: ReadonlyMap<string, DataFile>,
  keys: readonly number[],
): Promise<IndexAnswer> {
  const some = parts.list().filter(({ covers }) => [...covers].some((name) => wanted.has(name)));
  const covered = new Set(some.flatMap(({ covers }) => [...covers]));
  const missing = [...wanted].flatMap(([name, file]) => (covered.has(name) ? [] : [file]));
  if (some.length === 0 || keys.length === 0) return { candidates: [], missing };
  const rows = await duckdb.rows(
    `SELECT file, min(span) AS first, max(span) AS last FROM read_parquet(${sqlList(some.map(parts.fileOf))}, hive_partitioning = false)
     WHERE key IN (${keys.join(', ')}) GROUP BY file`,
  );
  const candidates = rows.flatMap(({ file: name, first, last }) => {
    const file = wanted.get(String(name));
    if (file === undefined) return [];
    return [{ file, fromMs: Number(first) * spanMs, toMs: (Number(last) + 1) * spanMs - 1 }];
  });
  return { candidates, missing };
}

function planMerges(parts: readonly Part[], live: readonly DataFile[]): Merge[] {
  const young = new Set(live.filter((file) => file.young).map(nameOf));
  const wanted = new Set(live.map(nameOf));
  const groups = new Map<string, Part[]>();
  const planned: Part[][] = [];
  for (const part of parts) {
    // Young files are removed together when they are sealed: they do not share parts with others.
    const isYoung = [...part.covers].some((name) => young.has(name));
    const group = `${isYoung} ${sizeClassOf(part)}`;
    if ([...part.covers].some((name) => !wanted.has(name))) planned.push([part]);
    else if (part.bytes <= mostMergedBytes) groups.set(group, [...(groups.get(group) ?? []), part]);
  }
  planned.push(...[...groups.values()].filter((some) => some.length >= partsOfMerge));
  return planned
    .map((some) => ({
      parts: some,
      covers: new Set(some.flatMap(({ covers }) => [...covers].filter((name) => wanted.has(name)))),
    }))
    .filter(({ covers }) => covers.size > 0);
}

/** Opens the index in a folder, which is created with the first part. */
export function openIdIndex(folder: string): IdIndex {
  const parts = openParts(folder);

  async function removeOthers(names: ReadonlySet<string>): Promise<void> {
    for (const name of names) {
      if (name.endsWith(partEnd)) continue;
      const begunMs = name.endsWith(temporaryEnd) ? Number(name.split('.')[0]) : Number.NaN;
      const isBeingWritten = Date.now() - begunMs < leftAfterMs;
      if (!isBeingWritten) await removeFile(path.join(folder, name));
    }
  }

  return {
    async find(duckdb, files, keys) {
      const wanted = new Map(files.map((file) => [nameOf(file), file]));
      const before = parts.covered();
      if ([...wanted.keys()].some((name) => !before.has(name))) await parts.follow(duckdb);
      return lookUp(duckdb, parts, wanted, keys).catch(async (error: unknown) => {
        if (!isAppError(error, 'sql')) throw error;
        await parts.readAgain(duckdb);
        return lookUp(duckdb, parts, wanted, keys);
      });
    },
    async add(duckdb, file) {
      const name = nameOf(file);
      const source = `read_parquet(${sqlText(file.absolutePath)}, hive_partitioning = false)`;
      await parts.write(
        duckdb,
        `SELECT DISTINCT ${keySql} AS key, ${sqlText(name)} AS file, epoch_ms(received_at) // ${spanMs} AS span FROM ${source}
         WHERE ${isHashedSql('event_id')} AND id_app IS NOT NULL AND received_at IS NOT NULL`,
        new Set([name]),
      );
    },
    async keepOnly(duckdb, live) {
      const names = await parts.follow(duckdb);
      const wanted = new Map(live.map((file) => [nameOf(file), file]));
      const owned = new Set<string>();
      // Largest first: files of two parts stay with one.
      for (const part of parts.list().toSorted((a, b) => b.bytes - a.bytes)) {
        const own = [...part.covers].filter((name) => wanted.has(name) && !owned.has(name));
        for (const name of own) owned.add(name);
        if (own.length === 0) await parts.remove(part);
      }
      await removeOthers(names);
      return [...wanted].flatMap(([name, file]) => (owned.has(name) ? [] : [file]));
    },
    planMerges: (live) => planMerges(parts.list(), live),
    async merge(duckdb, { parts: some, covers }) {
      const source = `read_parquet(${sqlList(some.map(parts.fileOf))}, hive_partitioning = false)`;
      const written = await parts.write(
        duckdb,
        `SELECT key, file, span FROM ${source} WHERE file IN (SELECT unnest(${sqlList([...covers])}))`,
        covers,
      );
      for (const part of some) if (part.name !== written.name) await parts.remove(part);
    },
  };
}
