import type { Dataset } from './dataset.ts';

/**
 * The values, as text, that rows of one sealed file share, by the column they stand in: `{ kind: 'login', date:
 * '2026-01-31' }` where the pipeline says `partitionBy: ["kind", "date"]`. The members are in the pipeline's order.
 */
export type Partition = Readonly<Record<string, string>>;

/** The part of a dataset that says where its rows lie, and in which order. */
export type Parted = Pick<Dataset, 'partitionBy' | 'sortBy'>;

/**
 * The folder of a partition in Hive's manner, relative to the table's: `kind=login/date=2026-01-31`. It
 * also identifies the partition within its table.
 */
export function partitionPath(partition: Partition): string {
  return Object.entries(partition)
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
    .join('/');
}

/** Reads the partition off the path of a sealed file; undefined where the path has another form. */
export function parsePartitionPath(path: string): Partition | undefined {
  const folders = path
    .split('/')
    .slice(0, -1)
    .map((folder) => /^([^=]+)=(.*)$/.exec(folder));
  if (folders.some((match) => match === null)) return undefined;
  return Object.fromEntries(folders.map((match) => [match?.[1] ?? '', decodeURIComponent(match?.[2] ?? '')]));
}

/** Takes the partition out of a row that `partitionSelectSql` gave. */
export function toPartition({ partitionBy }: Parted, row: Readonly<Record<string, unknown>>): Partition {
  return Object.fromEntries(partitionBy.map(({ name }) => [name, String(row[name])]));
}

/** The partition's columns as a list, for ORDER BY and the like. */
export function partitionColumnsSql({ partitionBy }: Parted): string {
  return partitionBy.map(({ name }) => name).join(', ');
}

/** The partition's columns as text, for a SELECT. */
export function partitionSelectSql({ partitionBy }: Parted): string {
  return partitionBy.map(({ name }) => `${name}::VARCHAR AS ${name}`).join(', ');
}

/** The order of the rows of a sealed file. */
export function sortColumnsSql({ sortBy }: Parted): string {
  return sortBy.map(({ name }) => name).join(', ');
}
