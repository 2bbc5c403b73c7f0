import assert from 'node:assert/strict';
import type { Dataset } from '../../datasets/dataset.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import type { BatchLookup, BatchTables } from './batch-tables.ts';
import { createKeySet } from './key-set.ts';
import { findFileDamage } from '../files/data-file.ts';

/** Receives damaged files. Their keys are unknown, so that duplicates may be stored. */
export type OnDamage = (damages: readonly AppError[]) => void;

/** Returns the intact files. Error: `file_damaged`, retryable, if one was replaced: its keys are in the new file. */
export async function findIntactFiles(
  { table, onDamage }: { readonly table: Table; readonly onDamage: OnDamage },
  files: readonly DataFile[],
  signal?: AbortSignal,
): Promise<DataFile[]> {
  const intactFiles: DataFile[] = [];
  const damages: AppError[] = [];
  for (const file of files) {
    signal?.throwIfAborted();
    const damage = await findFileDamage(file);
    if (damage === undefined) {
      intactFiles.push(file);
      continue;
    }
    await table.refresh();
    if (!table.snapshot().files.some(({ path, sha256 }) => path === file.path && sha256 === file.sha256))
      throw new AppError('file_damaged', damage.message, {
        cause: damage,
        retryable: true,
        hint: 'No action needed: a rewrite has replaced the file, and the next attempt reads the new one.',
      });
    damages.push(damage);
  }
  if (damages.length > 0) onDamage(damages);
  return intactFiles;
}

interface KnownRowsDependencies {
  readonly tables: BatchTables;
  readonly dataset: Dataset;
  readonly onDamage: OnDamage;
}

/** Creates a cache of a table's natural keys, loaded on demand: 10 million rows take 122 MB and 3 s of CPU. */
export function createNaturalKeyCache({ tables, dataset, onDamage }: KnownRowsDependencies) {
  const keys = createKeySet('any');
  const numbers = new Map<string, number>();
  const files = new Map<number, DataFile>();

  async function addFile(table: Table, file: DataFile): Promise<void> {
    const [intactFile] = await findIntactFiles({ table, onDamage }, [file]);
    const number = keys.addGroup();
    assert(number !== undefined, 'there is a number for each file');
    try {
      if (intactFile !== undefined) await tables.readKeys(intactFile, (hashes) => keys.add(hashes, number));
      numbers.set(file.path, number);
      files.set(number, file);
    } catch (error) {
      keys.dropGroup(number);
      // The file may have been replaced since it was checked.
      if (!isAppError(error, 'memory')) await findIntactFiles({ table, onDamage }, [file]);
      throw error;
    }
  }

  /** Adds new files, and drops removed ones, whose rows are in others or erased. */
  async function catchUp(table: Table, current: readonly DataFile[]): Promise<void> {
    const byPath = new Map(current.map((file) => [file.path, file]));
    for (const [path, number] of numbers) {
      // A rewrite may have the same path.
      if (byPath.get(path)?.sha256 === files.get(number)?.sha256 && byPath.has(path)) continue;
      keys.dropGroup(number);
      numbers.delete(path);
      files.delete(number);
    }
    for (const file of current) if (!numbers.has(file.path)) await addFile(table, file);
  }

  return {
    /** Finds the rows of a batch. Returns the version's `available_at`. Errors: those of `refresh`, `file_damaged`. */
    async lookUp(lookUp: BatchLookup, table: Table) {
      const batchKeys = await lookUp.readNaturalKeys(dataset);
      if (batchKeys.rows.length === 0) return table.lake().availableAtMs;
      await table.refresh();
      // Of one version: the table may be refreshed while files are read.
      const { availableAtMs } = table.lake();
      await catchUp(table, table.snapshot().files);
      const { rows, groups } = keys.findEach(batchKeys);
      const some = [...new Set(groups)].flatMap((number) => files.get(number) ?? []);
      const intactFiles = await findIntactFiles({ table, onDamage }, some);
      if (intactFiles.length > 0) await lookUp.lookUpNaturalKeys(intactFiles, [...new Set(rows)]);
      return availableAtMs;
    },
  };
}
