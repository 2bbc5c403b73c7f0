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
 * Rows per row group of sorted rows: few enough that a small partition is not read with many others. Measured with a
 * million events of 100 dates.
 */
const rowsOfGroup = 8192;

/**
 * Sorts the rows of slices by partition into Parquet files below `folder`, one per slice; returns SQL that reads them,
 * and skips row groups of other partitions. As a table of the engine they would be read whole, from what it has
 * spilled, for each partition. Disk: about 1.5 times the young files.
 */
async function sortRows(
  { dataset, duckdb, emptyFile, budget }: SliceSource,
  slices: readonly Slice[],
  folder: string,
): Promise<string> {
  await makeWorkFolder(folder);
  const columnList = dataset.columns.map(({ name }) => name).join(', ');
  const bounds = rowGroupSql(duckdb, {
    rows: rowsOfGroup,
    bytes: budget.rowGroupBytes,
    ...boundDictionaries(duckdb.memoryMb, dataset.columns.length),
  });
  const files = slices.map((_, index) => path.join(folder, `${index}.parquet`));
  for (const [index, slice] of slices.entries())
    await duckdb.run(
      `COPY (SELECT ${columnList} FROM ${sliceSql(slice, emptyFile)} ORDER BY ${partitionColumnsSql(dataset)}) TO ${sqlText(files[index] ?? '')} (FORMAT parquet, COMPRESSION snappy${bounds})`,
    );
  return `read_parquet(${sqlList(files)}, hive_partitioning = false)`;
}

/** Number of groups from which the rows are sorted once instead of scanned for each. */
const manyGroups = 16;

/** A file that a seal has written. */
export interface Output {
  /** Absolute path in the folder of the change. */
  readonly file: string;
  /** Path relative to the table's folder. */
  readonly path: string;
  readonly written: WrittenFile;
}

interface SealWork {
  readonly dataset: Dataset;
  /** Columns of the table, in its order: sealed files have one schema. */
  readonly columns: readonly string[];
  readonly duckdb: Duckdb;
  readonly emptyFile: string;
  readonly parts: readonly Part[];
  readonly due: readonly Group[];
  readonly folder: string;
  readonly id: string;
}

/**
 * Writes the sealed files of each due group, and young files of the remaining rows, into the folder of the change.
 * After an error the caller removes the folder.
 */
export async function writeOutputs(work: SealWork): Promise<Output[]> {
  const { dataset, columns, duckdb, emptyFile, parts, due, folder, id } = work;
  const source: SliceSource = { dataset, duckdb, emptyFile, budget: engineBudget(duckdb.memoryMb) };
  const columnList = columns.join(', ');
  const sortedFolder = path.join(folder, 'sorted');
  const sorted =
    due.length >= manyGroups
      ? await sortRows(source, await cutIntoSlices(source, parts, 'true'), sortedFolder)
      : undefined;
  const outputs: Output[] = [];

  /** Writes one file, or for wide rows as many as the engine can sort one by one. */
  async function write(ours: readonly Part[], where: string, order: string, name: string, to: string): Promise<void> {
    const slices = await cutIntoSlices(source, ours, where);
    for (const [index, slice] of slices.entries()) {
      const number = index === 0 ? '' : `-${index}`;
      const rows = sorted !== undefined && slices.length === 1 ? sorted : sliceSql(slice, emptyFile);
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
  const order = sortColumnsSql(dataset);
  // While the engine writes one file, another is synced and hashed.
  await inParallel(due.entries(), 2, async ([index, group]) => {
    const ours = parts.filter((part) => keyOf(part) === keyOf(group));
    const to = sealedPath(`${partitionPath(group.partition)}/${id}`);
    await write(ours, partitionSql(dataset, group.partition), order, String(index), to);
  });
  const rest = parts.filter((part) => !isDue.has(keyOf(part)));
  const sealed = partitionsSql(
    dataset,
    due.map(({ partition }) => partition),
  );
  const restOrder = `${partitionColumnsSql(dataset)}, ${order}`;
  await write(rest, `NOT (${sealed})`, restOrder, 'young', `${youngFolder}/${id}-young`);
  if (sorted !== undefined) await removeTree(sortedFolder);
  return outputs;
}
