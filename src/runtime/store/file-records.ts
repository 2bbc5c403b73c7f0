import path from 'node:path';
import { getSize, hashFile } from '../files/file-checks.ts';
import { openStore } from './open-store.ts';
import { openMarkedRecords } from './marked-records.ts';
import { createRecords, type RecordKind } from './records.ts';
import { isCount, matching, shapeOf } from './shape.ts';

/**
 * Large files, each named by a record: `NAME.json` has the name `NAME-HASH.parquet`, size and hash of the current one.
 * A reader gets the bytes of the record that it has read, or none.
 */
export interface RecordedFile {
  readonly file: string;
  readonly sizeBytes: number;
  readonly sha256: string;
}

type Facts = object;
/** `fileSha256`: `sha256` is the record's own checksum. */
type FileDocument = { readonly file: string; readonly sizeBytes: number; readonly fileSha256: string };

/** The id of the record, and the start of the file's hash. */
const dataFile = /^(.+)-[0-9a-f]{16}\.parquet$/;
const isFileDocument = shapeOf<FileDocument>({
  file: matching(/^[\w-]+-[0-9a-f]{16}\.parquet$/),
  sizeBytes: isCount,
  fileSha256: matching(/^[0-9a-f]{64}$/),
});

export interface FileRecords<F extends Facts> {
  get(id: string): Promise<(RecordedFile & { readonly facts: F }) | undefined>;
  ids(prefix?: string): Promise<readonly string[]>;
  /** Uploads a finished file and its record, then removes the previous file. Crash: either record is current. */
  publish(id: string, temporary: string, facts: F): Promise<void>;
  /** Removes a record, damaged or missing too, then its file. Returns whether there was one. */
  withdraw(id: string): Promise<boolean>;
  /** Removes all files of a record but the current one, and files without a record. */
  tidy(id: string): Promise<void>;
  /** Runs one change of these files at a time, across processes. */
  hold<R>(work: () => Promise<R>): Promise<R>;
  nameOf(id: string): string;
}

const folderOf = (id: string): string => id.slice(0, id.lastIndexOf('/') + 1);

/** Opens the files of a kind in a folder. `isMarked`: lost records are reported (marked-records.ts). */
export function openFileRecords<F extends Facts>(
  folder: string,
  { isValid, ...kind }: RecordKind<F>,
  isMarked: boolean,
): FileRecords<F> {
  const fileKind: RecordKind<F & FileDocument> = {
    ...kind,
    isValid: (document): document is F & FileDocument => isFileDocument(document) && isValid(document),
  };
  const store = openStore(folder);
  const records = isMarked ? openMarkedRecords(folder, fileKind) : createRecords(store, fileKind);

  async function tidy(id: string): Promise<void> {
    const record = await records.getSound(id);
    const keys = new Set(await store.list(folderOf(id)));
    const left = [...keys].filter((key) => {
      const owner = dataFile.exec(key)?.[1];
      if (owner === undefined || folderOf(key) !== folderOf(id)) return false;
      return owner === id ? key !== folderOf(id) + (record?.file ?? '') : !keys.has(`${owner}.json`);
    });
    await store.remove(left);
    await store.sweep(folderOf(id));
  }

  return {
    async get(id) {
      const found = await records.get(id);
      if (found === undefined) return undefined;
      const { file, sizeBytes, fileSha256: sha256, ...facts }: FileDocument & object = found;
      return { file: store.nameOf(folderOf(id) + file), sizeBytes, sha256, facts: facts as F };
    },
    ids: (prefix) => records.ids(prefix),
    tidy,
    async publish(id, temporary, facts) {
      const [sizeBytes, fileSha256] = [await getSize(temporary), await hashFile(temporary)];
      const file = `${path.posix.basename(id)}-${fileSha256.slice(0, 16)}.parquet`;
      await store.upload(folderOf(id) + file, temporary);
      await records.put(id, { file, sizeBytes, fileSha256, ...facts });
      await tidy(id);
    },
    async withdraw(id) {
      const wasThere = await records.remove(id);
      await tidy(id);
      return wasThere;
    },
    hold: (work) => store.hold('', work),
    nameOf: (id) => records.nameOf(id),
  };
}
