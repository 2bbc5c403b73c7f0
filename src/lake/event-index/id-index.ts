import { localFiles } from '../../runtime/store/open-store.ts';
import { createHash } from 'node:crypto';
import path from 'node:path';
import { isHashedSql, requestKeyOf } from '../../datasets/event-id.ts';
import { hashFile } from '../../runtime/files/file-checks.ts';
import { openDerivedFileFolder, type DerivedFile, type DerivedFileFolder } from '../files/derived-files.ts';
import type { DataFile } from '../log/snapshot.ts';
import { isFileError, type Statements } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';

/** Parts to merge, and the short names of the data files that the result covers. */
interface Merge {
  readonly parts: readonly DerivedFile[];
  readonly covers: ReadonlySet<string>;
}

/** A file that may have the event, and its time of receipt, Unix ms, inclusive. */
export interface CandidateFile {
  readonly file: DataFile;
  readonly fromMs: number;
  readonly toMs: number;
}

export interface IndexResult {
  readonly candidates: readonly CandidateFile[];
  /** Files without an index: they may have the event too. */
  readonly unindexed: readonly DataFile[];
}

const partEnd = '.ids.parquet';
/** Age of leftover temporaries, ms. */
const leftAfterMs = 3_600_000;
const partsOfMerge = 16;
/** Limit of parts that are merged (5 million requests), bytes. */
const maxMergedBytes = 32 * 1024 * 1024;
const spanMs = 65_536;
/** Time after which a lookup reads a part again, since damage could hide events, ms. */
const trustedMs = 600_000;
/** Attempts of a lookup while other processes merge parts; then the index counts as missing. */
const maxTries = 4;

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

/** Short name of a data file. Those of other engines have no hash in the log, and never change. */
function nameOf({ sha256, path: name, sizeBytes }: DataFile): string {
  return (sha256 ?? createHash('sha256').update(`${name}\n${sizeBytes}`).digest('hex')).slice(0, 32);
}

/** Parts with sizes within a factor of 16 are merged, so that a row is rarely rewritten. */
const sizeClassOf = ({ bytes }: DerivedFile): number => Math.floor(Math.log2(1 + bytes / 4096) / 4);

/** Reads the short names of a part's data files; undefined if it is damaged, or another process has removed it. */
async function readCovers(duckdb: Statements, file: string): Promise<ReadonlySet<string> | undefined> {
  if (`${await hashFile(file).catch(() => '')}${partEnd}` !== path.basename(file)) return undefined;
  try {
    const [row] = await duckdb.rows(
      `SELECT decode(value) AS covers FROM parquet_kv_metadata(${sqlText(file)}) WHERE decode(key) = 'covers'`,
    );
    return new Set(String(row?.['covers']).split(' '));
  } catch (error) {
    if (!(await isFileError(duckdb, error))) throw error;
    return undefined;
  }
}

/** Data files by the part that has their rows. */
interface Owners {
  readonly owned: ReadonlyMap<DerivedFile, readonly DataFile[]>;
  /** The files without a part. */
  readonly unindexed: readonly DataFile[];
}

/** Creates the search of the current part of each file. It remembers them: a lake may have a million files. */
function createOwners(parts: DerivedFileFolder): (files: readonly DataFile[]) => Owners {
  const known = new WeakMap<DataFile, DerivedFile>();
  return (files) => {
    // Largest first: most files are there, and files of two parts stay with one.
    const all = parts.list().toSorted((a, b) => b.bytes - a.bytes);
    const owned = new Map(all.map((derivedFile): [DerivedFile, DataFile[]] => [derivedFile, []]));
    const unindexed: DataFile[] = [];
    for (const file of files) {
      const before = known.get(file);
      let own = before === undefined ? undefined : owned.get(before);
      if (own === undefined) {
        const name = nameOf(file);
        const derivedFile = all.find(({ covers }) => covers.has(name));
        if (derivedFile !== undefined) known.set(file, derivedFile);
        own = derivedFile === undefined ? unindexed : owned.get(derivedFile);
      }
      own?.push(file);
    }
    return { owned, unindexed };
  };
}

/** Looks up keys in the parts of some files. Files that are added meanwhile count as missing. */
async function lookUp(
  duckdb: Statements,
  { owned, unindexed }: Owners,
  files: readonly DataFile[],
  keys: readonly number[],
): Promise<IndexResult> {
  const parts = [...owned].flatMap(([{ file }, own]) => (own.length > 0 ? [file] : []));
  if (parts.length === 0 || keys.length === 0) return { candidates: [], unindexed };
  const rows = await duckdb.rows(
    `SELECT file, min(span) AS first, max(span) AS last FROM read_parquet(${sqlList(parts)}, hive_partitioning = false)
     WHERE key IN (${keys.join(', ')}) GROUP BY file`,
  );
  if (rows.length === 0) return { candidates: [], unindexed };
  const found = new Map(rows.map(({ file, first, last }) => [String(file), [Number(first), Number(last)] as const]));
  const candidates = files.flatMap((file) => {
    const [first, last] = found.get(nameOf(file)) ?? [];
    if (first === undefined || last === undefined) return [];
    return [{ file, fromMs: first * spanMs, toMs: (last + 1) * spanMs - 1 }];
  });
  return { candidates, unindexed };
}

function planMerges({ owned }: Owners): Merge[] {
  const groups = new Map<string, DerivedFile[]>();
  const planned: DerivedFile[][] = [];
  for (const [derivedFile, own] of owned) {
    // Sealing removes young files together, so they share no parts with others.
    const group = `${own.some(({ young }) => young)} ${sizeClassOf(derivedFile)}`;
    if (own.length < derivedFile.covers.size) planned.push([derivedFile]);
    else if (derivedFile.bytes <= maxMergedBytes) groups.set(group, [...(groups.get(group) ?? []), derivedFile]);
  }
  planned.push(...[...groups.values()].filter((some) => some.length >= partsOfMerge));
  return planned
    .map((some) => ({
      parts: some,
      covers: new Set(some.flatMap((derivedFile) => (owned.get(derivedFile) ?? []).map(nameOf))),
    }))
    .filter(({ covers }) => covers.size > 0);
}

/**
 * Opens the index of ids that do not contain their time of receipt: those under an Idempotency-Key or a natural key.
 *
 * Its parts are Parquet files of (key, file, span), sorted by key. A key is 48 bits of a hash of app and request's id
 * start; the app keeps lookups of others' events from any file. A span is the time of receipt in units of 65 s, which
 * finds the row by row group statistics. A row takes 6 bytes. A lookup among 5 million takes 2 to 4 ms.
 *
 * A part is named after the hash of its bytes, and its metadata has the hashes of its data files. So damage is
 * detected, and copied or restored parts are valid. The index is a cache: missing or damaged parts are recreated, and
 * until then their files count as missing. Several processes may share a folder.
 */
export function openIdIndex(folder: string) {
  const parts = openDerivedFileFolder(folder, { end: partEnd, readCovers, nameOf: hashFile, leftoverMs: leftAfterMs });
  const ownersOf = createOwners(parts);

  const write = (duckdb: Statements, select: string, covers: ReadonlySet<string>): Promise<DerivedFile> =>
    parts.write(covers, (file) =>
      // Hashes do not compress. Version 2 of Parquet packs ordered numbers.
      duckdb.run(
        `COPY (${select} ORDER BY key) TO ${sqlText(file)} (FORMAT parquet, PARQUET_VERSION v2, COMPRESSION uncompressed, KV_METADATA {covers: ${sqlText([...covers].join(' '))}})`,
      ),
    );

  return {
    async find(duckdb: Statements, files: readonly DataFile[], keys: readonly number[]): Promise<IndexResult> {
      let trustedForMs = trustedMs;
      for (let tries = 0; tries < maxTries; tries += 1) {
        await parts.follow(duckdb, trustedForMs);
        try {
          return await lookUp(duckdb, ownersOf(files), files, keys);
        } catch (error) {
          if (!(await isFileError(duckdb, error))) throw error;
          // A part was damaged, or merged by another process, since it was read.
          trustedForMs = 0;
        }
      }
      return { candidates: [], unindexed: files };
    },
    /** Indexes a file. Errors: the engine's, also for a damaged or missing file. */
    async add(duckdb: Statements, file: DataFile): Promise<void> {
      const name = nameOf(file);
      await localFiles.use([file], (paths) =>
        write(
          duckdb,
          `SELECT DISTINCT ${keySql} AS key, ${sqlText(name)} AS file, epoch_ms(received_at) // ${spanMs} AS span FROM read_parquet(${sqlList(paths)}, hive_partitioning = false)
           WHERE ${isHashedSql('event_id')} AND id_app IS NOT NULL AND received_at IS NOT NULL`,
          new Set([name]),
        ),
      );
    },
    /** Removes parts that cover none of the files, and leftovers. Returns the files without an index. */
    async keepOnly(duckdb: Statements, live: readonly DataFile[]): Promise<DataFile[]> {
      await parts.follow(duckdb);
      const { owned, unindexed } = ownersOf(live);
      for (const [derivedFile, own] of owned) if (own.length === 0) await parts.remove([derivedFile]);
      await parts.removeOthers();
      return [...unindexed];
    },
    planMerges: (live: readonly DataFile[]): Merge[] => planMerges(ownersOf(live)),
    async merge(duckdb: Statements, { parts: some, covers }: Merge): Promise<void> {
      const source = `read_parquet(${sqlList(some.map(({ file }) => file))}, hive_partitioning = false)`;
      const written = await write(
        duckdb,
        `SELECT key, file, span FROM ${source} WHERE file IN (SELECT unnest(${sqlList([...covers])}))`,
        covers,
      );
      await parts.remove(some.filter(({ file }) => file !== written.file));
    },
  };
}

export type IdIndex = ReturnType<typeof openIdIndex>;
