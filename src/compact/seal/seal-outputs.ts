import { localFiles } from '../../runtime/store/open-store.ts';
import path from 'node:path';
import { makeWorkFolder, removeTree } from '../../runtime/files/work-files.ts';
import {
  partitionColumnsSql,
  partitionPath,
  sortColumnsSql,
  partitionSelectSql,
  toPartition,
  type Partition,
} from '../../datasets/partition.ts';
import { rowGroupSql, writeDataFile, type WrittenFile } from '../../lake/files/data-file.ts';
import {
  boundDictionaries,
  engineBudget,
  rowGroupBounds,
  rowBytesSql,
  type EngineBudget,
} from '../../lake/files/row-memory.ts';
import { sqlList, sqlText, partitionSql, partitionsSql } from '../../lake/sql/literals.ts';
import { inParallel } from '../../runtime/async/in-parallel.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sealedPath, youngFolder } from '../../lake/log/young-folder.ts';
import { partitionKeyOf, type PartitionGroup } from './seal-policy.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';

/** The rows of one partition in one young file, and their memory. */
export interface PartitionCost {
  readonly file: string;
  readonly partition: Partition;
  readonly bytes: number;
  readonly wideBytes: number;
}

/** Rows of young files that are sorted and written together: whole files, or a range of one. */
interface SortChunk {
  readonly files: readonly string[];
  /** Row numbers in the one file, the second excluded. */
  readonly range?: readonly [number, number];
}

export interface SortChunkSource {
  readonly dataset: Dataset;
  readonly duckdb: Duckdb;
  /** Local path of the empty file. */
  readonly emptyFile: string;
  readonly budget: EngineBudget;
}

/** Parts by the path of a young file, which never changes: each is measured once. */
export type PartitionCosts = Map<string, readonly PartitionCost[]>;

const blockRows = 256;

/** Returns the SQL that reads the rows of a slice. The empty file adds the columns that older files lack. */
export function sortChunkSql({ files, range }: SortChunk, emptyFile: string): string {
  const source = `read_parquet(${sqlList([emptyFile, ...files])}, union_by_name = true, hive_partitioning = false, file_row_number = true)`;
  return range === undefined
    ? source
    : `(SELECT * FROM ${source} WHERE file_row_number >= ${range[0]} AND file_row_number < ${range[1]})`;
}

export const wideSql = ({ wideRowBytes }: EngineBudget): string =>
  `coalesce(sum(bytes) FILTER (WHERE bytes > ${wideRowBytes}), 0)::BIGINT AS wide`;

/** Measures the files that are not measured yet. Memory: that of one scan. */
export async function measurePartitionCosts(
  { dataset, duckdb, emptyFile, budget }: SortChunkSource,
  inputs: readonly DataFile[],
  measured: PartitionCosts,
): Promise<PartitionCost[]> {
  for (const input of inputs) {
    const { absolutePath: file } = input;
    if (measured.has(file)) continue;
    const rows = await localFiles.use([input], (files) =>
      duckdb.rows(
        `SELECT ${partitionSelectSql(dataset)}, sum(bytes)::BIGINT AS bytes, ${wideSql(budget)}
         FROM (SELECT ${partitionColumnsSql(dataset)}, ${rowBytesSql(dataset.columns)} AS bytes FROM ${sortChunkSql({ files }, emptyFile)}) GROUP BY ALL`,
      ),
    );
    measured.set(
      file,
      rows.map((row) => ({
        file,
        partition: toPartition(dataset, row),
        bytes: Number(row['bytes']),
        wideBytes: Number(row['wide']),
      })),
    );
  }
  return inputs.flatMap(({ absolutePath }) => measured.get(absolutePath) ?? []);
}

/** Cuts the rows of a file that match a condition into ranges whose wide rows fit the budget. */
async function cutFile(
  { dataset, duckdb, emptyFile, budget }: SortChunkSource,
  file: string,
  where: string,
): Promise<SortChunk[]> {
  const blocks = await duckdb.rows(
    `SELECT file_row_number // ${blockRows} AS block, ${wideSql(budget)}
     FROM (SELECT file_row_number, ${rowBytesSql(dataset.columns)} AS bytes FROM ${sortChunkSql({ files: [file] }, emptyFile)} WHERE ${where}) GROUP BY block ORDER BY block`,
  );
  const sortChunks: SortChunk[] = [];
  let [start, wide] = [0, 0];
  for (const row of blocks) {
    const at = Number(row['block']) * blockRows;
    const bytes = Number(row['wide']);
    if (wide > 0 && wide + bytes > budget.wideBytes) {
      sortChunks.push({ files: [file], range: [start, at] });
      [start, wide] = [at, 0];
    }
    wide += bytes;
  }
  return [...sortChunks, { files: [file], range: [start, Number.MAX_SAFE_INTEGER] }];
}

/**
 * Cuts the rows of parts, which match `where`, into slices that the engine can sort: one, unless many rows are wide.
 */
async function planSortChunks(
  source: SortChunkSource,
  partitionCosts: readonly PartitionCost[],
  where: string,
): Promise<SortChunk[]> {
  const { budget } = source;
  const wideOf = new Map<string, number>();
  for (const { file, wideBytes } of partitionCosts) wideOf.set(file, (wideOf.get(file) ?? 0) + wideBytes);
  const sortChunks: SortChunk[] = [];
  let [files, wide]: [string[], number] = [[], 0];
  const end = (): void => {
    if (files.length > 0) sortChunks.push({ files });
    [files, wide] = [[], 0];
  };
  for (const [file, bytes] of wideOf) {
    if (bytes > budget.wideBytes) {
      sortChunks.push(...(await cutFile(source, file, where)));
      continue;
    }
    if (wide + bytes > budget.wideBytes) end();
    files.push(file);
    wide += bytes;
  }
  end();
  return sortChunks;
}

/** Rows per row group of sorted rows: few, so that reading a small partition reads few other rows. */
const rowsOfGroup = 8192;

/**
 * Sorts the rows of slices by partition into Parquet files below `folder`, one per slice; returns SQL that reads them,
 * and skips row groups of other partitions. A table of the engine would be read completely, from its spill files, for
 * each partition. Disk: about 1.5 times the young files.
 */
async function sortRows(
  { dataset, duckdb, emptyFile, budget }: SortChunkSource,
  sortChunks: readonly SortChunk[],
  folder: string,
): Promise<string> {
  await makeWorkFolder(folder);
  const columnList = dataset.columns.map(({ name }) => name).join(', ');
  const bounds = rowGroupSql(duckdb, {
    rows: rowsOfGroup,
    bytes: budget.rowGroupBytes,
    ...boundDictionaries(duckdb.memoryMb, dataset.columns.length),
  });
  const files = sortChunks.map((_, index) => path.join(folder, `${index}.parquet`));
  for (const [index, sortChunk] of sortChunks.entries())
    await duckdb.run(
      `COPY (SELECT ${columnList} FROM ${sortChunkSql(sortChunk, emptyFile)} ORDER BY ${partitionColumnsSql(dataset)}) TO ${sqlText(files[index] ?? '')} (FORMAT parquet, COMPRESSION snappy${bounds})`,
    );
  return `read_parquet(${sqlList(files)}, hive_partitioning = false)`;
}

/** Number of groups from which the rows are sorted once instead of scanned for each. */
const manyGroups = 16;

export interface Output {
  readonly file: string;
  readonly path: string;
  readonly written: WrittenFile;
}

interface SealWork {
  readonly dataset: Dataset;
  /** Columns of the table, in its order: sealed files have one schema. */
  readonly columns: readonly string[];
  readonly duckdb: Duckdb;
  readonly emptyFile: string;
  readonly partitionCosts: readonly PartitionCost[];
  readonly due: readonly PartitionGroup[];
  readonly folder: string;
  readonly id: string;
}

/**
 * Writes sealed files of the due groups, and young files of the remaining rows. The caller removes the folder after an
 * error.
 */
export async function writeOutputs(work: SealWork): Promise<Output[]> {
  const { dataset, columns, duckdb, emptyFile, partitionCosts, due, folder, id } = work;
  const source: SortChunkSource = { dataset, duckdb, emptyFile, budget: engineBudget(duckdb.memoryMb) };
  const columnList = columns.join(', ');
  const sortedFolder = path.join(folder, 'sorted');
  const sorted =
    due.length >= manyGroups
      ? await sortRows(source, await planSortChunks(source, partitionCosts, 'true'), sortedFolder)
      : undefined;
  const outputs: Output[] = [];

  /** Writes one file, or several if rows are too wide for the engine to sort all of them. */
  async function write(
    ours: readonly PartitionCost[],
    where: string,
    order: string,
    name: string,
    to: string,
  ): Promise<void> {
    const sortChunks = await planSortChunks(source, ours, where);
    for (const [index, sortChunk] of sortChunks.entries()) {
      const number = index === 0 ? '' : `-${index}`;
      const rows = sorted !== undefined && sortChunks.length === 1 ? sorted : sortChunkSql(sortChunk, emptyFile);
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

  const isDue = new Set(due.map(partitionKeyOf));
  const order = sortColumnsSql(dataset);
  // While the engine writes one file, another is synced and hashed.
  await inParallel(due.entries(), 2, async ([index, partitionGroup]) => {
    const ours = partitionCosts.filter(
      (partitionCost) => partitionKeyOf(partitionCost) === partitionKeyOf(partitionGroup),
    );
    const to = sealedPath(`${partitionPath(partitionGroup.partition)}/${id}`);
    await write(ours, partitionSql(dataset, partitionGroup.partition), order, String(index), to);
  });
  const otherCosts = partitionCosts.filter((partitionCost) => !isDue.has(partitionKeyOf(partitionCost)));
  const sealed = partitionsSql(
    dataset,
    due.map(({ partition }) => partition),
  );
  const restOrder = `${partitionColumnsSql(dataset)}, ${order}`;
  await write(otherCosts, `NOT (${sealed})`, restOrder, 'young', `${youngFolder}/${id}-young`);
  if (sorted !== undefined) await removeTree(sortedFolder);
  return outputs;
}
