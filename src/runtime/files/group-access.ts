/**
 * Read access to the lake: its owner's, or also that of a group (`TRIBUTARY_LAKE_GROUP`). The group can read the
 * tables, snapshot.sql, views.sql and watermark.json, but no failed events, quarantined files, catalogue, first-seen
 * parts or staged work. It can pass through the data folder and `lake/`, but not list them: a member who could open
 * `lake/` could hold the compactor's lock. The modes of the folders store the setting. Writers use `tableFileMode` and
 * `tableFolderMode`, take their umask from them (followGroupAccess), and inherit the group by set-group-id bits. Crash:
 * each folder gets its mode after its contents, and `lake/` is last; the next start continues.
 */
import { chmod, chown, lstat, readdir, realpath, stat, readFile } from 'node:fs/promises';
import path from 'node:path';
import process from 'node:process';
import { AppError, isSystemError, unlessMissing } from '../errors.ts';
import { makeFolder } from './make-folder.ts';
import { inParallel } from '../async/in-parallel.ts';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

function numberIn(line: string | undefined): number | undefined {
  const digits = line?.split(':')[2];
  return digits !== undefined && /^\d+$/.test(digits) ? Number(digits) : undefined;
}

/** Finds the line of a group in /etc/group, or by getent(1), which knows the other sources of a machine. */
async function findLine(group: string): Promise<string | undefined> {
  const lines = (await readFile('/etc/group', 'utf8').catch(() => '')).split('\n');
  const line = lines.find((one) => one.split(':')[0] === group) ?? lines.find((one) => one.split(':')[2] === group);
  if (line !== undefined) return line;
  const asked = await promisify(execFile)('getent', ['group', '--', group], { timeout: 5000 }).catch(() => undefined);
  return asked?.stdout.split('\n')[0];
}

/** Finds the id of a group by name or number. An id that the process has needs no name. */
async function findGroupId(group: string): Promise<number | undefined> {
  if (/^\d{1,10}$/.test(group) && ownGroups().includes(Number(group))) return Number(group);
  return numberIn(await findLine(group));
}

function ownGroups(): number[] {
  return [...(process.getgroups?.() ?? []), process.getegid?.() ?? -1];
}

function mayGiveTo(groupId: number): boolean {
  return process.geteuid?.() === 0 || ownGroups().includes(groupId);
}

/** Modes of new files and folders of a table. The umask removes the group's bits if the lake is its owner's only. */
export const tableFileMode = 0o640;
export const tableFolderMode = 0o750;

const setGroupId = 0o2000;
const lakeMode = setGroupId | 0o710;
const openUmask = 0o027;
const closedUmask = 0o077;

/** Folders of the lake that stay private. Files get their group in `staging`, before they move into the tables. */
const privateFolders: Readonly<Record<string, number>> = {
  failed: 0o700,
  quarantine: 0o700,
  orphans: 0o700,
  catalogue: 0o700,
  'first-seen': 0o700,
  staging: setGroupId | 0o700,
};
const besideTables = ['snapshot.sql', 'views.sql', 'watermark.json'];

function modeOf(stats: { readonly mode: number }): number {
  return stats.mode & 0o7777;
}

/** Reports whether a lake is open to its group. A lake outside of folders is not. The set-group-id bit alone may be inherited. */
async function isOpen(lakeDir: string): Promise<boolean> {
  const mode = (await unlessMissing(stat(lakeDir), undefined))?.mode ?? 0;
  return (mode & (setGroupId | 0o010)) === (setGroupId | 0o010);
}

/** Sets the umask of this process by the mode of the lake's folder. */
export async function followGroupAccess(lakeDir: string): Promise<void> {
  if (await isOpen(lakeDir)) process.umask(openUmask);
  // Reverts only its own change: a program that embeds the code has its own umask.
  else if (process.umask() === openUmask) process.umask(closedUmask);
}

/** Returns the id of a group. Error: `config_invalid` without such a group, or if this process is not a member. */
export async function resolveLakeGroup(group: string): Promise<number> {
  const hint =
    'Set it to an existing group, and start the service as a member (usermod -aG GROUP USER, then log in again; SupplementaryGroups= in systemd).';
  const groupId = await findGroupId(group);
  if (groupId === undefined)
    throw new AppError('config_invalid', `TRIBUTARY_LAKE_GROUP: the group '${group}' does not exist`, { hint });
  if (!mayGiveTo(groupId))
    throw new AppError('config_invalid', `TRIBUTARY_LAKE_GROUP: this process is not a member of the group '${group}'`, {
      hint,
    });
  return groupId;
}

async function give(file: string, groupId: number, mode: number): Promise<void> {
  const stats = await lstat(file);
  if (stats.gid !== groupId) await chown(file, stats.uid, groupId);
  // After the group: changing it clears the set-group-id bit.
  if (stats.gid !== groupId || modeOf(stats) !== mode) await chmod(file, mode);
}

/** Sets the group of a table's folders and files. A folder precedes its files, so that new files inherit the group. */
async function giveFolder(folder: string, groupId: number): Promise<void> {
  await give(folder, groupId, setGroupId | 0o700);
  const entries = await readdir(folder, { withFileTypes: true });
  await inParallel(
    entries.filter((entry) => entry.isFile() && entry.name !== '.lock'),
    16,
    ({ name }) => unlessMissing(give(path.join(folder, name), groupId, tableFileMode), undefined),
  );
  for (const entry of entries.filter((one) => one.isDirectory()))
    await unlessMissing(giveFolder(path.join(folder, entry.name), groupId), undefined);
  await give(folder, groupId, setGroupId | tableFolderMode);
}

async function listTables(root: string): Promise<string[]> {
  const entries = await readdir(root, { withFileTypes: true });
  return entries
    .filter((entry) => entry.isDirectory() && privateFolders[entry.name] === undefined)
    .map(({ name }) => path.join(root, name));
}

/** Makes the lake and later writes readable for a group; a year of files takes a second. Error: `disk` if not owner. */
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
      await unlessMissing(give(path.join(root, name), groupId, mode), undefined);
    for (const table of await listTables(root)) if (!(await isDone(table))) await giveFolder(table, groupId);
    for (const name of besideTables)
      await unlessMissing(give(path.join(root, name), groupId, tableFileMode), undefined);
    await give(root, groupId, lakeMode);
    const data = await realpath(dataDir);
    await give(data, groupId, (modeOf(await lstat(data)) & 0o7707) | 0o010);
  } catch (error) {
    if (!isSystemError(error, 'EPERM', 'EACCES', 'EROFS')) throw error;
    throw new AppError('disk', 'cannot change the group of the lake to TRIBUTARY_LAKE_GROUP', {
      cause: error,
      retryable: false,
      hint: 'Run the service as the owner of the data folder, or give the files to it (chown -R); under systemd, leave RestrictSUIDSGID out of its unit.',
    });
  }
}

/** Revokes the group's access at once. Returns whether it had any. */
export async function closeToGroup(dataDir: string, lakeDir: string): Promise<boolean> {
  const wasOpen = await isOpen(lakeDir);
  if (!wasOpen) return false;
  const root = await realpath(lakeDir);
  await chmod(root, 0o700);
  // The next opening then visits the files of each table again.
  for (const table of await listTables(root)) await chmod(table, 0o700);
  const data = await realpath(dataDir);
  await chmod(data, modeOf(await lstat(data)) & 0o7700);
  return true;
}
