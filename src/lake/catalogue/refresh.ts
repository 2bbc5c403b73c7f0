import path from 'node:path';
import { createHash, randomUUID } from 'node:crypto';
import { removeFile } from '../../runtime/files/durable-file.ts';
import { findText, type ObjectStore } from '../../runtime/store/object-store.ts';
import { findStoredSize, hashStored, type StoredFile } from '../../runtime/store/open-store.ts';
import { lakeStore } from '../files/data-file.ts';
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
  viewsName,
  writeNotices,
} from './catalogue-files.ts';
import { writeMergedCatalogue } from './file-summaries.ts';
import { findNotices } from './notices.ts';
import { type AppEvents, readLargest } from './read-catalogue.ts';
import type { RecordedFile } from '../../runtime/store/file-records.ts';
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

const openViews = (lakeDir: string): ObjectStore => lakeStore(lakeDir, { mode: tableFileMode });

const hasViews = async (lakeDir: string): Promise<boolean> =>
  (await openViews(lakeDir).findSize(viewsName)) !== undefined;

const isStored = async (file: StoredFile): Promise<boolean> => (await findStoredSize(file)) !== undefined;

/** Returns the source of the current fold; undefined if it or views.sql is missing or damaged. */
export async function findMergedCatalogue(lakeDir: string) {
  const record = await openMergedCatalogues(lakeDir)
    .get(catalogueName)
    .catch(() => undefined);
  if (record === undefined || !(await isStored(record)) || !(await hasViews(lakeDir))) return undefined;
  const { form, parts, tableVersion } = record.facts;
  return form === catalogueForm && typeof parts === 'string' && typeof tableVersion === 'number'
    ? { parts, tableVersion }
    : undefined;
}

export async function isCatalogueRemoved(lakeDir: string): Promise<boolean> {
  const { folder, notices } = cataloguePaths(lakeDir);
  for (const absolutePath of [path.join(folder, `${catalogueName}.json`), notices])
    if (await isStored({ absolutePath })) return false;
  const text = await findText(openViews(lakeDir), viewsName);
  return text === undefined || text === viewsSql([]);
}

const isDamaged = async (file: RecordedFile): Promise<boolean> =>
  (await isStored(file)) && (await hashStored(file)) !== file.sha256;

/** Removes leftovers of a killed process, which may have erased values, and a fold that does not match its record. */
export async function removeCatalogueLeftovers(lakeDir: string): Promise<void> {
  const folds = openMergedCatalogues(lakeDir);
  const record = await folds.get(catalogueName).catch(() => undefined);
  if (record !== undefined && (await isDamaged(record))) await folds.withdraw(catalogueName);
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
  await openMergedCatalogues(lakeDir).withdraw(catalogueName);
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
  if (!(await hasViews(lakeDir))) await writeViews(lakeDir, []);
}

async function writeViews(lakeDir: string, apps: readonly AppEvents[]): Promise<void> {
  const store = openViews(lakeDir);
  const text = viewsSql(apps);
  if ((await findText(store, viewsName)) !== text) await store.replace(viewsName, Buffer.from(text), 'any');
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
