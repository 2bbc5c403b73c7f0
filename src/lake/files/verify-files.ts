import { AppError } from '../../runtime/errors.ts';
import { findSize, hashFile } from '../../runtime/files/file-checks.ts';
import type { DataFile } from '../log/snapshot.ts';

const hint = "Restore the file from a copy; 'tributary lake check' lists every damaged one.";

/**
 * Says what is wrong with a data file: `file_damaged`, `retryable` when it is not there, which an erasure may have
 * caused. Reads it whole: Parquet readers check no sums, so a flipped bit in a page would come out as a value like any
 * other.
 */
export async function findFileDamage({
  absolutePath,
  sizeBytes,
  sha256,
}: Pick<DataFile, 'absolutePath' | 'sizeBytes' | 'sha256'>): Promise<AppError | undefined> {
  const size = await findSize(absolutePath);
  if (size === undefined)
    return new AppError('file_damaged', `${absolutePath} is not there`, { retryable: true, hint });
  if (size !== sizeBytes)
    return new AppError('file_damaged', `${absolutePath} is damaged: it has ${size} bytes instead of ${sizeBytes}`, {
      hint,
    });
  if (sha256 === undefined || (await hashFile(absolutePath)) === sha256) return undefined;
  return new AppError('file_damaged', `${absolutePath} is damaged: its bytes are not those that were written`, {
    hint,
  });
}

/**
 * Throws the damage of the first file that has one, before anything is made of their rows. Files of another engine are
 * checked by size only.
 */
export async function assertFilesWhole(files: readonly DataFile[]): Promise<void> {
  for (const file of files) {
    const damage = await findFileDamage(file);
    if (damage !== undefined) throw damage;
  }
}
