import { createHash } from 'node:crypto';
import path from 'node:path';
import { isHashedSql } from '../../datasets/event-id.ts';
import { isAppError, isSystemError } from '../../runtime/errors.ts';
import { ensureFolder, removeFile } from '../../runtime/files/durable-file.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { findPairs, isBeingWritten, writePairs, type PairColumns } from '../files/id-pairs.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';

/**
 * Where the ids lie that do not say when their events were received: those of events under an Idempotency-Key, and of
 * events with a key of their own. Beside each data file that has such, a file of pairs: the first 48 bits of the id,
 * which are a hash, and the time of receipt, by which the row is found in the data file by the statistics of its row
 * groups. One pair a request and file: 12 bytes.
 *
 * It is a cache in a folder of its own, each file under the hash of its data file's bytes: right wherever the lake is
 * moved, copied or restored to, and made anew where it is gone. Several processes may work on it.
 */
export interface IdIndex {
  /** The times of receipt, Unix milliseconds, that a file may have an id under; undefined: the file has no index yet. */
  find(file: DataFile, idPrefix: number): Promise<readonly number[] | undefined>;
  /** Makes the index of a file. Errors: of the engine, also when the file is damaged or gone. */
  add(file: DataFile): Promise<void>;
  /**
   * Removes what is not the index of one of these files, and what a killed process has left of others. Returns the files
   * that have no index yet.
   */
  keepOnly(live: readonly DataFile[]): Promise<DataFile[]>;
}

/** Rows that are taken out of the engine at a time: it is the process's one thread that does it. */
const rowsAtOnce = 32_768;

/** The first 48 bits of an event id, or of the part of it that stands for a request. */
export function idPrefixOf(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
}

const hexSql = (hex: string): string => `('0x' || ${hex})::UINTEGER`;

/** SQL that makes the table `id_pairs` of a data file, sorted. */
const pairsSql = (file: string): string =>
  `CREATE OR REPLACE TEMP TABLE id_pairs AS
   SELECT DISTINCT ${hexSql('substr(event_id, 1, 4)')} AS a, ${hexSql('substr(event_id, 5, 4) || substr(event_id, 10, 4)')} AS b,
     (epoch_ms(received_at) >> 32)::UINTEGER AS c, (epoch_ms(received_at) & 4294967295)::UINTEGER AS d
   FROM read_parquet(${sqlText(file)}, hive_partitioning = false)
   WHERE ${isHashedSql('event_id')} AND regexp_matches(event_id, '^[0-9a-f]{8}-[0-9a-f]{4}-') AND received_at IS NOT NULL
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

/** Opens the index in a folder, which is made with the first file. The engine is the caller's. */
export function openIdIndex(folder: string, duckdb: Duckdb): IdIndex {
  const fileOf = ({ sha256, path: name, sizeBytes }: DataFile): string =>
    // A file of another engine has no hash in the log; it is never written again under its name.
    path.join(folder, `${sha256 ?? createHash('sha256').update(`${name}\n${sizeBytes}`).digest('hex')}.ids`);
  return {
    async find(file, idPrefix) {
      const index = fileOf(file);
      try {
        return await findPairs(index, idPrefix);
      } catch (error) {
        if (isSystemError(error, 'ENOENT')) return undefined;
        if (!isAppError(error, 'file_damaged')) throw error;
        await removeFile(index);
        return undefined;
      }
    },
    async add(file) {
      await ensureFolder(folder);
      try {
        await duckdb.run(pairsSql(file.absolutePath));
        await writePairs(fileOf(file), readPairs(duckdb));
      } finally {
        await duckdb.run('DROP TABLE IF EXISTS id_pairs').catch(() => undefined);
      }
    },
    async keepOnly(live) {
      const names = new Set(await findNames(folder));
      const wanted = new Map(live.map((file) => [path.basename(fileOf(file)), file]));
      for (const name of names)
        if (!wanted.has(name) && !(await isBeingWritten(path.join(folder, name))))
          await removeFile(path.join(folder, name));
      return [...wanted].flatMap(([name, file]) => (names.has(name) ? [] : [file]));
    },
  };
}
