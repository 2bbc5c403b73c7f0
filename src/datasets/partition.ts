import type { Dataset } from './dataset.ts';

/** Values by column that the rows of a sealed file share: `{ kind: 'login', date: '2026-01-31' }`. */
export type Partition = Readonly<Record<string, string>>;

export type Parted = Pick<Dataset, 'partitionBy' | 'sortBy'>;

/** Returns the Hive folder of a partition, relative to the table's: `kind=login/date=2026-01-31`. */
export function partitionPath(partition: Partition): string {
  return Object.entries(partition)
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
    .join('/');
}

/** Reads the partition from the path of a sealed file; undefined for other paths. */
export function parsePartitionPath(path: string): Partition | undefined {
  const folders = path
    .split('/')
    .slice(0, -1)
    .map((folder) => /^([^=]+)=(.*)$/.exec(folder));
  if (folders.some((match) => match === null)) return undefined;
  return Object.fromEntries(folders.map((match) => [match?.[1] ?? '', decodeURIComponent(match?.[2] ?? '')]));
}

export function toPartition({ partitionBy }: Parted, row: Readonly<Record<string, unknown>>): Partition {
  return Object.fromEntries(partitionBy.map(({ name }) => [name, String(row[name])]));
}

export function partitionColumnsSql({ partitionBy }: Parted): string {
  return partitionBy.map(({ name }) => name).join(', ');
}

export function partitionSelectSql({ partitionBy }: Parted): string {
  return partitionBy.map(({ name }) => `${name}::VARCHAR AS ${name}`).join(', ');
}

export function sortColumnsSql({ sortBy }: Parted): string {
  return sortBy.map(({ name }) => name).join(', ');
}
