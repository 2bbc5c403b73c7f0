import { readdirSync } from 'node:fs';
import path from 'node:path';

/** Lists a folder; nothing where there is none, or it cannot be read. */
function listNames(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Says whether events were ever written to a lake, by its folders alone: cheap, and true also where its log is damaged. */
export function holdsEvents(lakeDir: string): boolean {
  const table = path.join(lakeDir, 'events');
  // snapshot.ts has the name of the young folder, and brings the SQL engine along, which an ingest worker does without.
  const folders = [path.join(table, 'fresh'), path.join(lakeDir, 'failed'), path.join(lakeDir, 'orphans')];
  return folders.some((folder) => listNames(folder).length > 0) || listNames(table).some((name) => name.startsWith('kind='));
}
