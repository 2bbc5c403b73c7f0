import { partitionColumnsSql, type Parted, type Partition } from '../../datasets/partition.ts';
import { sqlText } from './literals.ts';

/** The value of a partition in one column, of the column's type. */
function valueSql(partition: Partition, { name, type }: Parted['partitionBy'][number]): string {
  return `${sqlText(partition[name] ?? '')}::${type}`;
}

/** The values of a partition as an SQL tuple. */
function tupleSql({ partitionBy }: Parted, partition: Partition): string {
  return `(${partitionBy.map((column) => valueSql(partition, column)).join(', ')})`;
}

/**
 * SQL that is true for the rows of one partition. Unlike a comparison of tuples, it lets the engine pass over the row
 * groups whose statistics exclude them.
 */
export function partitionSql({ partitionBy }: Parted, partition: Partition): string {
  return partitionBy.map((column) => `${column.name} = ${valueSql(partition, column)}`).join(' AND ');
}

/** SQL that is true for the rows of some partitions of a dataset, and never NULL. */
export function partitionsSql(dataset: Parted, partitions: readonly Partition[]): string {
  if (partitions.length === 0) return 'false';
  return `(${partitionColumnsSql(dataset)}) IN (${partitions.map((one) => tupleSql(dataset, one)).join(', ')})`;
}
