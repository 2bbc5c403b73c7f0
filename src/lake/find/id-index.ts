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
 * The index of the ids that do not say when their events were received: those of events under an Idempotency-Key, and of
 * events with a key of their own.
 *
 * It consists of parts, Parquet files of (key, file, span) sorted by key. A key is 48 bits of a hash of the app and of
 * the part of the id that its request's events share; the app is in it so that a question about another app's event is
 * led to no file. A span is the time of receipt in units of 65 s, by which the row is found in the data file through the
 * statistics of its row groups. One row a request and file takes 6 bytes, and a look-up in a part of 5 million 2 to 4 ms
 * (a format with pages of pairs took 12 bytes).
 *
 * A part covers one data file or several. Its name is the hash of its bytes, and its metadata names the data files by
 * the hashes of theirs: so a damaged part is known before it answers, and a part is right wherever the lake is moved,
 * copied or restored to. It is a cache: what is gone, damaged or of an older version is made again from the lake, and
 * until then its data files count as not indexed. Several processes may work on one folder.
 */
export interface IdIndex {
  /** Looks keys up in the index of some files. */
  find(duckdb: Duckdb, files: readonly DataFile[], keys: readonly number[]): Promise<IndexAnswer>;
  /** Makes the index of a file. Errors: of the engine, also when the file is damaged or gone. */
  add(duckdb: Duckdb, file: DataFile): Promise<void>;
  /**
   * Removes parts that cover none of these files, and what a killed process has left. Returns the files that are not
   * indexed.
   */
  keepOnly(duckdb: Duckdb, live: readonly DataFile[]): Promise<DataFile[]>;
  /**
   * Lists the merges that are due: parts that cover a file that is gone, whose rows go with the merge, and small parts
   * where there are many.
   */
  planMerges(live: readonly DataFile[]): Merge[];
  /** Writes some parts again as one, without the rows of files that are gone. */
  merge(duckdb: Duckdb, merge: Merge): Promise<void>;
}

/** Parts that become one, and the data files that it covers, by their short names. */
interface Merge {
  readonly parts: readonly Part[];
  readonly covers: ReadonlySet<string>;
}

interface Part {
  /** Name in the folder. */
  readonly name: string;
  readonly bytes: number;
  /** Short names of the data files whose ids it has. */
  readonly covers: ReadonlySet<string>;
}

/** A file that may have what is looked for, and when that was received, Unix milliseconds, both ends included. */
export interface Candidate {
  readonly file: DataFile;
  readonly fromMs: number;
  readonly toMs: number;
}

interface IndexAnswer {
  readonly candidates: readonly Candidate[];
  /** The files that have no index yet. */
  readonly missing: readonly DataFile[];
}

const partEnd = '.ids.parquet';
const temporaryEnd = '.tmp';
/** One that was begun longer ago, milliseconds, is what a killed process has left. */
const leftAfterMs = 3_600_000;
/** So many parts of about one size become one. */
const partsOfMerge = 16;
/** A larger part stays as it is: 5 million requests. */
const mostMergedBytes = 32 * 1024 * 1024;
const spanMs = 65_536;

const digitsOfKey = 12;
/** What an id has in common with those of its request's other events; of an event with a key of its own nearly all. */
const sharedLength = requestKeyOf('x'.repeat(36)).length;

/** What an app's event is found by: of its id, or of what the ids of its request begin with. */
export function indexKeyOf(idApp: number, idStart: string): number {
  const shared = idStart.slice(0, sharedLength);
  const hash = createHash('sha256').update(`${idApp}\n${shared}`).digest('hex');
  return Number.parseInt(hash.slice(0, digitsOfKey), 16);
}

const keySql = `('0x' || substr(sha256(id_app::VARCHAR || chr(10) || substr(event_id, 1, ${sharedLength})), 1, ${digitsOfKey}))::BIGINT`;

/** The short name of a data file. One of another engine has no hash in the log, and is never written again under its name. */
function nameOf({ sha256, path: name, sizeBytes }: DataFile): string {
  return (sha256 ?? createHash('sha256').update(`${name}\n${sizeBytes}`).digest('hex')).slice(0, 32);
}

/** Parts of sizes that differ by less than 16 times are merged with each other, so that a row is seldom written again. */
const sizeClassOf = ({ bytes }: Part): number => Math.floor(Math.log2(1 + bytes / 4096) / 4);

/** The parts of a folder that are there and whole, as far as this process has looked. */
interface Parts {
  list(): Part[];
  /** The short names of the data files that they cover. */
  covered(): ReadonlySet<string>;
  readonly fileOf: (part: Pick<Part, 'name'>) => string;
  /** Takes in what is in the folder now; returns the names of its files. */
  follow(duckdb: Duckdb): Promise<ReadonlySet<string>>;
  /** Reads all parts again: one has gone or was damaged since it was read. */
  readAgain(duckdb: Duckdb): Promise<void>;
  /** Writes the rows of a query as a part. */
  write(duckdb: Duckdb, select: string, covers: ReadonlySet<string>): Promise<Part>;
  remove(part: Part): Promise<void>;
}

function openParts(folder: string): Parts {
  const parts = new Map<string, Part>();
  const fileOf = ({ name }: Pick<Part, 'name'>): string => path.join(folder, name);

  /** Reads what a part covers; undefined, and it is removed, where it is not what was written. */
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
        // Hashes do not compress; the second version of Parquet packs numbers that are in order.
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

/** Looks keys up by the parts that are known now: what is added meanwhile counts as missing. */
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

/** Lists the merges that are due of some parts: see `IdIndex`. */
function planMerges(parts: readonly Part[], live: readonly DataFile[]): Merge[] {
  const young = new Set(live.filter((file) => file.young).map(nameOf));
  const wanted = new Set(live.map(nameOf));
  const groups = new Map<string, Part[]>();
  const planned: Part[][] = [];
  for (const part of parts) {
    // Young files go together, when they are sealed: not with a part of files that stay.
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

/** Opens the index in a folder, which is made with the first part. */
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
      // The largest first: what two parts have is taken from one.
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
