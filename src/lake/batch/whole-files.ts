import { AppError } from '../../runtime/errors.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import { findFileDamage } from '../files/data-file.ts';

/** Told of files that could not be trusted: their keys are not known, so a repeat of one would be stored again. */
export type OnDamage = (damages: readonly AppError[]) => void;

/**
 * Leaves out the files that cannot be trusted. Errors: `file_damaged`, `retryable`, when one was replaced, by another
 * file or by a rewrite under its own path: its keys are in that one.
 */
export async function findWhole(
  { table, onDamage }: { readonly table: Table; readonly onDamage: OnDamage },
  files: readonly DataFile[],
  signal?: AbortSignal,
): Promise<DataFile[]> {
  const whole: DataFile[] = [];
  const damages: AppError[] = [];
  for (const file of files) {
    signal?.throwIfAborted();
    const damage = await findFileDamage(file);
    if (damage === undefined) {
      whole.push(file);
      continue;
    }
    await table.refresh();
    if (!table.snapshot().files.some(({ path, sha256 }) => path === file.path && sha256 === file.sha256))
      throw new AppError('file_damaged', damage.message, {
        cause: damage,
        retryable: true,
        hint: 'Nothing: a rewrite has taken its place, which is read at the next try.',
      });
    damages.push(damage);
  }
  if (damages.length > 0) onDamage(damages);
  return whole;
}
