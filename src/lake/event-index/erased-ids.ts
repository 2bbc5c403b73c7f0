import { createHash } from 'node:crypto';
import path from 'node:path';
import { isKeyedSql, isOwnId, requestKeyOf } from '../../datasets/event-id.ts';
import { readEventHead } from '../../datasets/event-line.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { AppError, describeError, isStoreError } from '../../runtime/errors.ts';
import type { Tag } from '../../runtime/store/object-store.ts';
import { findStoredSize, hashStored, localFiles, type StoredFile } from '../../runtime/store/open-store.ts';
import { lakeStore, writeDataFile } from '../files/data-file.ts';
import { openChange } from '../files/change.ts';
import { keyOf } from '../files/change-record.ts';
import { createStateSearch } from '../log/change-feed.ts';
import type { ErasedIdsState } from '../log/lake-state.ts';
import type { Table } from '../log/table.ts';
import { openDuckdb, type Duckdb, type Statements } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { idStartOf, type LookupTarget } from './find-rows.ts';

/**
 * Hashes of erased ids, so that an erased event is not reported as unknown. A hash is 64 bits of a SHA-256 of app and
 * id. A keyed event has a second hash, of the id prefix that all events of its request share. The hashes are sorted:
 * their order reveals neither apps nor times.
 *
 * A Parquet file of one column, written atomically under the maintenance lock of the events table before the rows are
 * erased. The log has the number of hashes and the file's hash, which detect damage. The commit precedes the move of
 * the file; until then, readers find it in staging. Backups include it.
 */

/** Limit of stored hashes: 80 MB. Later ones are not recorded. */
const maxHashes = 10_000_000;
/** Rows of a row group. A lookup reads 160 kB. */
const rowsOfGroup = 20_480;

const hashSql = (id: string): string => `('0x' || substr(sha256(id_app::VARCHAR || chr(10) || ${id}), 1, 16))::UBIGINT`;

function hashOf(idApp: number, id: string): bigint {
  return BigInt(`0x${createHash('sha256').update(`${idApp}\n${id}`).digest('hex').slice(0, 16)}`);
}

export interface OwnedId {
  readonly idApp: number;
  readonly eventId: string;
}

/** Reads the id from a failed event's line, if it is readable. */
export function readOwnedId(line: string): OwnedId | undefined {
  const { eventId = '', idApp } = readEventHead(line) ?? {};
  return idApp !== undefined && Number.isSafeInteger(idApp) && isOwnId(eventId) ? { idApp, eventId } : undefined;
}

export function valuesSql(ids: readonly OwnedId[]): string {
  const values = ids.map(({ idApp, eventId }) => `(${idApp}::BIGINT, ${sqlText(eventId)})`);
  return `SELECT * FROM (VALUES ${values.join(', ')}) AS ids(id_app, event_id)`;
}

const oldSql = (file: string): string => `SELECT h FROM read_parquet(${sqlText(file)})`;

export interface ErasedIdsLocation {
  readonly erasedIds: string;
  readonly table: string;
  readonly staging: string;
}

const hint =
  "Restore it from a backup. Without one, run 'tributary lake repair --accept-loss': events that were erased before are then reported as unknown.";

const damaged = (what: string, cause?: unknown): AppError =>
  new AppError('file_damaged', what, { ...(cause === undefined ? {} : { cause }), hint });

export interface ErasedIdsFile {
  /** Undefined without hashes. */
  readonly file: StoredFile | undefined;
  /** Whether all erased ids are included. */
  readonly isComplete: boolean;
}

/** Finds the file that the log describes. Hashes it again only after a change. Error: `file_damaged`. */
export type FindErasedIds = () => Promise<ErasedIdsFile>;

/** Returns the hash of a staged file; undefined if it was moved meanwhile, or cannot be read. */
async function findStagedHash(file: StoredFile): Promise<string | undefined> {
  try {
    return await hashStored(file);
  } catch (error) {
    if (isStoreError(error)) throw error;
    return undefined;
  }
}

export function createErasedIdsSearch({ erasedIds: file, table, staging }: ErasedIdsLocation): FindErasedIds {
  let known: { readonly tag: Tag; readonly sha256: string } | undefined;
  const lakeDir = path.dirname(file);
  const name = path.basename(file);
  const store = lakeStore(lakeDir);
  const isThere = async (): Promise<boolean> => (await store.findSize(name)) !== undefined;

  async function findHash(): Promise<string | undefined> {
    const tag = await store.findTag(name);
    if (tag === undefined) return undefined;
    if (tag !== known?.tag) known = { tag, sha256: await hashStored({ absolutePath: file }) };
    return known.sha256;
  }

  /** A committed erasure may still have the file in its staging folder. */
  async function findFile({ sha256 }: ErasedIdsState): Promise<StoredFile | undefined> {
    if ((await findHash()) === sha256) return { absolutePath: file, sha256 };
    for (const key of await store.list(`${keyOf(lakeDir, staging)}/`)) {
      const staged = { absolutePath: path.join(lakeDir, key), sha256 };
      if (path.basename(key) === name && (await findStagedHash(staged)) === sha256) return staged;
    }
    return (await findHash()) === sha256 ? { absolutePath: file, sha256 } : undefined;
  }

  const findState = createStateSearch(table);
  const readState = async () => (await findState())?.erasedIds;

  return async () => {
    let state = await readState();
    for (;;) {
      if (state === undefined)
        return { file: (await isThere()) ? { absolutePath: file } : undefined, isComplete: false };
      const { hashes, isPartial } = state;
      const found = hashes === 0 ? undefined : await findFile(state);
      if (hashes === 0 || found !== undefined)
        return { file: found, isComplete: isPartial !== true && hashes < maxHashes };
      const before = state;
      state = await readState();
      if (state?.sha256 !== before.sha256) continue;
      throw damaged(
        (await isThere())
          ? `${file} is damaged: checksum mismatch of the hashes of ${hashes} erased ids`
          : `${file}, the hashes of ${hashes} erased ids, is missing`,
      );
    }
  };
}

interface AddErasedDependencies {
  readonly table: Table;
  readonly duckdb: Duckdb;
  readonly crashPoint: CrashPoint;
}

/** Reads a file of a version before 0.4, which the log does not describe. */
async function readOrDamaged<T>(file: StoredFile, work: (local: string) => Promise<T>): Promise<T> {
  try {
    return await localFiles.use([file], ([local = '']) => work(local));
  } catch (error) {
    if (isStoreError(error)) throw error;
    throw damaged(`cannot read ${file.absolutePath}, the hashes of erased ids`, error);
  }
}

async function countHashes(duckdb: Duckdb, file: StoredFile): Promise<number> {
  const [row] = await readOrDamaged(file, (local) => duckdb.rows(`SELECT count(*) AS n FROM (${oldSql(local)})`));
  return Number(row?.['n']);
}

async function collectHashes(duckdb: Duckdb, selects: readonly string[], limit: number): Promise<void> {
  await duckdb.run('CREATE OR REPLACE TEMP TABLE erased_hashes (h UBIGINT)');
  const start = `substr(event_id, 1, ${requestKeyOf('x'.repeat(36)).length})`;
  const hashes = `CASE WHEN ${isKeyedSql('event_id')} THEN [${hashSql('event_id')}, ${hashSql(start)}] ELSE [${hashSql('event_id')}] END`;
  let room = limit;
  for (const select of selects) {
    if (room <= 0) break;
    const [row] = await duckdb.rows(
      `INSERT INTO erased_hashes SELECT unnest(${hashes}) FROM (${select}) WHERE id_app IS NOT NULL AND event_id IS NOT NULL LIMIT ${room}`,
    );
    room -= Number(row?.['Count']);
  }
}

const allHashesSql = (local: string | undefined): string =>
  `SELECT DISTINCT h FROM (${local === undefined ? '' : `${oldSql(local)} UNION ALL `}FROM erased_hashes) ORDER BY h`;

/** Adds the ids of rows that will be erased, by its own commit. `selects`: queries of their `id_app` and `event_id`. */
export async function addErasedIds(
  { table, duckdb, crashPoint }: AddErasedDependencies,
  location: ErasedIdsLocation,
  selects: readonly string[],
): Promise<void> {
  const { erasedIds: to, staging } = location;
  const { file } = await createErasedIdsSearch(location)();
  const known = file === undefined ? 0 : await countHashes(duckdb, file);
  await collectHashes(duckdb, selects, maxHashes - known);
  const open = await openChange(table, staging, 'an erasure', crashPoint);
  try {
    const name = path.basename(to);
    const { numRecords: hashes, sha256 } = await localFiles.use(file === undefined ? [] : [file], ([local]) =>
      writeDataFile(duckdb, allHashesSql(local), path.join(open.folder, name), 'sealed', { rows: rowsOfGroup }),
    );
    await duckdb.run('DROP TABLE erased_hashes');
    const before = table.lake().erasedIds;
    if (hashes === (before?.hashes ?? 0)) return;
    const erasedIds = { hashes, sha256, ...(before?.isPartial === true ? { isPartial: true as const } : {}) };
    const change = { cause: 'erase', actions: [], erasedIds, metrics: { hashes } } as const;
    await open.commit([], () => change, { moves: [{ name, to }] });
  } finally {
    await open.close();
  }
}

/** Describes a file of a version before 0.4 for the log; undefined if it is missing or damaged. */
export async function describeUnloggedErasedIds(absolutePath: string): Promise<ErasedIdsState | undefined> {
  const file = { absolutePath };
  if ((await findStoredSize(file)) === undefined) return undefined;
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  try {
    if ((await findErasedIdsDamage(duckdb, file)) !== undefined) return undefined;
    return { hashes: await countHashes(duckdb, file), sha256: await hashStored(file) };
  } finally {
    duckdb.close();
  }
}

/** Finds damage by reading the entire file. Not all damage is detected. */
export async function findErasedIdsDamage(duckdb: Duckdb, file: StoredFile): Promise<string | undefined> {
  try {
    const [row] = await localFiles.use([file], ([local = '']) =>
      duckdb.rows(
        `SELECT count(*) FILTER (WHERE h > before IS NOT TRUE) AS misplaced FROM (SELECT h, lag(h, 1, -1) OVER () AS before FROM (SELECT h::HUGEINT AS h FROM (${oldSql(local)})))`,
      ),
    );
    if (Number(row?.['misplaced']) === 0) return undefined;
    throw new Error(`${String(row?.['misplaced'])} of its hashes are out of order`);
  } catch (error) {
    return `${describeError(error)}; ${hint}`;
  }
}

/** Returns a condition that a row's id is among the hashes of a local file. */
export const isErasedSql = (file: string): string => `${hashSql('event_id')} IN (${oldSql(file)})`;

async function findHashes(duckdb: Statements, file: StoredFile, hashes: readonly bigint[]): Promise<Set<bigint>> {
  const list = hashes.map((hash) => `${hash}::UBIGINT`).join(', ');
  const found = await readOrDamaged(file, (local) =>
    duckdb.rows(`SELECT h FROM (${oldSql(local)}) WHERE h IN (${list})`),
  );
  return new Set(found.flatMap(({ h }) => (typeof h === 'bigint' ? [h] : [])));
}

/** Reports whether the event was erased from one of the apps. Error: `file_damaged`. */
export async function wasErased(
  duckdb: Statements,
  { file }: ErasedIdsFile,
  lookupTarget: LookupTarget,
  idApps: readonly number[],
): Promise<boolean> {
  if (idApps.length === 0 || file === undefined) return false;
  const hashes = idApps.map((idApp) => hashOf(idApp, idStartOf(lookupTarget)));
  return (await findHashes(duckdb, file, hashes)).size > 0;
}

/** Returns those of an app's ids, or starts of ids, that were erased. Error: `file_damaged`. */
export async function listErased(
  duckdb: Statements,
  { file }: ErasedIdsFile,
  idApp: number,
  idStarts: readonly string[],
): Promise<ReadonlySet<string>> {
  if (idStarts.length === 0 || file === undefined) return new Set();
  const byHash = new Map(idStarts.map((start) => [hashOf(idApp, start), start]));
  const found = await findHashes(duckdb, file, [...byHash.keys()]);
  return new Set([...byHash].flatMap(([hash, start]) => (found.has(hash) ? [start] : [])));
}
