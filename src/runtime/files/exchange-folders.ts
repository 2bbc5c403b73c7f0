import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { AppError, describeError, isAppError } from '../errors.ts';
import { membersOf } from './checksummed-json.ts';
import { makeWorkFolder, removeTree } from './work-files.ts';

const run = promisify(execFile);

/** Timeout of the helper: network file systems may respond slowly, ms. */
const helperMs = 10_000;

/** Number of renameat2(2), by processor. */
const callNumbers: Readonly<Record<string, number>> = { x64: 316, arm64: 276 };

/** Exchanges two names relative to the working folder (AT_FDCWD) by RENAME_EXCHANGE. */
const program = 'syscall($ARGV[0] + 0, -100, $ARGV[1], -100, $ARGV[2], 2) == 0 or do { print STDERR "$!\\n"; exit 1 }';

/**
 * Exchanges two folders of one file system in one step: a reader of either path finds one of them at any moment.
 * Durable once the caller has synced both parents. Node has no renameat2(2), so perl calls it. Error: `disk`.
 */
export async function exchangeFolders(folder: string, other: string): Promise<void> {
  const number = callNumbers[process.arch];
  try {
    if (process.platform !== 'linux' || number === undefined)
      throw new Error(`not supported on ${process.platform} ${process.arch}`);
    // -C0: paths are bytes in any environment.
    await run('perl', ['-C0', '-e', program, String(number), path.resolve(folder), path.resolve(other)], {
      timeout: helperMs,
      killSignal: 'SIGKILL',
    });
  } catch (error) {
    const { stderr } = membersOf(error);
    const reason = typeof stderr === 'string' && stderr !== '' ? stderr.trim() : describeError(error);
    throw new AppError('disk', `cannot exchange ${folder} with ${other}: ${reason}`, {
      cause: error,
      hint: 'Install perl, and keep the data folder on a local file system of Linux.',
    });
  }
}

/** Tries an exchange in a new folder, which it removes. Returns the error if the machine or file system has none. */
export async function findExchangeFault(room: string): Promise<AppError | undefined> {
  const [one, other] = [path.join(room, 'one'), path.join(room, 'other')];
  try {
    for (const folder of [room, one, other]) await makeWorkFolder(folder);
    await exchangeFolders(one, other);
    return undefined;
  } catch (error) {
    if (isAppError(error)) return error;
    throw error;
  } finally {
    await removeTree(room);
  }
}
