import { createHash } from 'node:crypto';
import path from 'node:path';
import { findTextFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { AppError } from '../runtime/errors.ts';

/** The highest id that may have been deleted; written before a folder is, so that no id comes back. */
export function highestIdPath(reportsDir: string): string {
  return path.join(reportsDir, 'highest-id');
}

function checksum(id: string): string {
  return createHash('sha256').update(id).digest('hex');
}

/**
 * Reads the highest id that may have been deleted; 0 when none was. Errors: `report_damaged` when it is not what was
 * written.
 */
export async function readHighestId(reportsDir: string): Promise<number> {
  const file = highestIdPath(reportsDir);
  const text = await findTextFile(file);
  if (text === undefined) return 0;
  // Version 0.1.0 wrote the number alone.
  const [, id, sha256] = /^(\d{1,15})(?: ([0-9a-f]{64}))?\n$/.exec(text) ?? [];
  if (id === undefined || (sha256 !== undefined && sha256 !== checksum(id))) {
    throw new AppError('report_damaged', `${file} is damaged`, {
      hint: 'Write a number into it that is no lower than the id of any export request ever made (the log lines "export request ended" have them), and a line break.',
    });
  }
  return Number(id);
}

/** Remembers the highest id that was given out: durable when it returns. */
export async function writeHighestId(reportsDir: string, id: number): Promise<void> {
  await writeFileDurably(highestIdPath(reportsDir), `${id} ${checksum(String(id))}\n`);
}
