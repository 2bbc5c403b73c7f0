import path from 'node:path';
import { removeFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { listTree } from '../../runtime/files/folder-names.ts';
import { logFolder } from '../log/log-files.ts';

/**
 * What other engines leave in the log: checksums (Hadoop's of any file, Delta's of a version) and temporaries of
 * commits (delta-rs).
 */
const logLeftover = /\.crc$|^_commit_.*\.json\.tmp$/;
/** What they leave among the data: checksums, and the vectors of rows that they had deleted. */
const dataLeftover = /^\..*\.crc$|^deletion_vector_.*\.bin$/;

/**
 * Removes what other engines have left in a table's folder. Their checksums of files that are written again, or of a
 * version number that was used twice, make Spark refuse the table for ever. None is needed by any reader. Returns the
 * paths, relative to the table's folder.
 */
export async function clearForeignLeftovers(tableDir: string): Promise<string[]> {
  const log = path.basename(logFolder(tableDir));
  const names = await listTree(tableDir);
  const found = names
    .filter((name) => (path.dirname(name) === log ? logLeftover : dataLeftover).test(path.basename(name)))
    .toSorted();
  for (const name of found) await removeFile(path.join(tableDir, name));
  for (const folder of new Set(found.map((name) => path.dirname(name)))) await syncFolder(path.join(tableDir, folder));
  return found;
}
