import { createHash } from 'node:crypto';
import path from 'node:path';
import { isKeyedSql, isOwnId, requestKeyOf } from '../../datasets/event-id.ts';
import { readLineHead } from '../../datasets/event-line.ts';
import { AppError, describeError } from '../../runtime/errors.ts';
import { moveFile, removeFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { writeDataFile } from '../files/data-file.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { idStartOf, type Sought } from './find-rows.ts';

/**
 * Which ids were erased: so that one who asks for such an event is not told that it never came. What is kept is 64 bits
 * of a SHA-256 of app and id, and for an event under an Idempotency-Key another of what its request's ids begin with, all
 * of every erasure in one order: neither whose the events were, nor which went together, nor when.
 *
 * A Parquet file of one sorted column, written whole under the maintenance lock of the events, before the rows go: a
 * crash leaves hashes of events that are there still, and these are found first. A backup carries it.
 */

/** Hashes that are kept: 80 MB. Ids that are erased beyond them are as if they had never come. */
const maxHashes = 10_000_000;
/** So that a look-up reads 160 kB. */
const rowsOfGroup = 20_480;

const hashSql = (id: string): string => `('0x' || substr(sha256(id_app::VARCHAR || chr(10) || ${id}), 1, 16))::UBIGINT`;

function hashOf(idApp: number, id: string): bigint {
  return BigInt(`0x${createHash('sha256').update(`${idApp}\n${id}`).digest('hex').slice(0, 16)}`);
}

/** An id, and whose event it is. */
export interface OwnedId {
  readonly idApp: number;
  readonly eventId: string;
}

/** Reads the id out of the line of an event that could not be written; undefined where it cannot be read. */
export function readOwnedId(line: string): OwnedId | undefined {
  try {
    const { id_app: idApp, event_id: eventId } = JSON.parse(line) as Readonly<Record<string, unknown>>;
    return Number.isSafeInteger(idApp) && typeof eventId === 'string' && isOwnId(eventId)
      ? { idApp: idApp as number, eventId }
      : undefined;
  } catch {
    const head = readLineHead(line);
    return head !== undefined && isOwnId(head.eventId) ? { idApp: head.idApp, eventId: head.eventId } : undefined;
  }
}

/** SQL of some ids, for `addErasedIds`; at least one. */
export function valuesSql(ids: readonly OwnedId[]): string {
  const values = ids.map(({ idApp, eventId }) => `(${idApp}::BIGINT, ${sqlText(eventId)})`);
  return `SELECT * FROM (VALUES ${values.join(', ')}) AS ids(id_app, event_id)`;
}

const oldSql = (file: string): string => `SELECT h FROM read_parquet(${sqlText(file)})`;

const damaged = (file: string, error: unknown): AppError =>
  new AppError('file_damaged', `${file}, the hashes of erased ids, cannot be read`, {
    cause: error,
    hint: 'Put it back from a backup, or remove it: events that were erased before are then as if they had never come.',
  });

async function countHashes(duckdb: Duckdb, file: string): Promise<number> {
  if (!(await exists(file))) return 0;
  try {
    const [row] = await duckdb.rows(`SELECT count(*) AS n FROM (${oldSql(file)})`);
    return Number(row?.['n']);
  } catch (error) {
    throw damaged(file, error);
  }
}

/**
 * Adds the ids of rows that are about to be erased, durably. `selects`: SQL of their `id_app` and `event_id`, run one
 * after the other; `stagingDir`: a folder of the same disk that whoever holds the maintenance lock next empties. Errors:
 * `file_damaged`, those of the engine.
 */
export async function addErasedIds(
  duckdb: Duckdb,
  { file, stagingDir }: { readonly file: string; readonly stagingDir: string },
  selects: readonly string[],
): Promise<void> {
  const known = await countHashes(duckdb, file);
  await duckdb.run('CREATE OR REPLACE TEMP TABLE erased_hashes (h UBIGINT)');
  const start = `substr(event_id, 1, ${requestKeyOf('x'.repeat(36)).length})`;
  const hashes = `CASE WHEN ${isKeyedSql('event_id')} THEN [${hashSql('event_id')}, ${hashSql(start)}] ELSE [${hashSql('event_id')}] END`;
  let room = maxHashes - known;
  for (const select of selects) {
    if (room <= 0) break;
    const [row] = await duckdb.rows(
      `INSERT INTO erased_hashes SELECT unnest(${hashes}) FROM (${select}) WHERE id_app IS NOT NULL AND event_id IS NOT NULL LIMIT ${room}`,
    );
    room -= Number(row?.['Count']);
  }
  const query = `SELECT DISTINCT h FROM (${known === 0 ? '' : `${oldSql(file)} UNION ALL `}FROM erased_hashes) ORDER BY h`;
  const staged = path.join(stagingDir, `erased-${path.basename(file)}`);
  const { numRecords } = await writeDataFile(duckdb, query, staged, 'sealed', { rows: rowsOfGroup });
  await duckdb.run('DROP TABLE erased_hashes');
  if (numRecords === known) return removeFile(staged);
  await moveFile(staged, file);
  await syncFolder(path.dirname(file));
}

/**
 * Reads the file to its end; says what is wrong with it. Undefined: nothing, or there is no such file, since nothing was
 * erased yet. Bytes that have become those of another hash in the same place do not show.
 */
export async function findErasedIdsDamage(duckdb: Duckdb, file: string): Promise<string | undefined> {
  if (!(await exists(file))) return undefined;
  try {
    const [row] = await duckdb.rows(
      `SELECT count(*) FILTER (WHERE h > before IS NOT TRUE) AS misplaced FROM (SELECT h, lag(h, 1, -1) OVER () AS before FROM (SELECT h::HUGEINT AS h FROM (${oldSql(file)})))`,
    );
    if (Number(row?.['misplaced']) === 0) return undefined;
    throw new Error(`${String(row?.['misplaced'])} of its hashes are not in their order`);
  } catch (error) {
    const { hint } = damaged(file, error);
    return `${describeError(error)}; ${hint}`;
  }
}

/** Says whether what is looked for was erased, from one of the apps. Errors: `file_damaged`. */
export async function wasErased(
  duckdb: Duckdb,
  file: string,
  sought: Sought,
  idApps: readonly number[],
): Promise<boolean> {
  if (idApps.length === 0 || !(await exists(file))) return false;
  const hashes = idApps.map((idApp) => `${hashOf(idApp, idStartOf(sought))}::UBIGINT`);
  try {
    return (
      (await duckdb.rows(`SELECT 1 AS found FROM (${oldSql(file)}) WHERE h IN (${hashes.join(', ')}) LIMIT 1`)).length >
      0
    );
  } catch (error) {
    throw damaged(file, error);
  }
}

/**
 * Says whether an id that was erased since hashes are kept is surely among them: not where there are none, because the
 * file was removed or the lake is a copy without it, nor where no more are taken. Errors: `file_damaged`.
 */
export async function knowsEveryErased(duckdb: Duckdb, file: string): Promise<boolean> {
  const known = await countHashes(duckdb, file);
  return known > 0 && known < maxHashes;
}
