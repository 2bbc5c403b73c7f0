import path from 'node:path';
import { dataPaths, type Config } from '../config.ts';
import { lakePaths, listOtherTables } from '../lake/lake.ts';
import { listLog } from '../lake/log/log-files.ts';
import { snapshotSql } from '../lake/sql/snapshot-sql.ts';
import { AppError } from '../runtime/errors.ts';

const isAddress = (text: string): boolean => /^[a-z][a-z0-9+.-]+:\/\//i.test(text);

/**
 * `tributary lake snapshot [--root DIR_OR_URL]`: the SQL of the views over a lake, to be kept and run from any folder.
 * The root is the data folder's own lake, or where the reader finds that lake or a copy of it; the views are those of
 * the tables that the own lake has now. Errors: `not_found` when
 * the data folder has no lake.
 */
export async function renderLakeSnapshot(config: Config, root: string | undefined): Promise<string> {
  const { root: own, table } = lakePaths(dataPaths(config.dataDir).lake);
  if (root === undefined) {
    const { commits, checkpoints } = await listLog(table);
    if (commits.length + checkpoints.length === 0)
      throw new AppError('not_found', `there is no lake in ${config.dataDir}`, {
        hint: 'Name the data folder by --data, or where the lake lies by --root.',
      });
  }
  const at = root === undefined ? own : isAddress(root) ? root.replace(/\/+$/, '') : path.resolve(root);
  return snapshotSql({ root: at, followers: await listOtherTables(own), retentionMs: config.retentionMs });
}
