import { logDamaged } from '../log/actions.ts';
import path from 'node:path';
import { ensureFolders, removeFile, syncFolders, moveFile } from '../../runtime/files/durable-file.ts';
import { membersOf, parseChecksummed } from '../../runtime/files/checksummed-json.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { tableFolderMode } from '../../runtime/files/group-access.ts';
import { AppError } from '../../runtime/errors.ts';
import { isInteger, isText } from '../../runtime/store/shape.ts';
import type { Change, Table } from '../log/table.ts';
import { assertInsideLake, damagedRecord, toKey, toKeys, toMoves, type Move } from './change-record.ts';
import { isCommitted } from './failed-events.ts';

/**
 * An unfinished rewrite of 0.2 or 0.3 is completed; one with `movesAfter` and without a commit is dropped. Those
 * versions had lakes in folders only.
 */

export const intentName = 'intent.json';

const isChange = (value: unknown): value is Change => Array.isArray(membersOf(value)['actions']);

/** End of an absolute path of version 0.2: a data file or a file of failed events. */
const lakePath = /\/((?:events\/(?:fresh\/[^/]+|kind=[^/]+\/date=[^/]+\/[^/]+)|failed\/[^/]+))$/;

function parseKey(stored: unknown): string {
  const isAbsolute = typeof stored === 'string' && path.isAbsolute(stored);
  return toKey(isAbsolute ? lakePath.exec(path.posix.normalize(stored))?.[1] : stored);
}

/** Parses an intent's text. `file`: for errors. Error: `rewrite_damaged`, also for a path outside the lake. */
export function parseStagedRewrite(file: string, text: string) {
  try {
    const { commitId, baseVersion, moves, change, unlink, movesAfter } = parseChecksummed(text);
    if (!isText(commitId) || !isInteger(baseVersion) || !isChange(change)) throw new Error('it lacks members');
    return {
      commitId,
      baseVersion,
      moves: toMoves(moves, parseKey),
      change,
      unlink: toKeys(unlink, parseKey),
      movesAfter: movesAfter === undefined ? undefined : toMoves(movesAfter, parseKey),
    };
  } catch (error) {
    throw damagedRecord(`${file} is damaged`, error);
  }
}

async function moveStaged(lakeDir: string, folder: string, moves: readonly Move[]): Promise<void> {
  const folders = moves.map(({ to }) => path.dirname(path.join(lakeDir, to)));
  await ensureFolders(folders, tableFolderMode);
  for (const { name, to: key } of moves) {
    const [from, to] = [path.join(folder, name), path.join(lakeDir, key)];
    if (await exists(from)) await moveFile(from, to);
    // Another engine's VACUUM may have removed a renamed file that no commit named yet.
    else if (!(await exists(to)))
      throw new AppError('file_damaged', `${to}, which a rewrite has written, is missing`, {
        hint: "Restore it from a copy, and run 'tributary lake check'.",
      });
  }
  await syncFolders(folders);
}

/** Completes or drops a rewrite of an earlier version. Reports whether it was committed. */
export async function finishEarlier(table: Table, folder: string, text: string): Promise<boolean> {
  const lakeDir = path.dirname(table.dir);
  const file = path.join(folder, intentName);
  const { commitId, baseVersion, moves, change, unlink, movesAfter } = parseStagedRewrite(file, text);
  const targets = [...moves, ...(movesAfter ?? [])].map(({ to }) => to);
  await assertInsideLake(lakeDir, commitId, [...targets, ...unlink]);
  const committed = await isCommitted(table.dir, baseVersion, commitId);
  if (movesAfter !== undefined && !committed) {
    for (const { to } of moves) await removeFile(path.join(lakeDir, to));
    return false;
  }
  if (!committed) {
    await moveStaged(lakeDir, folder, moves);
    await table.commit((state) => {
      const replacedFile = change.actions.find(({ remove }) => remove !== undefined && !state.files.has(remove.path));
      if (replacedFile !== undefined)
        throw logDamaged(`${replacedFile.remove?.path}, which a rewrite was to replace, is no longer in the log`);
      return change;
    }, commitId);
  }
  await moveStaged(lakeDir, folder, movesAfter ?? []);
  for (const one of unlink) await removeFile(path.join(lakeDir, one));
  return true;
}
