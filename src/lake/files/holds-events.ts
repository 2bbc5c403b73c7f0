import { readdirSync } from 'node:fs';
import path from 'node:path';
import { datasets, type Dataset } from '../../datasets/dataset.ts';
import { formerYoungFolder, youngFolder } from '../log/young-folder.ts';

/** Lists a folder; nothing where there is none, or it cannot be read. */
function listNames(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Says whether rows were ever written to a table. */
function holdsRows(lakeDir: string, { table, partitionBy }: Dataset): boolean {
  const dir = path.join(lakeDir, table);
  const folders = [path.join(dir, youngFolder), path.join(dir, formerYoungFolder)];
  return (
    folders.some((folder) => listNames(folder).length > 0) ||
    listNames(dir).some((name) => name.startsWith(`${partitionBy[0]?.name ?? ''}=`))
  );
}

/**
 * Says whether events, or rows of another table, were ever written to a lake, by its folders alone: cheap, and true also
 * where its log is damaged.
 */
export function holdsEvents(lakeDir: string): boolean {
  return (
    ['failed', 'orphans'].some((folder) => listNames(path.join(lakeDir, folder)).length > 0) ||
    [...datasets.values()].some((dataset) => holdsRows(lakeDir, dataset))
  );
}
