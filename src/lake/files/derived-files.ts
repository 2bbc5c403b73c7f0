import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { ensureFolder, moveFile, removeFile, syncFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { findSize } from '../../runtime/files/file-checks.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import type { Statements } from '../sql/duckdb.ts';

/** A Parquet file with rows derived from data files. */
export interface DerivedFile {
  readonly file: string;
  readonly bytes: number;
  /** Keys of the data files that it covers. */
  readonly covers: ReadonlySet<string>;
}

interface PartForm {
  /** Suffix of the names of parts. */
  readonly end: string;
  /** Reads the keys of a part; undefined removes it as damaged. */
  readonly readCovers: (duckdb: Statements, file: string) => Promise<ReadonlySet<string> | undefined>;
  /** Returns the name of a written part without its suffix. */
  readonly nameOf: (file: string) => Promise<string>;
  /** Age of leftover temporaries, ms. */
  readonly leftoverMs: number;
  readonly afterStep?: (step: 'written' | 'renamed') => Promise<void>;
}

const temporaryEnd = '.tmp';

/** Age of a temporary file by its name, ms; NaN for other files. */
const ageOf = (name: string): number =>
  name.endsWith(temporaryEnd) ? Date.now() - Number(name.split('.')[0]) : Number.NaN;

/**
 * Opens a folder of parts, which the first one creates. Parts are atomic, durable and immutable caches on the local disk,
 * also if the lake is not in a folder.
 */
export function openDerivedFileFolder(folder: string, { end, readCovers, nameOf, leftoverMs, afterStep }: PartForm) {
  const derivedFiles = new Map<string, DerivedFile>();
  /** When each was read or written, by `performance.now()`. */
  const readAtMs = new Map<string, number>();

  async function remove(some: readonly Pick<DerivedFile, 'file'>[]): Promise<void> {
    for (const { file } of some) {
      derivedFiles.delete(file);
      readAtMs.delete(file);
      await removeFile(file);
    }
    if (some.length > 0) await syncFolder(folder);
  }

  return {
    list: () => [...derivedFiles.values()],
    covered: (): ReadonlySet<string> => new Set([...derivedFiles.values()].flatMap(({ covers }) => [...covers])),
    /** Reads new parts, and again those that were read longer ago than `maxAgeMs`. */
    async follow(duckdb: Statements, maxAgeMs = Infinity): Promise<void> {
      const files = new Set((await findNames(folder)).map((name) => path.join(folder, name)));
      for (const file of derivedFiles.keys()) if (!files.has(file)) derivedFiles.delete(file);
      for (const file of files) {
        const nowMs = performance.now();
        const isRead = derivedFiles.has(file) && nowMs - (readAtMs.get(file) ?? -Infinity) < maxAgeMs;
        if (!file.endsWith(end) || isRead) continue;
        const bytes = await findSize(file);
        if (bytes === undefined) continue;
        const covers = await readCovers(duckdb, file);
        if (covers === undefined) {
          await remove([{ file }]);
          continue;
        }
        if (!derivedFiles.has(file)) derivedFiles.set(file, { file, bytes, covers });
        readAtMs.set(file, nowMs);
      }
    },
    /** Removes leftovers of killed processes, and files of other forms. */
    async removeOthers(): Promise<void> {
      const others = (await findNames(folder)).filter((name) => !name.endsWith(end) && !(ageOf(name) < leftoverMs));
      await remove(others.map((name) => ({ file: path.join(folder, name) })));
    },
    async write(covers: ReadonlySet<string>, copy: (file: string) => Promise<void>): Promise<DerivedFile> {
      await ensureFolder(folder);
      const startedAt = leftoverMs > 0 ? `${Date.now()}.` : '';
      const temporary = path.join(folder, `${startedAt}${randomUUID()}${temporaryEnd}`);
      try {
        await copy(temporary);
        await syncFile(temporary);
        await afterStep?.('written');
        const file = path.join(folder, `${await nameOf(temporary)}${end}`);
        const part = { file, bytes: (await findSize(temporary)) ?? 0, covers };
        await moveFile(temporary, file);
        await syncFolder(folder);
        await afterStep?.('renamed');
        derivedFiles.set(file, part);
        readAtMs.set(file, performance.now());
        return part;
      } finally {
        await removeFile(temporary);
      }
    },
    remove,
  };
}

export type DerivedFileFolder = ReturnType<typeof openDerivedFileFolder>;
