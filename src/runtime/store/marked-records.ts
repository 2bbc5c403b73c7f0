import path from 'node:path';
import type { Problem } from '../problems/problem.ts';
import { openStore } from './open-store.ts';
import type { ObjectStore } from './object-store.ts';
import { createRecords, type RecordKind, type Records } from './records.ts';

/**
 * Records with marks: each has an empty object at the same path below `records/`. A marked record that does not exist
 * was lost, not removed by a command. A record is written before its mark, and loses its mark before it is removed.
 * Crash: a record may lack its mark, which the running service adds. A copy of the data folder has the marks, a backup
 * has none.
 */
export interface MarkedRecords<T> extends Records<T> {
  /** Removes a record, damaged, missing or not. Returns whether it was known. */
  remove(id: string): Promise<boolean>;
  readonly store: ObjectStore;
}

const marksFolder = 'records';
const kinds = ['destinations', 'schedules', 'segments', 'titles', 'webhooks'];
const recordForm =
  /^(destinations\/\d+\/de_\w+|schedules\/\d+\/sc_\w+|segments\/\d+\/\d+|titles\/titles|webhooks\/\d+\/wh_\w+)\.json$/;
/** Missing records of a kind that a problem names. */
const namedRecords = 10;
const noBytes = new Uint8Array();

const keyOf = (id: string): string => `${id}.json`;

const isThere = async (store: ObjectStore, key: string): Promise<boolean> => (await store.get(key)) !== undefined;

export function openMarkedRecords<T extends object>(folder: string, kind: RecordKind<T>): MarkedRecords<T> {
  const store = openStore(folder);
  const marks = openStore(path.join(path.dirname(folder), marksFolder, path.basename(folder)));
  const records = createRecords(store, kind);
  const mark = async (id: string): Promise<void> => void (await marks.create(keyOf(id), noBytes));
  return {
    ...records,
    store,
    async create(id, record) {
      const result = await records.create(id, record);
      await mark(id);
      return result;
    },
    async put(id, record) {
      await records.put(id, record);
      await mark(id);
    },
    async remove(id) {
      if (kind.idForm?.test(id) === false) return false;
      const isMarked = await isThere(marks, keyOf(id));
      await marks.remove([keyOf(id)]);
      const wasThere = await records.remove(id);
      // The service may have marked it again concurrently.
      await marks.remove([keyOf(id)]);
      return wasThere || isMarked;
    },
  };
}

async function listRecords(store: ObjectStore): Promise<string[]> {
  const keys = await Promise.all(kinds.map((kind) => store.list(`${kind}/`)));
  return keys.flat().filter((key) => recordForm.test(key));
}

const openBoth = (dataDir: string) => ({
  data: openStore(dataDir),
  marks: openStore(path.join(dataDir, marksFolder)),
});

/** Marks the records without a mark, such as those of an earlier version. */
export async function markRecords(dataDir: string): Promise<void> {
  const { data, marks } = openBoth(dataDir);
  const marked = new Set(await listRecords(marks));
  for (const key of await listRecords(data)) {
    if (marked.has(key)) continue;
    await marks.create(key, noBytes);
    // It may have been removed concurrently.
    if (!(await isThere(data, key))) await marks.remove([key]);
  }
}

/** Lists the missing records by their paths in the data folder. */
export async function listMissingRecords(dataDir: string): Promise<string[]> {
  const { data, marks } = openBoth(dataDir);
  const existing = new Set(await listRecords(data));
  const missing: string[] = [];
  for (const key of await listRecords(marks)) {
    // A record that is removed concurrently loses its mark first.
    if (!existing.has(key) && !(await isThere(data, key)) && (await isThere(marks, key))) missing.push(key);
  }
  return missing.toSorted();
}

/** Describes the missing records, one problem per kind. */
export async function findMissingRecords(dataDir: string): Promise<Problem[]> {
  const missing = await listMissingRecords(dataDir);
  return kinds.flatMap((kind) => {
    const names = missing.filter((name) => name.startsWith(`${kind}/`));
    const others = names.length > namedRecords ? ` and ${names.length - namedRecords} more` : '';
    const problem: Problem = {
      code: 'record_missing',
      subject: kind,
      message: `records of the data folder are missing: ${names.slice(0, namedRecords).join(', ')}${others}`,
      action: `Restore them from a backup, remove them by their command, or remove the files of the same names below ${marksFolder}/.`,
    };
    return names.length === 0 ? [] : [problem];
  });
}
