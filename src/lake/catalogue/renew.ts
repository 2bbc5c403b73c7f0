import { createHash, randomUUID } from 'node:crypto';
import path from 'node:path';
import { exists } from '../../runtime/files/file-checks.ts';
import { findTextFile, removeFile, writeFileDurably } from '../../runtime/files/durable-file.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
import { findRecord, publishRecord, withdrawRecord } from '../../runtime/files/recorded-file.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { catalogueName, cataloguePaths } from './catalogue-paths.ts';
import { writeFold } from './fold.ts';
import { findNotices } from './notices.ts';
import { readNotices, writeNotices, type Notice } from './notices-file.ts';
import { readLargest, type AppEvents } from './read-catalogue.ts';
import type { Packs } from './packs.ts';
import { mostColumns, ownColumns, viewsSql } from './views-sql.ts';

/** What a fold is made of: the same parts give the same. */
export function digestOf(keys: Iterable<string>): string {
  const hash = createHash('sha256').update('v1');
  for (const key of [...keys].toSorted((a, b) => (a < b ? -1 : 1))) hash.update(key);
  return hash.digest('hex');
}

/** The digest of the parts that the fold in force was made of; undefined where it, or views.sql, is gone or damaged. */
export async function findFolded(lakeDir: string): Promise<string | undefined> {
  const { folder, viewsSql: file } = cataloguePaths(lakeDir);
  const record = await findRecord(folder, catalogueName).catch(() => undefined);
  const isWhole = record !== undefined && (await exists(record.file)) && (await exists(file));
  return isWhole && typeof record.facts['parts'] === 'string' ? record.facts['parts'] : undefined;
}

export interface RenewOptions {
  /** Version of the table of events that the parts are of. */
  readonly tableVersion: number;
  /** Sealed files whose parts are not made yet. */
  readonly missingFiles: number;
}

/** Takes the catalogue back where no file is in it any more. */
export async function withdrawCatalogue(lakeDir: string): Promise<void> {
  await withdrawRecord(cataloguePaths(lakeDir).folder, catalogueName);
  await writeViews(lakeDir, []);
}

/**
 * Folds the packs, of which there is one at least, and publishes what came of it. Durable when it returns. The record comes
 * last: where it is, views.sql is that of the same fold.
 */
export async function renewCatalogue(
  lakeDir: string,
  duckdb: Duckdb,
  packs: Packs,
  { tableVersion, missingFiles }: RenewOptions,
): Promise<void> {
  const { folder } = cataloguePaths(lakeDir);
  const temporary = path.join(folder, `${randomUUID()}.tmp`);
  try {
    await writeFold(duckdb, packs.files(), temporary);
    await writeViews(lakeDir, await readLargest(duckdb, temporary, { most: mostColumns, own: ownColumns.length + 1 }));
    await keepNotices(lakeDir, duckdb, temporary);
    const facts = { parts: digestOf(packs.keys()), tableVersion, missingFiles };
    await publishRecord(folder, catalogueName, temporary, facts);
  } finally {
    await removeFile(temporary);
  }
}

/** Writes views.sql where it says something else. */
async function writeViews(lakeDir: string, apps: readonly AppEvents[]): Promise<void> {
  const { viewsSql: file } = cataloguePaths(lakeDir);
  const text = viewsSql(apps);
  if ((await findTextFile(file)) !== text) await writeFileDurably(file, text, tableFileMode);
}

/** Takes out the notices of what a fold has not any more: an erasure may have taken its name with it. */
async function keepNotices(lakeDir: string, duckdb: Duckdb, file: string): Promise<void> {
  const known = await readNotices(lakeDir);
  if (known.length === 0) return;
  const named = known.map(({ idApp, customEventName, parameter }, place) => ({
    place,
    id_app: idApp,
    event: customEventName ?? null,
    parameter: parameter ?? null,
  }));
  const form = '[{"place":"BIGINT","id_app":"BIGINT","event":"VARCHAR","parameter":"VARCHAR"}]';
  const rows = await duckdb.rows(
    `SELECT DISTINCT n.place FROM (SELECT unnest(from_json($1, ${sqlText(form)}), recursive := true)) n
     JOIN read_parquet(${sqlText(file)}) f ON f.id_app = n.id_app
       AND (n.event IS NULL OR (f.event = n.event AND f.parameter IS NOT DISTINCT FROM n.parameter))`,
    [JSON.stringify(named)],
  );
  const places = new Set(rows.map(({ place }) => Number(place)));
  if (places.size < known.length)
    await writeNotices(
      lakeDir,
      known.filter((_, place) => places.has(place)),
    );
}

/** Looks for what has changed up to a day whose events are all sealed; returns what was found, and keeps it durably. */
export async function renewNotices(
  lakeDir: string,
  duckdb: Duckdb,
  packs: Packs,
  when: { readonly day: string; readonly nowMs: number },
): Promise<readonly Notice[]> {
  const known = await readNotices(lakeDir);
  const found = await findNotices(duckdb, packs.files(), known, when);
  if (found.length > 0) await writeNotices(lakeDir, [...found, ...known]);
  return found;
}
