import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { getSize, hashFile } from '../files/file-checks.ts';
import { openStore, type StoredFile } from './open-store.ts';
import { openMarkedRecords } from './marked-records.ts';
import type { ObjectStore } from './object-store.ts';
import { createRecords, type RecordKind, type Records } from './records.ts';
import { isCount, matching, shapeOf } from './shape.ts';

/**
 * Large files, each named by a record: `NAME.json` has the name `NAME-ID.parquet`, size and hash of the current one. Ids
 * are random: no two writers upload one object. A reader gets the bytes of the record that it has read, or none.
 *
 * Changes are compare-and-swap loops on the record. In a folder they also run one at a time, so that each can remove
 * what killed ones left. In a shared store, a change removes only the file that it has superseded.
 */
export interface RecordedFile extends StoredFile {
  readonly sizeBytes: number;
  readonly sha256: string;
}

type Facts = object;
/** `fileSha256`: `sha256` is the record's own checksum. */
type FileDocument = { readonly file: string; readonly sizeBytes: number; readonly fileSha256: string };

/** The id of the record, and that of the file. */
const dataFile = /^(.+)-[0-9a-f]{16}\.parquet$/;
const isFileDocument = shapeOf<FileDocument>({
  file: matching(/^[\w-]+-[0-9a-f]{16}\.parquet$/),
  sizeBytes: isCount,
  fileSha256: matching(/^[0-9a-f]{64}$/),
});

type FoundFile<F> = RecordedFile & { readonly facts: F };

export interface FileRecords<F extends Facts> {
  get(id: string): Promise<FoundFile<F> | undefined>;
  ids(prefix?: string): Promise<readonly string[]>;
  /**
   * Uploads a finished file and its record, then removes the previous file. Returns whether it has replaced a record,
   * which may be damaged. Crash: either record is current.
   */
  publish(id: string, temporary: string, facts: F): Promise<boolean>;
  /**
   * Publishes the file that `make` creates from the current one, or nothing if it returns undefined. `make` runs again
   * if another host has published meanwhile. Errors: that of the kind if the record is damaged, `locked`.
   */
  change(
    id: string,
    make: (before: FoundFile<F> | undefined) => Promise<{ readonly file: string; readonly facts: F } | undefined>,
  ): Promise<void>;
  /** Removes a record, damaged or missing too, then its file. Returns whether there was one. */
  withdraw(id: string): Promise<boolean>;
  /** Removes all files of a record but the current one, and files without a record. No-op in a shared store. */
  tidy(id: string): Promise<void>;
  /** Excludes changes of these files, across processes: for a copy of a folder. */
  hold<R>(work: () => Promise<R>): Promise<R>;
  nameOf(id: string): string;
}

const folderOf = (id: string): string => id.slice(0, id.lastIndexOf('/') + 1);

/** The steps of a change: upload, swap of the record, removal of other files. */
function createSteps<D extends FileDocument>(store: ObjectStore, records: Records<D>) {
  return {
    async upload<F>(id: string, temporary: string, facts: F): Promise<F & FileDocument> {
      const [sizeBytes, fileSha256] = [await getSize(temporary), await hashFile(temporary)];
      const file = `${path.posix.basename(id)}-${randomBytes(8).toString('hex')}.parquet`;
      await store.upload(folderOf(id) + file, temporary, { sha256: fileSha256 });
      return { file, sizeBytes, fileSha256, ...facts };
    },
    /** Replaces the record that names the same file as `before`, then removes that file. Returns whether it did. */
    async swap(id: string, before: D | undefined, after: D): Promise<boolean> {
      if (before === undefined) return (await records.create(id, after)) === 'created';
      const stored = await records.change(id, (now) => (now?.file === before.file ? after : now));
      if (stored?.file !== after.file) return false;
      await store.remove([folderOf(id) + before.file]);
      return true;
    },
    async remove(id: string, { file }: FileDocument): Promise<void> {
      await store.remove([folderOf(id) + file]);
    },
    async tidy(id: string): Promise<void> {
      // Another host may have uploaded a file that its record does not name yet.
      if (store.isShared) return;
      const record = await records.getSound(id);
      const keys = new Set(await store.list(folderOf(id)));
      const left = [...keys].filter((key) => {
        const owner = dataFile.exec(key)?.[1];
        if (owner === undefined || folderOf(key) !== folderOf(id)) return false;
        return owner === id ? key !== folderOf(id) + (record?.file ?? '') : !keys.has(`${owner}.json`);
      });
      await store.remove(left);
      await store.sweep(folderOf(id));
    },
  };
}

/** Opens the files of a kind in a folder. `isMarked`: lost records are reported (marked-records.ts). */
export function openFileRecords<F extends Facts>(
  folder: string,
  { isValid, ...kind }: RecordKind<F>,
  isMarked: boolean,
): FileRecords<F> {
  type Found = F & FileDocument;
  const fileKind: RecordKind<Found> = {
    ...kind,
    isValid: (document): document is Found => isFileDocument(document) && isValid(document),
  };
  const store = openStore(folder);
  const records = isMarked ? openMarkedRecords(folder, fileKind) : createRecords(store, fileKind);
  const steps = createSteps(store, records);
  function toFound(id: string, found: Found): FoundFile<F> {
    const { file, sizeBytes, fileSha256: sha256, ...facts }: FileDocument & object = found;
    return { absolutePath: path.resolve(folder, folderOf(id) + file), sizeBytes, sha256, facts: facts as F };
  }

  /** Publishes an uploaded file, also over a damaged record. Returns whether there was one. */
  async function swapAny(id: string, after: Found): Promise<boolean> {
    for (;;) {
      const before = await records.getSound(id);
      if (await steps.swap(id, before, after)) return before !== undefined;
      if (before !== undefined || (await records.getSound(id)) !== undefined) continue;
      // The record exists, and is damaged.
      await records.put(id, after);
      return true;
    }
  }

  return {
    async get(id) {
      const found = await records.get(id);
      return found === undefined ? undefined : toFound(id, found);
    },
    ids: (prefix) => records.ids(prefix),
    tidy: (id) => steps.tidy(id),
    publish: (id, temporary, facts) =>
      store.hold('', async () => {
        const replaced = await swapAny(id, await steps.upload(id, temporary, facts));
        await steps.tidy(id);
        return replaced;
      }),
    change: (id, make) =>
      store.hold('', async () => {
        for (;;) {
          const before = await records.get(id);
          const made = await make(before === undefined ? undefined : toFound(id, before));
          if (made === undefined) return;
          const after = await steps.upload(id, made.file, made.facts);
          if (await steps.swap(id, before, after)) return await steps.tidy(id);
          await steps.remove(id, after);
        }
      }),
    withdraw: (id) =>
      store.hold('', async () => {
        const before = await records.getSound(id);
        const wasThere = await records.remove(id);
        if (before !== undefined) await steps.remove(id, before);
        await steps.tidy(id);
        return wasThere;
      }),
    hold: (work) => store.hold('', work),
    nameOf: (id) => records.nameOf(id),
  };
}
