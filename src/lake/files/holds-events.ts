import { readdirSync } from 'node:fs';
import path from 'node:path';
import { events } from '../../datasets/dataset.ts';
import { formerYoungFolder, youngFolder } from '../log/young-folder.ts';

/** Lists a folder; nothing where there is none, or it cannot be read. */
function listNames(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/**
 * Says whether events were ever written to a lake, by its folders alone: cheap, and true also where its log is damaged.
 */
export function holdsEvents(lakeDir: string): boolean {
  const table = path.join(lakeDir, events.table);
  const folders = [
    path.join(table, youngFolder),
    path.join(table, formerYoungFolder),
    path.join(lakeDir, 'failed'),
    path.join(lakeDir, 'orphans'),
  ];
  return (
    folders.some((folder) => listNames(folder).length > 0) ||
    listNames(table).some((name) => name.startsWith(`${events.partitionBy[0]?.name ?? ''}=`))
  );
}
