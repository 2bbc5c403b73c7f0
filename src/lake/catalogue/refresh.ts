import path from 'node:path';
import { createHash, randomUUID } from 'node:crypto';
import { exists, hashFile } from '../../runtime/files/file-checks.ts';
import { findTextFile, removeFile, writeFileDurably } from '../../runtime/files/durable-file.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { type CrashPoint, noCrashPoint } from '../../runtime/crash-point.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import {
  type Notice,
  catalogueForm,
  catalogueName,
  cataloguePaths,
  openMergedCatalogues,
  readFoundNotices,
  writeNotices,
} from './catalogue-files.ts';
import { writeMergedCatalogue } from './file-summaries.ts';
import { findNotices } from './notices.ts';
import { type AppEvents, readLargest } from './read-catalogue.ts';
import type { Packs } from './packs.ts';
import { lastColumns, maxMacroColumns, ownColumns, viewsSql } from './views-sql.ts';

export function digestOf(keys: Iterable<string>): string {
  const hash = createHash('sha256');
  for (const key of [...keys].toSorted((a, b) => (a < b ? -1 : 1))) hash.update(key);
  return hash.digest('hex');
}

export const catalogueSteps = [
  'pack-written',
  'pack-renamed',
  'fold-written',
  'views-written',
  'fold-published',
] as const;

/** Returns the source of the current fold; undefined if it or views.sql is missing or damaged. */
export async function findMergedCatalogue(lakeDir: string) {
  const { viewsSql: file } = cataloguePaths(lakeDir);
  const record = await openMergedCatalogues(lakeDir)
    .get(catalogueName)
    .catch(() => undefined);
  if (record === undefined || !(await exists(record.file)) || !(await exists(file))) return undefined;
  const { form, parts, tableVersion } = record.facts;
  return form === catalogueForm && typeof parts === 'string' && typeof tableVersion === 'number'
    ? { parts, tableVersion }
    : undefined;
}

export async function isCatalogueRemoved(lakeDir: string): Promise<boolean> {
  const { notices, viewsSql: file } = cataloguePaths(lakeDir);
  for (const each of [openMergedCatalogues(lakeDir).nameOf(catalogueName), notices])
    if (await exists(each)) return false;
  const text = await findTextFile(file);
  return text === undefined || text === viewsSql([]);
}

/** Removes leftovers of a killed process, which may have erased values, and a fold that does not match its record. */
export async function removeCatalogueLeftovers(lakeDir: string): Promise<void> {
  const { folder } = cataloguePaths(lakeDir);
  if (!(await exists(folder))) return;
  const folds = openMergedCatalogues(lakeDir);
  const record = await folds.get(catalogueName).catch(() => undefined);
  if (record !== undefined && (await exists(record.file)) && (await hashFile(record.file)) !== record.sha256)
    await folds.withdraw(catalogueName);
  else await folds.tidy(catalogueName);
}

/** Reports whether the catalogue is of a version or later, or does not exist. */
export async function isCatalogueCurrent(lakeDir: string, version: number): Promise<boolean> {
  const folded = await findMergedCatalogue(lakeDir);
  if (folded !== undefined) return folded.tableVersion >= version;
  return (await findNames(cataloguePaths(lakeDir).packs)).length === 0 && (await isCatalogueRemoved(lakeDir));
}

export interface RefreshOptions {
  readonly tableVersion: number;
  readonly missingFiles: number;
  readonly crashPoint?: CrashPoint;
}

/** Removes a catalogue without files. The record goes last, so that a crash is retried. */
export async function removeCatalogue(lakeDir: string): Promise<void> {
  await writeViews(lakeDir, []);
  await writeNotices(lakeDir, []);
  if (await exists(cataloguePaths(lakeDir).folder)) await openMergedCatalogues(lakeDir).withdraw(catalogueName);
}

/** Folds the packs, at least one, and publishes the result durably. The record is written last. */
export async function refreshCatalogue(
  lakeDir: string,
  duckdb: Duckdb,
  packs: Packs,
  { tableVersion, missingFiles, crashPoint = noCrashPoint }: RefreshOptions,
): Promise<void> {
  const { folder } = cataloguePaths(lakeDir);
  const temporary = path.join(folder, `${randomUUID()}.tmp`);
  try {
    await writeMergedCatalogue(duckdb, packs.files(), temporary);
    await crashPoint('fold-written');
    await writeViews(
      lakeDir,
      await readLargest(duckdb, temporary, { most: maxMacroColumns, own: ownColumns.length + lastColumns.length }),
    );
    await keepNotices(lakeDir, duckdb, temporary);
    await crashPoint('views-written');
    const facts = { form: catalogueForm, parts: digestOf(packs.keys()), tableVersion, missingFiles };
    await openMergedCatalogues(lakeDir).publish(catalogueName, temporary, facts);
    await crashPoint('fold-published');
  } finally {
    await removeFile(temporary);
  }
}

export async function ensureViews(lakeDir: string): Promise<void> {
  if (!(await exists(cataloguePaths(lakeDir).viewsSql))) await writeViews(lakeDir, []);
}

async function writeViews(lakeDir: string, apps: readonly AppEvents[]): Promise<void> {
  const { viewsSql: file } = cataloguePaths(lakeDir);
  const text = viewsSql(apps);
  if ((await findTextFile(file)) !== text) await writeFileDurably(file, text, tableFileMode);
}

/** Removes notices of names that the fold no longer has, because they may have been erased. */
async function keepNotices(lakeDir: string, duckdb: Duckdb, file: string): Promise<void> {
  const known = await readFoundNotices(lakeDir);
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

/** Updates the notices by a completely sealed day, durably. Returns the new ones. */
export async function refreshNotices(
  lakeDir: string,
  duckdb: Duckdb,
  packs: Packs,
  when: { readonly day: string; readonly nowMs: number },
): Promise<readonly Notice[]> {
  const known = await readFoundNotices(lakeDir);
  const look = await findNotices(duckdb, packs.files(), known, when);
  const notices = [...look.found, ...look.known];
  if (JSON.stringify(notices) !== JSON.stringify(known)) await writeNotices(lakeDir, notices);
  return look.found;
}
