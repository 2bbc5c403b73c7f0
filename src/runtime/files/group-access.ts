/**
 * Who may read the lake: its owner, or a group as well (`TRIBUTARY_LAKE_GROUP`).
 *
 * Readable for the group are the tables (log and files), snapshot.sql, views.sql and watermark.json; not the failed
 * events, what was put aside, the catalogue and work in hand, which hold rows that are in no table. The data folder and
 * the lake's can be passed through and not listed: a member who could open the lake's folder could hold the compactor's
 * lock.
 *
 * The folders' own modes say whether it is so. What writes to the lake, a command from another shell too, asks for
 * `tableFileMode` and `tableFolderMode`, follows them by its umask (followGroupAccess), and leaves the group to the
 * set-group-id bits of the folders.
 * Crash: a table's folder, and last the lake's, get their mode when all below have theirs; the next start does what is
 * missing.
 */
import { chmod, chown, lstat, readdir, realpath, stat, readFile } from 'node:fs/promises';
import path from 'node:path';
import process from 'node:process';
import { AppError, isSystemError } from '../errors.ts';
import { makeFolder } from './make-folder.ts';
import { inParallel } from '../async/in-parallel.ts';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** The number in a line of group(5), `name:password:number:members`. */
function numberIn(line: string | undefined): number | undefined {
  const digits = line?.split(':')[2];
  return digits !== undefined && /^\d+$/.test(digits) ? Number(digits) : undefined;
}

/**
 * The line of a group in /etc/group, or in whatever else the machine asks for its groups (getent(1), where there is
 * one).
 */
async function findLine(group: string): Promise<string | undefined> {
  const lines = (await readFile('/etc/group', 'utf8').catch(() => '')).split('\n');
  const line = lines.find((one) => one.split(':')[0] === group) ?? lines.find((one) => one.split(':')[2] === group);
  if (line !== undefined) return line;
  const asked = await promisify(execFile)('getent', ['group', '--', group], { timeout: 5000 }).catch(() => undefined);
  return asked?.stdout.split('\n')[0];
}

/**
 * The number of a group that is named by name or number; undefined where there is none. A number that the process has
 * itself needs no name.
 */
async function findGroupId(group: string): Promise<number | undefined> {
  if (/^\d{1,10}$/.test(group) && ownGroups().includes(Number(group))) return Number(group);
  return numberIn(await findLine(group));
}

function ownGroups(): number[] {
  return [...(process.getgroups?.() ?? []), process.getegid?.() ?? -1];
}

/** Says whether the process may give its files to a group. */
function mayGiveTo(groupId: number): boolean {
  return process.geteuid?.() === 0 || ownGroups().includes(groupId);
}

/**
 * Modes that the files and folders of a table are made with; the umask takes the group's bits away where the lake is
 * its owner's alone.
 */
export const tableFileMode = 0o640;
export const tableFolderMode = 0o750;

const setGroupId = 0o2000;
const lakeMode = setGroupId | 0o710;
const openUmask = 0o027;
const closedUmask = 0o077;

/**
 * Folders of the lake that stay its owner's. Files go from `staging` into the tables, and have their group from there.
 */
const privateFolders: Readonly<Record<string, number>> = {
  failed: 0o700,
  orphans: 0o700,
  catalogue: 0o700,
  staging: setGroupId | 0o700,
};
/** Files beside the tables, as readable as these. */
const besideTables = ['snapshot.sql', 'views.sql', 'watermark.json'];

function modeOf(stats: { readonly mode: number }): number {
  return stats.mode & 0o7777;
}

/**
 * Says whether a lake is open to its group. A set-group-id bit alone may come from the folder that the data folder was
 * made in.
 */
async function isOpen(lakeDir: string): Promise<boolean> {
  return ((await stat(lakeDir)).mode & (setGroupId | 0o010)) === (setGroupId | 0o010);
}

/** Makes this process write to a lake as the lake's folder says: for its group, or for its owner alone. */
export async function followGroupAccess(lakeDir: string): Promise<void> {
  if (await isOpen(lakeDir)) process.umask(openUmask);
  // Only what this has opened: whoever runs the code as a library has an umask of their own.
  else if (process.umask() === openUmask) process.umask(closedUmask);
}

/**
 * The number of the group that a setting names. Errors: `config_invalid` where there is none, or this process is no
 * member.
 */
export async function resolveLakeGroup(group: string): Promise<number> {
  const hint =
    'Name a group that there is, and start the service as a member of it (usermod -aG GROUP USER, then log in anew; SupplementaryGroups= in systemd).';
  const groupId = await findGroupId(group);
  if (groupId === undefined)
    throw new AppError('config_invalid', `TRIBUTARY_LAKE_GROUP names '${group}', and there is no such group`, { hint });
  if (!mayGiveTo(groupId))
    throw new AppError(
      'config_invalid',
      `TRIBUTARY_LAKE_GROUP names '${group}', and this process is no member of that group`,
      { hint },
    );
  return groupId;
}

/** Gives one file or folder its group and mode, if it has others. */
async function give(file: string, groupId: number, mode: number): Promise<void> {
  const stats = await lstat(file);
  if (stats.gid !== groupId) await chown(file, stats.uid, groupId);
  // After the group: changing that takes the set-group-id bit away.
  if (stats.gid !== groupId || modeOf(stats) !== mode) await chmod(file, mode);
}

/**
 * Gives what lies in a folder of a table, and last the folder itself. Each file is looked at once; a folder before its
 * files, so that new ones get the group.
 */
async function giveFolder(folder: string, groupId: number): Promise<void> {
  await give(folder, groupId, setGroupId | 0o700);
  const entries = await readdir(folder, { withFileTypes: true });
  await inParallel(
    entries.filter((entry) => entry.isFile() && entry.name !== '.lock'),
    16,
    ({ name }) => give(path.join(folder, name), groupId, tableFileMode).catch(ignoreGone),
  );
  for (const entry of entries.filter((one) => one.isDirectory()))
    await giveFolder(path.join(folder, entry.name), groupId).catch(ignoreGone);
  await give(folder, groupId, setGroupId | tableFolderMode);
}

/** What a reader's clean-up, or a command, has removed meanwhile needs no mode. */
function ignoreGone(error: unknown): void {
  if (!isSystemError(error, 'ENOENT')) throw error;
}

/** The folders of the tables. */
async function listTables(root: string): Promise<string[]> {
  const entries = await readdir(root, { withFileTypes: true });
  return entries
    .filter((entry) => entry.isDirectory() && privateFolders[entry.name] === undefined)
    .map(({ name }) => path.join(root, name));
}

/**
 * Makes the lake readable for a group: what is there, and what is made later. A year of files takes a second, once; a
 * lake that is the group's already takes a look at its folders. Errors: `disk` where the files are not this process's
 * own to give.
 */
export async function openToGroup(dataDir: string, lakeDir: string, groupId: number): Promise<void> {
  try {
    await makeFolder(lakeDir);
    const root = await realpath(lakeDir);
    const stats = await lstat(root);
    const isDone = async (folder: string): Promise<boolean> => {
      const { gid, mode } = await lstat(folder);
      return gid === groupId && modeOf({ mode }) === (setGroupId | tableFolderMode);
    };
    if (stats.gid !== groupId) await give(root, groupId, setGroupId | 0o700);
    for (const [name, mode] of Object.entries(privateFolders))
      await give(path.join(root, name), groupId, mode).catch(ignoreGone);
    for (const table of await listTables(root)) if (!(await isDone(table))) await giveFolder(table, groupId);
    for (const name of besideTables) await give(path.join(root, name), groupId, tableFileMode).catch(ignoreGone);
    await give(root, groupId, lakeMode);
    const data = await realpath(dataDir);
    await give(data, groupId, (modeOf(await lstat(data)) & 0o7707) | 0o010);
  } catch (error) {
    if (!isSystemError(error, 'EPERM', 'EACCES', 'EROFS')) throw error;
    throw new AppError('disk', 'the lake cannot be given to the group of TRIBUTARY_LAKE_GROUP', {
      cause: error,
      retryable: false,
      hint: 'Run the service as the owner of the data folder, or give the files to it (chown -R); under systemd, leave RestrictSUIDSGID out of its unit.',
    });
  }
}

/** Takes the lake back from its group, at once for all that is in it. Returns whether it had one. */
export async function closeToGroup(dataDir: string, lakeDir: string): Promise<boolean> {
  const wasOpen = await isOpen(lakeDir).catch((error: unknown) => {
    if (isSystemError(error, 'ENOENT')) return false;
    throw error;
  });
  if (!wasOpen) return false;
  const root = await realpath(lakeDir);
  await chmod(root, 0o700);
  // Each table's files are looked at again when it is opened to a group the next time.
  for (const table of await listTables(root)) await chmod(table, 0o700);
  const data = await realpath(dataDir);
  await chmod(data, modeOf(await lstat(data)) & 0o7700);
  return true;
}
