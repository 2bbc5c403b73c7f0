import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { noCrashPoint, type CrashPoint } from '../../runtime/crash-point.ts';
import { isAppError } from '../../runtime/errors.ts';
import { ensureFolder, moveFile, removeFile, syncFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import { catalogueForm } from './catalogue-files.ts';
import { writeParts, type PartSource } from './parts.ts';

/** Packs of other forms are removed. */
const packEnd = `.${catalogueForm}.parquet`;
/** Beyond this number packs are merged: the fold opens each. */
const mostPacks = 24;

/** Rows of a row group: each has two bitmaps. */
const groupRows = 16_384;

/**
 * The parts of sealed files, several in a pack `packs/UUID.v3.parquet`, whose rows have the hash of their file as
 * `key`. For the one process that maintains the lake. Packs are written atomically; the next `keep` removes duplicate
 * keys.
 */
export interface Packs {
  /** Hashes of the files that have parts. */
  keys(): ReadonlySet<string>;
  /** Absolute paths of the packs. */
  files(): readonly string[];
  /**
   * Removes parts of other files and packs of other processes, forgets missing packs, merges packs if there are many.
   * Returns whether it removed anything.
   */
  keep(duckdb: Duckdb, wanted: ReadonlySet<string>): Promise<boolean>;
  /**
   * Removes unreadable packs, whose parts are then made again; returns whether it removed any. Errors: the engine's if
   * it was stopped or has failed; the file system's.
   */
  mend(duckdb: Duckdb, signal: AbortSignal): Promise<boolean>;
  /** Makes the parts of sealed files, durably. Errors: the engine's. */
  add(duckdb: Duckdb, sources: readonly PartSource[], emptyFile: string): Promise<void>;
}

type Known = Map<string, ReadonlySet<string>>;

interface PackFolder {
  readonly folder: string;
  readonly packs: Known;
  readonly crashPoint: CrashPoint;
}

async function removePacks(folder: string, packs: Known, files: readonly string[]): Promise<void> {
  for (const file of files) {
    await removeFile(file);
    packs.delete(file);
  }
  await syncFolder(folder);
}

/** Writes a pack, durably; `copy` writes its rows. */
async function writePack(
  { folder, packs, crashPoint }: PackFolder,
  keys: ReadonlySet<string>,
  copy: (temporary: string) => Promise<void>,
): Promise<void> {
  const file = path.join(folder, `${randomUUID()}${packEnd}`);
  const temporary = `${file}.tmp`;
  await ensureFolder(folder);
  try {
    await copy(temporary);
    await syncFile(temporary);
    await crashPoint('pack-written');
    await moveFile(temporary, file);
    await syncFolder(folder);
    await crashPoint('pack-renamed');
    packs.set(file, keys);
  } finally {
    await removeFile(temporary);
  }
}

/** Reads the keys of a folder's packs; removes unreadable ones. */
async function readKeys(folder: string, duckdb: Duckdb): Promise<Known> {
  const packs: Known = new Map();
  for (const name of await findNames(folder)) {
    const file = path.join(folder, name);
    try {
      if (!name.endsWith(packEnd)) await removePacks(folder, packs, [file]);
      else {
        const rows = await duckdb.rows(`SELECT DISTINCT key FROM read_parquet(${sqlText(file)})`);
        packs.set(file, new Set(rows.map((row) => String(row['key']))));
      }
    } catch (error) {
      if (!isAppError(error, 'sql')) throw error;
      await removePacks(folder, packs, [file]);
    }
  }
  return packs;
}

/** Follows the folder: an operator may empty it, and another process may have written there. */
async function followFolder(folder: string, packs: Known): Promise<void> {
  const files = new Set((await findNames(folder)).map((name) => path.join(folder, name)));
  for (const file of packs.keys()) if (!files.has(file)) packs.delete(file);
  const others = [...files].filter((file) => !packs.has(file));
  if (others.length > 0) await removePacks(folder, packs, others);
}

/** Assigns each wanted key to one pack. */
function findOwners(packs: Known, wanted: ReadonlySet<string>): Map<string, string> {
  const owners = new Map<string, string>();
  for (const [file, keys] of packs)
    for (const key of keys) if (wanted.has(key) && !owners.has(key)) owners.set(key, file);
  return owners;
}

/** Opens the packs of a folder. Errors: the file system's; the engine's except for damage. */
export async function openPacks(folder: string, duckdb: Duckdb, crashPoint: CrashPoint = noCrashPoint): Promise<Packs> {
  const packs = await readKeys(folder, duckdb);
  const own = { folder, packs, crashPoint };

  /** Replaces packs by one with the keys that they own. */
  async function rewrite(engine: Duckdb, files: readonly string[], owners: ReadonlyMap<string, string>): Promise<void> {
    const kept = files.map((file) => [...owners].filter(([, owner]) => owner === file).map(([key]) => key));
    const sources = files.map(
      (file, index) =>
        `SELECT * FROM read_parquet(${sqlText(file)}) WHERE key IN (SELECT unnest(${sqlList(kept[index] ?? [])}))`,
    );
    const keys = new Set(kept.flat());
    if (keys.size > 0)
      await writePack(own, keys, (temporary) =>
        engine.run(
          `COPY (${sources.join(' UNION ALL ')}) TO ${sqlText(temporary)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE ${groupRows})`,
        ),
      );
    await removePacks(folder, packs, files);
  }

  return {
    keys: () => new Set([...packs.values()].flatMap((keys) => [...keys])),
    files: () => [...packs.keys()].toSorted((a, b) => (a < b ? -1 : 1)),
    async keep(engine, wanted) {
      await followFolder(folder, packs);
      const owners = findOwners(packs, wanted);
      const isStale = ([file, keys]: readonly [string, ReadonlySet<string>]): boolean =>
        [...keys].some((key) => owners.get(key) !== file);
      const stale = [...packs].filter(isStale).map(([file]) => file);
      for (const file of stale) await rewrite(engine, [file], owners);
      if (packs.size > mostPacks) await rewrite(engine, [...packs.keys()], findOwners(packs, wanted));
      return stale.length > 0;
    },
    async mend(engine, signal) {
      const damaged: string[] = [];
      for (const file of packs.keys())
        await engine
          .rows(`SELECT sum(hash(pack)) FROM read_parquet(${sqlText(file)}) AS pack`)
          .catch((error: unknown) => {
            if (signal.aborted || !isAppError(error, 'sql')) throw error;
            damaged.push(file);
          });
      await engine.rows('SELECT 1');
      await removePacks(folder, packs, damaged);
      return damaged.length > 0;
    },
    add: (engine, sources, emptyFile) =>
      writePack(own, new Set(sources.map(({ key }) => key)), (temporary) =>
        writeParts(engine, sources, emptyFile, temporary),
      ),
  };
}
