import { createHash } from 'node:crypto';
import path from 'node:path';
import { isHashedSql, requestKeyOf } from '../../datasets/event-id.ts';
import { isAppError, isSystemError } from '../../runtime/errors.ts';
import { inParallel } from '../../runtime/async/in-parallel.ts';
import { ensureFolder, removeFile } from '../../runtime/files/durable-file.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { findPairs, isBeingWritten, writePairs, type PairColumns } from '../files/id-pairs.ts';
import { pruneFiles } from '../files/prune.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { openPacks, type Packs } from './id-packs.ts';

/**
 * Where the ids lie that do not say when their events were received: those of events under an Idempotency-Key, and of
 * events with a key of their own. Beside each data file that has such, a file of pairs: 48 bits of a hash of the app and
 * of the part of the id that its request's events share, and the time of receipt, by which the row is found in the data
 * file by the statistics of its row groups. One pair a request and file: 12 bytes. The app is part of it so that who asks
 * for another app's event is led to no file, and waits no longer than for one that never was.
 *
 * Small ones come together in packs (id-packs.ts). It is a cache in a folder of its own, each file under the hash of its data file's bytes: right wherever the lake is
 * moved, copied or restored to, and made anew where it is gone. Several processes may work on it.
 */
export interface IdIndex {
  /** Looks pair keys up in the index of some files. */
  find(files: readonly DataFile[], pairKeys: readonly number[]): Promise<IndexAnswer>;
  /** Makes the index of a file. Errors: of the engine, also when the file is damaged or gone. */
  add(file: DataFile): Promise<void>;
  /**
   * Removes what is not the index of one of these files, and what a killed process has left of others. Returns the files
   * that have no index yet.
   */
  keepOnly(live: readonly DataFile[]): Promise<DataFile[]>;
  /** Makes packs of what is indexed of these files, and says so after each. One process alone does it. */
  pack(live: readonly DataFile[]): AsyncGenerator<void>;
}

/** A file that may have what is looked for, and the times of receipt, Unix milliseconds, under which. */
export interface Candidate {
  readonly file: DataFile;
  readonly receivedAtMs: readonly number[];
}

export interface IndexAnswer {
  readonly candidates: readonly Candidate[];
  /** The files that have no index yet. */
  readonly missing: readonly DataFile[];
}

/** Rows that are taken out of the engine at a time: it is the process's one thread that does it. */
const rowsAtOnce = 32_768;

const digitsOfKey = 12;
/** What an id has in common with those of its request's other events; of an event with a key of its own nearly all. */
const sharedLength = requestKeyOf('x'.repeat(36)).length;

/** What the pairs of an app's event are found by: of its id, or of what the ids of its request begin with. */
export function pairKeyOf(idApp: number, idStart: string): number {
  const shared = idStart.slice(0, sharedLength);
  const hash = createHash('sha256').update(`${idApp}\n${shared}`).digest('hex');
  return Number.parseInt(hash.slice(0, digitsOfKey), 16);
}

/** SQL of the same, as hex digits, of a row. */
const pairKeySql = `substr(sha256(id_app::VARCHAR || chr(10) || substr(event_id, 1, ${sharedLength})), 1, ${digitsOfKey})`;

const hexSql = (hex: string): string => `('0x' || ${hex})::UINTEGER`;

/** SQL that makes the table `id_pairs` of a data file, parted. */
const pairsSql = (file: string): string =>
  `CREATE OR REPLACE TEMP TABLE id_pairs AS
   SELECT DISTINCT ${hexSql('substr(key, 1, 4)')} AS a, ${hexSql('substr(key, 5, 8)')} AS b,
     (ms >> 32)::UINTEGER AS c, (ms & 4294967295)::UINTEGER AS d
   FROM (SELECT ${pairKeySql} AS key, epoch_ms(received_at) AS ms FROM read_parquet(${sqlText(file)}, hive_partitioning = false)
     WHERE ${isHashedSql('event_id')} AND id_app IS NOT NULL AND received_at IS NOT NULL)
   ORDER BY a, b`;

async function* readPairs(duckdb: Duckdb): AsyncGenerator<PairColumns> {
  for (let from = 0; ; from += rowsAtOnce) {
    const columns = await duckdb.integers(
      `SELECT a, b, c, d FROM id_pairs WHERE rowid >= ${from} AND rowid < ${from + rowsAtOnce} ORDER BY rowid`,
    );
    if ((columns[0]?.length ?? 0) === 0) return;
    yield columns;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** The values of some keys in a file of pairs; undefined: it is not there, or is not any more, since it was damaged. */
async function findValues(file: string, pairKeys: readonly number[]): Promise<readonly number[] | undefined> {
  try {
    return await findPairs(file, pairKeys);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    if (!isAppError(error, 'file_damaged')) throw error;
    await removeFile(file);
    return undefined;
  }
}

function nameOf({ sha256, path: name, sizeBytes }: DataFile): string {
  // A file of another engine has no hash in the log; it is never written again under its name.
  return `${sha256 ?? createHash('sha256').update(`${name}\n${sizeBytes}`).digest('hex')}.pairs`;
}

/** Which of a pack's files have rows that were received at one of the times, as far as the log says. */
function toCandidates(files: readonly DataFile[], receivedAtMs: readonly number[]): Candidate[] {
  return files.flatMap((file) => {
    const own = receivedAtMs.filter((ms) => pruneFiles([file], { receivedAt: { fromMs: ms, toMs: ms } }).length > 0);
    return own.length === 0 ? [] : [{ file, receivedAtMs: own }];
  });
}

/** Files that are read at a time. */
const readAtOnce = 4;

/** Looks pair keys up in the files of a folder, and in its packs. */
async function findInFiles(
  folder: string,
  packs: Packs,
  files: readonly DataFile[],
  pairKeys: readonly number[],
): Promise<IndexAnswer> {
  const byName = new Map(files.map((file) => [nameOf(file), file]));
  const toFiles = (names: readonly string[]): DataFile[] => names.flatMap((name) => byName.get(name) ?? []);
  const parted = await packs.part([...byName.keys()]);
  const single = [...parted.single];
  const candidates: Candidate[] = [];
  const missing: DataFile[] = [];
  await inParallel(parted.packs, readAtOnce, async ([pack, names]) => {
    const receivedAtMs = await findValues(pack.file, pairKeys);
    if (receivedAtMs === undefined) {
      packs.forget(pack);
      single.push(...names);
    } else candidates.push(...toCandidates(toFiles(names), receivedAtMs));
  });
  await inParallel(toFiles(single), readAtOnce, async (file) => {
    const receivedAtMs = await findValues(path.join(folder, nameOf(file)), pairKeys);
    if (receivedAtMs === undefined) missing.push(file);
    else if (receivedAtMs.length > 0) candidates.push({ file, receivedAtMs });
  });
  return { candidates, missing };
}

/** Opens the index in a folder, which is made with the first file. The engine is the caller's. */
export function openIdIndex(folder: string, duckdb: Duckdb): IdIndex {
  const packs = openPacks(folder);
  return {
    find: (files, pairKeys) => findInFiles(folder, packs, files, pairKeys),
    async add(file) {
      await ensureFolder(folder);
      try {
        await duckdb.run(pairsSql(file.absolutePath));
        await writePairs(path.join(folder, nameOf(file)), readPairs(duckdb));
      } finally {
        await duckdb.run('DROP TABLE IF EXISTS id_pairs').catch(() => undefined);
      }
    },
    async keepOnly(live) {
      const names = new Set(await findNames(folder));
      const wanted = new Map(live.map((file) => [nameOf(file), file]));
      const kept = await packs.keepOnly(wanted, names);
      for (const name of names)
        if (!wanted.has(name) && !kept.has(name) && !(await isBeingWritten(path.join(folder, name))))
          await removeFile(path.join(folder, name));
      return [...wanted].flatMap(([name, file]) => (names.has(name) ? [] : [file]));
    },
    async *pack(live) {
      // Young files go together, when they are sealed: not with a pack of files that stay.
      for (const young of [true, false]) yield* packs.make(live.filter((file) => file.young === young).map(nameOf));
    },
  };
}
