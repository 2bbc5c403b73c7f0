import { partitionColumnsSql, type Parted, type Partition } from '../../datasets/partition.ts';
import { sqlText } from './literals.ts';

/** The values of a partition as an SQL tuple, each of its column's type. */
function tupleSql({ partitionBy }: Parted, partition: Partition): string {
  return `(${partitionBy.map(({ name, type }) => `${sqlText(partition[name] ?? '')}::${type}`).join(', ')})`;
}

/** SQL that is true for the rows of some partitions of a dataset, and never NULL. */
export function partitionsSql(dataset: Parted, partitions: readonly Partition[]): string {
  if (partitions.length === 0) return 'false';
  return `(${partitionColumnsSql(dataset)}) IN (${partitions.map((one) => tupleSql(dataset, one)).join(', ')})`;
}
