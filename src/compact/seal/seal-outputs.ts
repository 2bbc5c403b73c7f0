import path from 'node:path';
import { makeWorkFolder, removeTree } from '../../runtime/files/work-files.ts';
import { partitionColumnsSql, partitionPath, sortColumnsSql } from '../../datasets/partition.ts';
import { rowGroupSql, writeDataFile, type WrittenFile } from '../../lake/files/data-file.ts';
import { boundDictionaries, engineBudget, rowGroupBounds } from '../../lake/files/row-memory.ts';
import { sqlList, sqlText, partitionSql, partitionsSql } from '../../lake/sql/literals.ts';
import { sliceSql, type Slice, type SliceSource, cutIntoSlices, type Part } from './seal-slices.ts';
import { inParallel } from '../../runtime/async/in-parallel.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sealedPath, youngFolder } from '../../lake/log/young-folder.ts';
import { keyOf, type Group } from './seal-policy.ts';

/**
 * Rows of a row group: as few as keep the rows of a small partition from being read with those of many others.
 * Measured with a million events of 100 dates.
 */
const rowsOfGroup = 8192;

/** Rows that lie sorted by partition in work files. */
export interface SortedRows {
  /** Reads them, for a FROM. A query for one partition (`partitionSql`) reads the row groups that hold its rows. */
  readonly sql: string;
  /** Frees their place on the disk. */
  remove(): Promise<void>;
}

/**
 * Sorts the rows of some slices by partition into a work folder below `folder`, one Parquet file a slice, which is what
 * fits into memory: as a table of the engine they would be read whole, from what it has spilled, for each partition.
 * Disk: about half more than the young files take. What an error leaves is the caller's to remove, with `folder`.
 */
export async function sortRows(
  { dataset, duckdb, emptyFile, budget }: SliceSource,
  slices: readonly Slice[],
  folder: string,
): Promise<SortedRows> {
  const workFolder = path.join(folder, 'sorted');
  await makeWorkFolder(workFolder);
  const columnList = dataset.columns.map(({ name }) => name).join(', ');
  const bounds = rowGroupSql(duckdb, {
    rows: rowsOfGroup,
    bytes: budget.rowGroupBytes,
    ...boundDictionaries(duckdb.memoryMb, dataset.columns.length),
  });
  const files: string[] = [];
  for (const [index, slice] of slices.entries()) {
    const file = path.join(workFolder, `${index}.parquet`);
    await duckdb.run(
      `COPY (SELECT ${columnList} FROM ${sliceSql(slice, emptyFile)} ORDER BY ${partitionColumnsSql(dataset)}) TO ${sqlText(file)} (FORMAT parquet, COMPRESSION snappy${bounds})`,
    );
    files.push(file);
  }
  return {
    sql: `read_parquet(${sqlList(files)}, hive_partitioning = false)`,
    remove: () => removeTree(workFolder),
  };
}

/** From so many groups on, the rows are sorted once instead of scanned for each. */
const manyGroups = 16;

/** A file that a seal has written. */
export interface Output {
  /** Its absolute path in the folder of the change. */
  readonly file: string;
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
 * Writes the files of each group that is due, and young files of what remains, into the folder of the change.
 * What an error leaves there is the caller's to remove.
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
      if (written.numRecords > 0) outputs.push({ file, path: `${to}${number}.parquet`, written });
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
      sealedPath(`${partitionPath(group.partition)}/${id}`),
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
    `${youngFolder}/${id}-young`,
  );
  await sorted?.remove();
  return outputs;
}
