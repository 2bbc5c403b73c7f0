import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import process from 'node:process';
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
export async function findGroupId(group: string): Promise<number | undefined> {
  if (/^\d{1,10}$/.test(group) && ownGroups().includes(Number(group))) return Number(group);
  return numberIn(await findLine(group));
}

function ownGroups(): number[] {
  return [...(process.getgroups?.() ?? []), process.getegid?.() ?? -1];
}

/** Says whether the process may give its files to a group. */
export function mayGiveTo(groupId: number): boolean {
  return process.geteuid?.() === 0 || ownGroups().includes(groupId);
}
