import path from 'node:path';
import { parseChecked, renderChecked } from './checked-json.ts';
import { findTextFile, moveFile, removeFile, syncFile, syncFolder, writeFileDurably } from './durable-file.ts';
import { getSize, hashFile } from './file-checks.ts';
import { findNames } from './folder-names.ts';

/**
 * A large file that is replaced as a whole, and the record that names it: `NAME.json` says which `NAME-HASH.parquet` is
 * in force, with its size and its hash. Who reads the record and then the file has the bytes of that record or none,
 * never those of another one.
 */
export interface RecordedFile {
  /** Absolute path. */
  readonly file: string;
  readonly sizeBytes: number;
  /** Hash of its bytes, hex. */
  readonly sha256: string;
}

/** What a record says beside where its file is. */
export type RecordFacts = Readonly<Record<string, unknown>>;

const recordEnd = '.json';
/** A data file: the name of its record, and the beginning of its hash. */
const dataFile = /^(.+)-[0-9a-f]{16}\.parquet$/;
const sha256Form = /^[0-9a-f]{64}$/;

/** Path of a record. */
export function recordPath(folder: string, name: string): string {
  return path.join(folder, `${name}${recordEnd}`);
}

/** Lists the names of the records in a folder, in no order; none where there is no folder. */
export async function listRecords(folder: string): Promise<string[]> {
  const names = await findNames(folder);
  return names.filter((name) => name.endsWith(recordEnd)).map((name) => name.slice(0, -recordEnd.length));
}

/**
 * Reads a record; undefined when there is none. Throws a plain Error with the reason when it is damaged; the caller
 * knows what it is of and the way out.
 */
export async function findRecord(
  folder: string,
  name: string,
): Promise<(RecordedFile & { readonly facts: RecordFacts }) | undefined> {
  const text = await findTextFile(recordPath(folder, name));
  if (text === undefined) return undefined;
  // Not as `sha256`, which is the record's own.
  const { version: _, file, sizeBytes, fileSha256: sha256, ...facts } = parseChecked(text);
  const isWhole =
    typeof file === 'string' &&
    dataFile.exec(file)?.[1] === name &&
    Number.isSafeInteger(sizeBytes) &&
    typeof sha256 === 'string' &&
    sha256Form.test(sha256);
  if (!isWhole) throw new Error('its content is not what this version writes');
  return { file: path.join(folder, file), sizeBytes: sizeBytes as number, sha256, facts };
}

/**
 * Removes the data files of a name but one, and those whose record is gone: what a killed change has left. The caller
 * holds the lock of the folder.
 */
export async function removeOthers(folder: string, name: string, kept?: string): Promise<void> {
  const names = await findNames(folder);
  const records = new Set(names);
  for (const found of names) {
    const owner = dataFile.exec(found)?.[1];
    const isLeft = owner !== undefined && (owner === name ? found !== kept : !records.has(`${owner}${recordEnd}`));
    if (isLeft || found.endsWith('.tmp')) await removeFile(path.join(folder, found));
  }
  await syncFolder(folder);
}

/**
 * Gives a finished file its place in the folder, durably, and writes the record that names it; then removes the file
 * that it replaces. The caller holds the lock of the folder. Crash: the record before is in force, or this one; a file
 * that none names goes with the next change.
 */
export async function publishRecord(
  folder: string,
  name: string,
  temporary: string,
  facts: RecordFacts,
): Promise<void> {
  await syncFile(temporary);
  const [sizeBytes, sha256] = [await getSize(temporary), await hashFile(temporary)];
  const file = `${name}-${sha256.slice(0, 16)}.parquet`;
  await moveFile(temporary, path.join(folder, file));
  await syncFolder(folder);
  await writeFileDurably(recordPath(folder, name), renderChecked({ file, sizeBytes, fileSha256: sha256, ...facts }));
  await removeOthers(folder, name, file);
}

/** Removes a record, durably, then its file. The caller holds the lock of the folder. */
export async function withdrawRecord(folder: string, name: string): Promise<void> {
  await removeFile(recordPath(folder, name));
  await syncFolder(folder);
  await removeOthers(folder, name);
}
