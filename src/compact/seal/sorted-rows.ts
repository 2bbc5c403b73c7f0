import path from 'node:path';
import { makeWorkFolder, removeTree } from '../../runtime/files/work-files.ts';
import { partitionColumnsSql } from '../../datasets/partition.ts';
import { rowGroupSql } from '../../lake/files/data-file.ts';
import { boundDictionaries } from '../../lake/files/row-memory.ts';
import { sqlList, sqlText } from '../../lake/sql/literals.ts';
import { sliceSql, type Slice, type SliceSource } from './seal-slices.ts';

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
