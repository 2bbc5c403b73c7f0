/**
 * First-seen parts: the first time of each user and device of an app, kept for exports of new users and devices.
 *
 * In: sealed files of the events table. Out: Parquet files `first-seen/v2-GROUP-ID-*.parquet`, each named by a record
 * with the hashes of the data files that it covers (plan-parts.ts). Their rows: part-rows.ts.
 * Invariant: a part depends only on the bytes of the files that it covers (`chooseParts`: its use by readers).
 * Crash: a part is complete or does not exist. Missing and damaged parts are recreated; until then, exports read the
 * rows of their files.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import path from 'node:path';
import { inParallel } from '../../runtime/async/in-parallel.ts';
import { noCrashPoint, type CrashPoint } from '../../runtime/crash-point.ts';
import { isDamage } from '../../runtime/errors.ts';
import { ensureFolder, removeFile } from '../../runtime/files/durable-file.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { openFileRecords, type RecordedFile } from '../../runtime/store/file-records.ts';
import { localFiles, openStore } from '../../runtime/store/open-store.ts';
import { isInteger, isText, listOf, matching, optional, shapeOf } from '../../runtime/store/shape.ts';
import { findFileDamage } from '../files/data-file.ts';
import { addRowGroupHashes } from '../files/row-group-hashes.ts';
import { withEmptyFile, type DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { mergeRows, writeRows } from './part-rows.ts';
import { findObsolete, groupOf, type Cover, type FirstSeenPart, type UncoveredFile } from './plan-parts.ts';

/** A part with its file, whose bytes have a hash. */
export type StoredPart = FirstSeenPart & RecordedFile & Pick<DataFile, 'groups'>;

type Facts = Pick<StoredPart, 'covers' | 'firstDate' | 'lastDate'>;
/** `groups`: the mark of the hashes of its row groups. */
type StoredFacts = Facts & Pick<StoredPart, 'groups'>;

/** Form of the parts. Those of other forms are removed. */
const form = 'v2';
const temporaryEnd = '.tmp';
/** Attempts to read all parts, which the compactor may replace meanwhile. */
const listAttempts = 3;
/** Records that are read concurrently. */
const readsAtOnce = 16;

export const firstSeenSteps = ['first-seen-written', 'first-seen-published', 'first-seen-merged'] as const;

export const firstSeenFolder = (lakeDir: string): string => path.join(path.resolve(lakeDir), 'first-seen');

const isDate = matching(/^\d{4}-\d{2}-\d{2}$/);
const isRange = (value: unknown): boolean => Array.isArray(value) && value.length === 2 && value.every(isInteger);
const isCover = shapeOf<Cover>({ hash: isText, apps: optional(isRange) });

function openRecords(lakeDir: string) {
  return openFileRecords<StoredFacts>(
    firstSeenFolder(lakeDir),
    {
      isValid: shapeOf<StoredFacts>({
        covers: listOf(isCover),
        firstDate: isDate,
        lastDate: isDate,
        groups: optional(isText),
      }),
      damaged: {
        code: 'record_damaged',
        hint: "Remove the folder 'first-seen' of the lake: the compactor recreates it.",
      },
    },
    false,
  );
}

/** Reads a part; `unusable` if its record is damaged or of another form. */
async function readPart(
  records: ReturnType<typeof openRecords>,
  id: string,
): Promise<StoredPart | 'unusable' | undefined> {
  if (!id.startsWith(`${form}-`)) return 'unusable';
  try {
    const found = await records.get(id);
    if (found === undefined) return undefined;
    const { facts, ...file } = found;
    return { id, ...file, ...facts };
  } catch (error) {
    if (!isDamage(error)) throw error;
    return 'unusable';
  }
}

async function readParts(records: ReturnType<typeof openRecords>, ids: readonly string[]) {
  const parts: StoredPart[] = [];
  const unusable: string[] = [];
  await inParallel(ids, readsAtOnce, async (id) => {
    const part = await readPart(records, id);
    if (part === 'unusable') unusable.push(id);
    else if (part !== undefined) parts.push(part);
  });
  return { parts: parts.toSorted((a, b) => (a.id < b.id ? -1 : 1)), unusable };
}

/** Reads the parts of a lake; damaged records are left out. Errors: those of the system. */
export async function readFirstSeenParts(lakeDir: string): Promise<readonly StoredPart[]> {
  const records = openRecords(lakeDir);
  for (let attempt = 1; ; attempt += 1) {
    const ids = await records.ids();
    const { parts, unusable } = await readParts(records, ids);
    // Parts that were merged meanwhile have a successor, which was not listed.
    if (parts.length + unusable.length === ids.length || attempt === listAttempts) return parts;
  }
}

const fileOf = ({ absolutePath }: StoredPart): string => path.basename(absolutePath);

/**
 * Reports whether no file in the folder of parts has rows of data files that the events table does not name. After an
 * erasure, the compactor removes such files.
 */
export async function areFirstSeenPartsCurrent(lakeDir: string, files: readonly DataFile[]): Promise<boolean> {
  const folder = firstSeenFolder(lakeDir);
  const records = openRecords(lakeDir);
  const { parts, unusable } = await readParts(records, await records.ids());
  const known = new Set(parts.map(fileOf));
  const names = [...(await openStore(folder).list('')), ...(await findNames(folder))];
  const isLeftover = (name: string): boolean =>
    name.endsWith(temporaryEnd) || (name.endsWith('.parquet') && !known.has(name));
  return unusable.length === 0 && findObsolete(parts, files).length === 0 && !names.some(isLeftover);
}

/** Creates the list of the parts in a folder. */
function createPartList(lakeDir: string, records: ReturnType<typeof openRecords>) {
  const folder = firstSeenFolder(lakeDir);
  const store = openStore(folder);
  /** Parts by their id: a part never changes. */
  const known = new Map<string, StoredPart>();

  return {
    list: (): readonly StoredPart[] => [...known.values()],
    /** Reads new parts; forgets those without a record or a file. Returns the keys of the folder. */
    async follow(): Promise<ReadonlySet<string>> {
      const keys = new Set(await store.list(''));
      for (const [id, part] of known) if (!keys.has(`${id}.json`) || !keys.has(fileOf(part))) known.delete(id);
      const ids = [...keys].filter((key) => key.endsWith('.json')).map((key) => key.slice(0, -'.json'.length));
      const { parts, unusable } = await readParts(
        records,
        ids.filter((id) => !known.has(id)),
      );
      for (const part of parts)
        if (keys.has(fileOf(part))) known.set(part.id, part);
        else unusable.push(part.id);
      for (const id of unusable) await records.withdraw(id);
      return keys;
    },
    /** Removes temporary files, and those of the keys that no record names. */
    async removeLeftovers(keys: ReadonlySet<string>): Promise<void> {
      const names = await findNames(folder);
      for (const name of names) if (name.endsWith(temporaryEnd)) await removeFile(path.join(folder, name));
      const files = new Set([...known.values()].map(fileOf));
      await store.remove([...keys].filter((key) => key.endsWith('.parquet') && !files.has(key)));
    },
    async remove(parts: readonly StoredPart[]): Promise<void> {
      for (const { id } of parts) {
        known.delete(id);
        await records.withdraw(id);
      }
    },
  };
}

/** Finds damaged parts; a stop ends the search. */
async function findDamaged(parts: readonly StoredPart[], stop?: AbortSignal): Promise<StoredPart[]> {
  const damaged: StoredPart[] = [];
  for (const part of parts) {
    if (stop?.aborted === true) break;
    if ((await findFileDamage(part)) !== undefined) damaged.push(part);
  }
  return damaged;
}

/**
 * Opens the parts for one writer, and removes damaged ones and what a killed one has left. The folder is created with
 * the first part.
 */
export async function openFirstSeenParts(lakeDir: string, crashPoint: CrashPoint = noCrashPoint, signal?: AbortSignal) {
  const folder = firstSeenFolder(lakeDir);
  const records = openRecords(lakeDir);
  const partList = createPartList(lakeDir, records);

  /** Runs work that may write temporary files, which are then removed. */
  async function withTemporaryFiles(work: (create: () => string) => Promise<void>): Promise<void> {
    await ensureFolder(folder);
    const created: string[] = [];
    try {
      await work(() => {
        const temporary = path.join(folder, `${randomUUID()}${temporaryEnd}`);
        created.push(temporary);
        return temporary;
      });
    } finally {
      for (const temporary of created) await removeFile(temporary);
    }
  }

  async function publish(duckdb: Duckdb, temporary: string, group: string, facts: Facts): Promise<void> {
    const groups = await addRowGroupHashes(duckdb, temporary);
    await crashPoint('first-seen-written');
    await records.publish(`${form}-${group}-${randomBytes(8).toString('hex')}`, temporary, { ...facts, groups });
    await crashPoint('first-seen-published');
  }

  await partList.removeLeftovers(await partList.follow());
  // A bucket verifies its objects itself, and each would be downloaded.
  if (!openStore(folder).isShared) await partList.remove(await findDamaged(partList.list(), signal));

  return {
    /** Lists the parts; removes those that are not usable. */
    async list(): Promise<readonly StoredPart[]> {
      await partList.follow();
      return partList.list();
    },
    remove: (parts: readonly StoredPart[]): Promise<void> => partList.remove(parts),
    /** Adds a part of files whose hashes were compared. Errors: the engine's, `disk`. */
    async add(duckdb: Duckdb, batch: readonly UncoveredFile[], emptyFile: string, today: string): Promise<void> {
      const facts = toFacts(batch.map(({ cover, ...dates }) => ({ covers: [cover], ...dates })));
      const files = batch.map(({ file }) => file);
      await withTemporaryFiles(async (create) => {
        const part = create();
        await localFiles.use(withEmptyFile({ emptyFile }, files), (paths) => writeRows(duckdb, paths, part));
        await publish(duckdb, part, groupOf(facts.lastDate, today), facts);
      });
    },
    /** Replaces parts by one. A damaged part is removed instead. */
    async merge(duckdb: Duckdb, some: readonly StoredPart[], today: string): Promise<void> {
      const damaged = await findDamaged(some);
      if (damaged.length > 0) return await partList.remove(damaged);
      const facts = toFacts(some);
      await withTemporaryFiles(async (create) => {
        const part = create();
        await localFiles.use(some, (paths) => mergeRows(duckdb, paths, part, create));
        await publish(duckdb, part, groupOf(facts.lastDate, today), facts);
      });
      await partList.remove(some);
      await crashPoint('first-seen-merged');
    },
  };
}

/** Combines what several parts or files cover. */
function toFacts(some: readonly Facts[]): Facts {
  const firstDates = some.map(({ firstDate }) => firstDate).toSorted();
  const lastDates = some.map(({ lastDate }) => lastDate).toSorted();
  return {
    covers: [...new Map(some.flatMap(({ covers }) => covers.map((cover) => [cover.hash, cover]))).values()],
    firstDate: firstDates[0] ?? '',
    lastDate: lastDates.at(-1) ?? '',
  };
}

export type FirstSeenParts = Awaited<ReturnType<typeof openFirstSeenParts>>;
