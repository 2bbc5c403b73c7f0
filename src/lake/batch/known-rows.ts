import assert from 'node:assert/strict';
import type { Dataset } from '../../datasets/dataset.ts';
import { isAppError } from '../../runtime/errors.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import type { BatchLookUp, BatchTables } from './batch-tables.ts';
import { createKeySet } from './key-set.ts';
import { findWhole, type OnDamage } from './whole-files.ts';

/**
 * The natural keys of all rows of a table, imported and loaded. Read when the first such event arrives, and updated
 * with the files that any process commits: the cost follows the batches and the new files. With 10 million rows 122 MB
 * of memory, 3 s of CPU to read, half a microsecond a key.
 */
export interface KnownRows {
  /**
   * Finds the rows of a batch in the newest version of the table. Returns its newest `available_at`: any later commit
   * of rows has a later one. Errors: those of `refresh`; `file_damaged`, `retryable` if a file was replaced meanwhile.
   */
  lookUp(lookUp: BatchLookUp, table: Table): Promise<number>;
}

interface KnownRowsDependencies {
  readonly tables: BatchTables;
  readonly dataset: Dataset;
  readonly onDamage: OnDamage;
}

export function createKnownRows({ tables, dataset, onDamage }: KnownRowsDependencies): KnownRows {
  const keys = createKeySet('any');
  /** Number of each file whose keys are known, by path. */
  const numbers = new Map<string, number>();
  const files = new Map<number, DataFile>();

  async function addFile(table: Table, file: DataFile): Promise<void> {
    const [whole] = await findWhole({ table, onDamage }, [file]);
    const number = keys.addGroup();
    assert(number !== undefined, 'there is a number for each file');
    try {
      if (whole !== undefined) await tables.readKeys(whole, (hashes) => keys.add(hashes, number));
      numbers.set(file.path, number);
      files.set(number, file);
    } catch (error) {
      keys.dropGroup(number);
      // The file may have been replaced since it was checked.
      if (!isAppError(error, 'memory')) await findWhole({ table, onDamage }, [file]);
      throw error;
    }
  }

  /** Adds new files, and drops removed ones: their rows are in others, or erased. */
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
    async lookUp(lookUp, table) {
      const asked = await lookUp.readOwnKeys(dataset);
      if (asked.rowids.length === 0) return table.lake().availableAtMs;
      await table.refresh();
      // Of one version: the table may be refreshed while files are read.
      const { availableAtMs } = table.lake();
      await catchUp(table, table.snapshot().files);
      const wanted = new Set<number>();
      const rowids: number[] = [];
      for (const [index, rowid] of asked.rowids.entries()) {
        const found = keys.find(asked.lows[index] ?? 0, asked.highs[index] ?? 0);
        if (found.length > 0) rowids.push(rowid);
        for (const number of found) wanted.add(number);
      }
      const some = [...wanted].flatMap((number) => files.get(number) ?? []);
      const whole = await findWhole({ table, onDamage }, some);
      if (whole.length > 0) await lookUp.lookUpOwnKeys(whole, rowids);
      return availableAtMs;
    },
  };
}
