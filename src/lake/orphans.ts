import { datasets, events, type Dataset } from '../datasets/dataset.ts';

/**
 * Young files that were put aside lie together in one folder: those of the imported events under their own names, those
 * of another table behind its name and a dot.
 */

/** The name under which a young file of a table is put aside. */
export function orphanName({ table }: Pick<Dataset, 'table'>, file: string): string {
  return table === events.table ? file : `${table}.${file}`;
}

/** The dataset that a file put aside has rows of. */
export function orphanDataset(name: string): Dataset {
  return datasets.get(name.split('.')[0] ?? '') ?? events;
}
