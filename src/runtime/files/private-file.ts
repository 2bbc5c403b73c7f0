import { open } from 'node:fs/promises';
import { AppError, isSystemError } from '../errors.ts';

const others = 0o077;

/**
 * Reads a text file that holds secrets; undefined when there is none. Error: `config_invalid` where anybody but its
 * owner may read or write it.
 */
export async function findPrivateFile(file: string): Promise<string | undefined> {
  const handle = await open(file, 'r').catch((error: unknown) => {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  });
  if (handle === undefined) return undefined;
  try {
    const { mode } = await handle.stat();
    if ((mode & others) !== 0)
      throw new AppError('config_invalid', `${file} holds secrets, and others than its owner may read or write it`, {
        hint: `Run 'chmod 600 ${file}', and renew the secrets in it if somebody may have read them.`,
      });
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}
