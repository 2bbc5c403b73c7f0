import { AppError } from '../../runtime/errors.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import { findFileDamage } from '../files/data-file.ts';

/** Receives damaged files: their keys are unknown, so that duplicates of their events may be stored. */
export type OnDamage = (damages: readonly AppError[]) => void;

/** Returns the intact files. Errors: `file_damaged`, `retryable`, if one was replaced: its keys are in the new file. */
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
