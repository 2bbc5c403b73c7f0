import { events } from '../../datasets/dataset.ts';
import { partitionColumnsSql, type Partition } from '../../datasets/partition.ts';
import { sqlText } from './literals.ts';

/** The values of a partition as an SQL tuple, each of its column's type. */
function tupleSql(partition: Partition): string {
  return `(${events.partitionBy.map(({ name, type }) => `${sqlText(partition[name] ?? '')}::${type}`).join(', ')})`;
}

/** SQL that is true for the rows of some partitions, and never NULL. */
export function partitionsSql(partitions: readonly Partition[]): string {
  if (partitions.length === 0) return 'false';
  return `(${partitionColumnsSql}) IN (${partitions.map(tupleSql).join(', ')})`;
}
