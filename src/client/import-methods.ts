import { datasets } from '../datasets/dataset.ts';

/** What can be imported, by the name of the method for one: that of the method for a batch. */
export const batchMethods: ReadonlyMap<string, string> = new Map(
  [...datasets.values()].flatMap(({ methods }) => {
    const all = [...methods];
    return all.flatMap(([single, { kind, batch }]): [string, string][] => {
      const [many] = all.find(([, other]) => other.batch && other.kind === kind) ?? [];
      return batch || many === undefined ? [] : [[single, many]];
    });
  }),
);
