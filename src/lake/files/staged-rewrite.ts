import assert from 'node:assert/strict';
import { mkdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { isTableName } from '../../datasets/pipeline-file.ts';
import {
  ensureFolders,
  findTextFile,
  removeFile,
  syncFolder,
  syncFolders,
  writeFileDurably,
} from '../../runtime/files/durable-file.ts';
import { AppError } from '../../runtime/errors.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { isCommitted } from './failed-events.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { listNames } from '../../runtime/files/folder-names.ts';
import { tableFolderMode } from '../../runtime/files/group-access.ts';
import { assertInsideLake, parseIntent, renderIntent } from './staged-rewrite-file.ts';
import type { BuildChange, Change, Table } from '../log/table.ts';

/** The steps of a rewrite at which a crash is tested. */
export const intentSteps = [
  'staged',
  'intent-written',
  'file-renamed',
  'renamed',
  'intent-committed',
  'intent-cleaned',
] as const;

/**
 * A rewrite of files that readers may see: seal, erasure, replay. Everything new is complete in a folder of its own
 * below `staging/`; the intent says where each file goes and what the commit is. From the intent on, recovery only
 * rolls forward. On the disk its paths are relative to the lake's folder (staged-rewrite-file.ts), so that a copied or
 * moved lake finishes its own files.
 */
export interface Intent {
  readonly commitId: string;
  /** The version the rewrite was made from. */
  readonly baseVersion: number;
  /** Staged files, by name in the staging folder, and their final absolute paths. An existing file is replaced. */
  readonly moves: readonly Move[];
  /** The commit, except for what the table adds. */
  readonly change: Change;
  /** Files to unlink at once after the commit, absolute paths; others wait for the retention. */
  readonly unlink: readonly string[];
  /**
   * Staged files that are moved after the commit. A rewrite that has this member may be given up until then: `moves`
   * must name new files only. Recovery finishes it when its commit was made, and else gives it up.
   */
  readonly movesAfter?: readonly Move[];
}

/** A staged file, by its name in the staging folder, and its final absolute path. */
export interface Move {
  readonly name: string;
  readonly to: string;
}

const intentFile = (folder: string): string => path.join(folder, 'intent.json');

/** Creates the staging folder of a rewrite. */
export async function openStaging(stagingDir: string, commitId: string): Promise<string> {
  const folder = path.join(stagingDir, commitId);
  await mkdir(folder, { mode: 0o700 });
  return folder;
}

/**
 * Writes the intent, which makes the rewrite certain, and carries it out. The staged files are fsynced already.
 * `mayCommit` is for a rewrite with `movesAfter`: it looks at the table at the instant of the commit, and throws to
 * have the rewrite given up, which leaves everything as it was.
 */
export async function carryOut(
  table: Table,
  stagingDir: string,
  intent: Intent,
  crashPoint: CrashPoint,
  mayCommit?: (...args: Parameters<BuildChange>) => void,
): Promise<void> {
  const folder = path.join(stagingDir, intent.commitId);
  assert(findStranger(table, intent) === undefined, 'a rewrite moves files of its own table');
  await syncFolder(folder);
  await crashPoint('staged');
  await writeFileDurably(intentFile(folder), renderIntent(path.dirname(table.dir), intent));
  // A power cut that took the folder, intent and all, would leave renamed files that nobody knows of.
  await syncFolder(stagingDir);
  await crashPoint('intent-written');
  await moveStaged(folder, intent.moves, crashPoint);
  try {
    await commitIntent(table, intent, mayCommit);
  } catch (error) {
    // Whatever went wrong: only a commit that is surely not there may be given up.
    if (intent.movesAfter !== undefined && !(await isCommitted(table.dir, intent.baseVersion, intent.commitId)))
      await giveUp(folder, intent);
    throw error;
  }
  await finishCommitted(folder, intent, crashPoint);
}

/** A file of another table that an intent names; undefined: there is none. */
function findStranger(table: Table, { moves, movesAfter = [], unlink }: Intent): string | undefined {
  const lakeDir = path.dirname(table.dir);
  return [...[...moves, ...movesAfter].map(({ to }) => to), ...unlink].find((file) => {
    const [first = ''] = path.relative(lakeDir, file).split(path.sep);
    return isTableName(first) && first !== path.basename(table.dir);
  });
}

/**
 * Refuses to commit what is not there: another engine's clean-up may have taken a renamed file that no commit named
 * yet.
 */
async function assertInPlace({ moves }: Intent): Promise<void> {
  for (const { to } of moves) {
    if (!(await exists(to)))
      throw new AppError('file_damaged', `${to}, which a rewrite has written, is gone`, {
        hint: "Restore it from a copy, and run 'tributary lake check'.",
      });
  }
}

async function moveStaged(folder: string, moves: readonly Move[], crashPoint: CrashPoint): Promise<void> {
  const targets = moves.map(({ to }) => path.dirname(to));
  await ensureFolders(targets, tableFolderMode);
  for (const { name, to } of moves) {
    const from = path.join(folder, name);
    if (!(await exists(from))) continue;
    await rename(from, to);
    await crashPoint('file-renamed');
  }
  await syncFolders(targets);
  await crashPoint('renamed');
}

async function commitIntent(
  table: Table,
  intent: Intent,
  mayCommit?: (...args: Parameters<BuildChange>) => void,
): Promise<void> {
  await assertInPlace(intent);
  await table.commit((state, lake) => {
    mayCommit?.(state, lake);
    const gone = intent.change.actions.find(
      (action) => action.remove !== undefined && !state.files.has(action.remove.path),
    );
    if (gone !== undefined)
      throw new AppError(
        'log_damaged',
        `${gone.remove?.path} was to be replaced by a rewrite, and the log does not name it any more`,
        { hint: "Run 'tributary lake check', and restore what it names from a backup." },
      );
    return intent.change;
  }, intent.commitId);
}

async function finishCommitted(folder: string, intent: Intent, crashPoint: CrashPoint): Promise<void> {
  await crashPoint('intent-committed');
  if (intent.movesAfter !== undefined) await moveStaged(folder, intent.movesAfter, crashPoint);
  for (const file of intent.unlink) await removeFile(file);
  await removeIntent(folder);
  await crashPoint('intent-cleaned');
  await rm(folder, { recursive: true, force: true });
}

async function giveUp(folder: string, intent: Intent): Promise<void> {
  for (const { to } of intent.moves) await removeFile(to);
  await removeIntent(folder);
  await rm(folder, { recursive: true, force: true });
}

async function removeIntent(folder: string): Promise<void> {
  await removeFile(intentFile(folder));
  // An intent that a power cut brings back when the log has forgotten its commit could not be told from one to carry
  // out.
  await syncFolder(folder);
}

/** Brings a rewrite that was interrupted to its end; says whether it stands. */
async function finish(table: Table, folder: string, intent: Intent, crashPoint: CrashPoint): Promise<boolean> {
  const committed = await isCommitted(table.dir, intent.baseVersion, intent.commitId);
  if (intent.movesAfter !== undefined && !committed) {
    await giveUp(folder, intent);
    return false;
  }
  await moveStaged(folder, intent.moves, crashPoint);
  if (!committed) await commitIntent(table, intent);
  await finishCommitted(folder, intent, crashPoint);
  return true;
}

/** Lists the work in hand of a table: in the staging folder of the events those of the other tables lie beside it. */
export async function listStaged(stagingDir: string): Promise<string[]> {
  return (await listNames(stagingDir)).filter((name) => !isTableName(name));
}

/**
 * Finishes the rewrites of a table that a crash interrupted and drops staged work without an intent, or that may be
 * given up. `stagingDir` is that table's own. Only under its maintenance lock. Returns how many were finished. Errors:
 * `rewrite_damaged` when an intent is damaged or names a place outside the lake, or another table's.
 */
export async function recoverIntents(table: Table, stagingDir: string, crashPoint: CrashPoint): Promise<number> {
  const lakeDir = path.dirname(table.dir);
  let finished = 0;
  for (const name of await listStaged(stagingDir)) {
    const folder = path.join(stagingDir, name);
    const text = await findTextFile(intentFile(folder));
    if (text === undefined) {
      await rm(folder, { recursive: true, force: true });
      continue;
    }
    const intent = parseIntent(intentFile(folder), text, lakeDir);
    await assertInsideLake(lakeDir, intent);
    const stranger = findStranger(table, intent);
    if (stranger !== undefined)
      throw new AppError('rewrite_damaged', `${intentFile(folder)} names ${stranger}, a file of another table`, {
        hint: "Put its folder away and run 'tributary lake check': what it had begun to replace may be there twice.",
      });
    if (await finish(table, folder, intent, crashPoint)) finished += 1;
  }
  return finished;
}
