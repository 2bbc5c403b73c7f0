import path from 'node:path';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import { findSize, hashFile } from '../../runtime/files/file-checks.ts';
import { linkOrCopy } from '../../runtime/files/hard-links.ts';
import type { PlanFile } from '../jobs/worker-messages.ts';

/**
 * Gives a file of another store a name in the work folder, where the locked engine may read it and nobody removes it,
 * and compares it with its hash; returns the new path. So an export reads the file that its plan names to the end, or
 * fails. Errors: `file_damaged`, `retryable` when the file is gone: it was replaced, and the next plan names another.
 */
export async function pinFile({ file, sizeBytes, sha256 }: PlanFile, folder: string, name: string): Promise<string> {
  const pinned = path.join(folder, name);
  try {
    await linkOrCopy(file, pinned);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
    throw new AppError('file_damaged', `${file} is gone: it was removed or replaced`, {
      cause: error,
      retryable: true,
      hint: 'Create the export again, or restore the file from a backup.',
    });
  }
  await assertListWhole({ file, sizeBytes, sha256 }, pinned);
  return pinned;
}

/** Compares what lies at a path with what a plan says of its file. Errors: `file_damaged`. */
export async function assertListWhole({ file, sizeBytes, sha256 }: PlanFile, at: string): Promise<void> {
  if ((await findSize(at)) === sizeBytes && (await hashFile(at)) === sha256) return;
  throw new AppError('file_damaged', `${file} is damaged: its bytes are not those that were written`, {
    hint: 'Add its list anew, or restore the file from a backup.',
  });
}
