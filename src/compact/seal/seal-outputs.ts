import path from 'node:path';
import { inParallel } from '../../runtime/async/in-parallel.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { partitionColumnsSql, partitionPath, sortColumnsSql } from '../../datasets/partition.ts';
import { writeDataFile, type WrittenFile } from '../../lake/files/data-file.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { partitionSql, partitionsSql } from '../../lake/sql/partition-sql.ts';
import { engineBudget, rowGroupBounds } from '../../lake/files/row-memory.ts';
import { youngFolder } from '../../lake/log/young-folder.ts';
import { keyOf, type Group } from './seal-policy.ts';
import { cutIntoSlices, sliceSql, type Part, type Slice, type SliceSource } from './seal-slices.ts';
import { sortRows } from './sorted-rows.ts';

/** From so many groups on, the rows are sorted once instead of scanned for each. */
const manyGroups = 16;

/** A file that a seal has written. */
export interface Output {
  /** Name in the staging folder. */
  readonly name: string;
  /** Relative to the table's folder. */
  readonly path: string;
  readonly written: WrittenFile;
}

/** What a seal writes: rows of these files, those of the groups that are due apart from the rest. */
export interface SealWork {
  readonly dataset: Dataset;
  /** The columns of the table, in its order: sealed files have one schema. */
  readonly columns: readonly string[];
  readonly duckdb: Duckdb;
  readonly emptyFile: string;
  readonly parts: readonly Part[];
  readonly due: readonly Group[];
  readonly folder: string;
  readonly id: string;
}

/**
 * Writes the files of each group that is due, and young files of what remains, into the staging folder. What an error
 * leaves there is the caller's to remove.
 */
export async function writeOutputs(work: SealWork): Promise<Output[]> {
  const { dataset, columns, duckdb, emptyFile, parts, due, folder, id } = work;
  const budget = engineBudget(duckdb.memoryMb);
  const source: SliceSource = { dataset, duckdb, emptyFile, budget };
  const columnList = columns.join(', ');
  const sorted =
    due.length >= manyGroups ? await sortRows(source, await cutIntoSlices(source, parts, 'true'), folder) : undefined;
  const outputs: Output[] = [];

  /** One file, unless its rows are wide: then as many as the engine can sort one by one. */
  async function write(ours: readonly Part[], where: string, order: string, name: string, to: string): Promise<void> {
    const slices: (Slice | string)[] = await cutIntoSlices(source, ours, where);
    if (sorted !== undefined && slices.length === 1) slices[0] = sorted.sql;
    for (const [index, slice] of slices.entries()) {
      const number = index === 0 ? '' : `-${index}`;
      const rows = typeof slice === 'string' ? slice : sliceSql(slice, emptyFile);
      const file = path.join(folder, `${name}${number}.parquet`);
      const written = await writeDataFile(
        duckdb,
        `SELECT ${columnList} FROM ${rows} WHERE ${where} ORDER BY ${order}`,
        file,
        'sealed',
        rowGroupBounds(duckdb.memoryMb, columns.length),
      );
      if (written.numRecords > 0) outputs.push({ name: path.basename(file), path: `${to}${number}.parquet`, written });
    }
  }

  const isDue = new Set(due.map(keyOf));
  // While the engine writes one file, another is synced and hashed.
  await inParallel(due.entries(), 2, async ([index, group]) => {
    const ours = parts.filter((part) => keyOf(part) === keyOf(group));
    await write(
      ours,
      partitionSql(dataset, group.partition),
      sortColumnsSql(dataset),
      String(index),
      `${partitionPath(group.partition)}/${id}`,
    );
  });
  const rest = parts.filter((part) => !isDue.has(keyOf(part)));
  await write(
    rest,
    `NOT (${partitionsSql(
      dataset,
      due.map(({ partition }) => partition),
    )})`,
    `${partitionColumnsSql(dataset)}, ${sortColumnsSql(dataset)}`,
    'young',
    `${youngFolder}/${id}`,
  );
  await sorted?.remove();
  return outputs;
}
