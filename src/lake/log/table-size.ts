import { parseStats, type AddAction } from './actions.ts';
import { isYoungPath } from './young-folder.ts';

/**
 * What the live files of a table add up to, carried on from commit to commit: whoever asks, as often as he likes, pays
 * nothing for each file.
 */
export interface TableSize {
  /** Those whose writer has said how many they have. */
  rows: number;
  bytes: number;
  youngFiles: number;
  sealedFiles: number;
}

/** The size of a table without files. */
export function createTableSize(): TableSize {
  return { rows: 0, bytes: 0, youngFiles: 0, sealedFiles: 0 };
}

/** How the statistics of a file of ours begin: to parse all of them for the first number would keep a start waiting. */
const firstNumber = /^\{"numRecords":(\d+)[,}]/;

function findRows({ stats }: AddAction): number {
  const rows = firstNumber.exec(stats ?? '')?.[1] ?? parseStats(stats).numRecords;
  return Number.isSafeInteger(Number(rows)) ? Number(rows) : 0;
}

/** Counts a file in, or out. */
export function addToSize(size: TableSize, file: AddAction, sign: 1 | -1): void {
  size.rows += sign * findRows(file);
  size.bytes += sign * file.size;
  if (isYoungPath(file.path)) size.youngFiles += sign;
  else size.sealedFiles += sign;
}
