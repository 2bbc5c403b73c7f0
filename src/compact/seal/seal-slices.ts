import type { Dataset } from '../../datasets/dataset.ts';
import { partitionColumnsSql, partitionSelectSql, toPartition, type Partition } from '../../datasets/partition.ts';
import { rowBytesSql, type EngineBudget } from '../../lake/files/row-memory.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList } from '../../lake/sql/literals.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';

/** The rows of one partition in one young file, and their memory. */
export interface Part {
  /** Absolute path. */
  readonly file: string;
  readonly partition: Partition;
  readonly bytes: number;
  /** Bytes of wide rows among them (row-memory.ts). */
  readonly wideBytes: number;
}

/** Rows of young files that are sorted and written together: whole files, or a range of one. */
export interface Slice {
  readonly files: readonly string[];
  /** Row numbers in the one file, the second excluded. */
  readonly range?: readonly [number, number];
}

export interface SliceSource {
  readonly dataset: Dataset;
  readonly duckdb: Duckdb;
  readonly emptyFile: string;
  readonly budget: EngineBudget;
}

/** Parts by the path of a young file, which never changes: each is measured once. */
export type MeasuredParts = Map<string, readonly Part[]>;

/** Rows of the unit of a range. */
const blockRows = 256;

/** Returns the SQL that reads the rows of a slice. The empty file adds the columns that older files lack. */
export function sliceSql({ files, range }: Slice, emptyFile: string): string {
  const source = `read_parquet(${sqlList([emptyFile, ...files])}, union_by_name = true, hive_partitioning = false, file_row_number = true)`;
  return range === undefined
    ? source
    : `(SELECT * FROM ${source} WHERE file_row_number >= ${range[0]} AND file_row_number < ${range[1]})`;
}

const wideSql = ({ wideRowBytes }: EngineBudget): string =>
  `coalesce(sum(bytes) FILTER (WHERE bytes > ${wideRowBytes}), 0)::BIGINT AS wide`;

/** Measures the files that are not measured yet. Memory: that of one scan. */
export async function measureFiles(
  { dataset, duckdb, emptyFile, budget }: SliceSource,
  inputs: readonly DataFile[],
  measured: MeasuredParts,
): Promise<Part[]> {
  for (const { absolutePath: file } of inputs) {
    if (measured.has(file)) continue;
    const rows = await duckdb.rows(
      `SELECT ${partitionSelectSql(dataset)}, sum(bytes)::BIGINT AS bytes, ${wideSql(budget)}
       FROM (SELECT ${partitionColumnsSql(dataset)}, ${rowBytesSql(dataset.columns)} AS bytes FROM ${sliceSql({ files: [file] }, emptyFile)}) GROUP BY ALL`,
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
  { dataset, duckdb, emptyFile, budget }: SliceSource,
  file: string,
  where: string,
): Promise<Slice[]> {
  const blocks = await duckdb.rows(
    `SELECT file_row_number // ${blockRows} AS block, ${wideSql(budget)}
     FROM (SELECT file_row_number, ${rowBytesSql(dataset.columns)} AS bytes FROM ${sliceSql({ files: [file] }, emptyFile)} WHERE ${where}) GROUP BY block ORDER BY block`,
  );
  const slices: Slice[] = [];
  let [start, wide] = [0, 0];
  for (const row of blocks) {
    const at = Number(row['block']) * blockRows;
    const bytes = Number(row['wide']);
    if (wide > 0 && wide + bytes > budget.wideBytes) {
      slices.push({ files: [file], range: [start, at] });
      [start, wide] = [at, 0];
    }
    wide += bytes;
  }
  return [...slices, { files: [file], range: [start, Number.MAX_SAFE_INTEGER] }];
}

/**
 * Cuts the rows of parts, which match `where`, into slices that the engine can sort: one, unless many rows are wide.
 */
export async function cutIntoSlices(source: SliceSource, parts: readonly Part[], where: string): Promise<Slice[]> {
  const { budget } = source;
  const wideOf = new Map<string, number>();
  for (const { file, wideBytes } of parts) wideOf.set(file, (wideOf.get(file) ?? 0) + wideBytes);
  const slices: Slice[] = [];
  let [files, wide]: [string[], number] = [[], 0];
  const end = (): void => {
    if (files.length > 0) slices.push({ files });
    [files, wide] = [[], 0];
  };
  for (const [file, bytes] of wideOf) {
    if (bytes > budget.wideBytes) {
      slices.push(...(await cutFile(source, file, where)));
      continue;
    }
    if (wide + bytes > budget.wideBytes) end();
    files.push(file);
    wide += bytes;
  }
  end();
  return slices;
}
