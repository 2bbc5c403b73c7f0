import path from 'node:path';
import { openFileRecords, type FileRecords } from '../../runtime/store/file-records.ts';

/** The record of the folded catalogue in its folder (runtime/store/file-records.ts). */
export const catalogueName = 'catalogue';

/**
 * The form of packs, and so of what is made of them: those of another form are made again. v1: examples that one person
 * may have sent alone; v2: numbers as JavaScript writes them were texts.
 */
export const catalogueForm = 'v3';

/** Where the catalogue lies below the lake's folder. */
export function cataloguePaths(lakeDir: string) {
  const root = path.resolve(lakeDir);
  const folder = path.join(root, 'catalogue');
  return {
    root,
    /** Of the fold, and of what it was made of. */
    folder,
    packs: path.join(folder, 'packs'),
    notices: path.join(folder, 'notices.json'),
    keyNotices: path.join(folder, 'key-notices.json'),
    viewsSql: path.join(root, 'views.sql'),
  } as const;
}

/** What the record of the fold says beside its file. */
export interface FoldFacts {
  readonly form?: string;
  /** The digest of its parts. */
  readonly parts?: string;
  readonly tableVersion?: number;
  readonly missingFiles?: number;
}

const isFacts = (document: unknown): document is FoldFacts => typeof document === 'object';

/** Opens the file of the folded catalogue. */
export function openFolds(lakeDir: string): FileRecords<FoldFacts> {
  const damaged = {
    code: 'record_damaged',
    hint: "Remove the folder 'catalogue' of the lake: the compactor makes it anew.",
  } as const;
  return openFileRecords(cataloguePaths(lakeDir).folder, { isValid: isFacts, damaged }, false);
}
