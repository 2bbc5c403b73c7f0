/** Lists the objects that a move copies: not what a start creates again, caches and work in progress. */
import path from 'node:path';
import { events } from '../../datasets/dataset.ts';
import { erasureListFolder } from '../../lake/event-index/erasure-list.ts';
import { cataloguePaths } from '../../lake/catalogue/catalogue-files.ts';
import { lakeStore } from '../../lake/files/data-file.ts';
import { identityPath } from '../../lake/identity.ts';
import { lakePaths, tablePaths, type TableName } from '../../lake/lake.ts';
import type { AddAction } from '../../lake/log/actions.ts';
import { commitName, listLog, logFolder, readCommit } from '../../lake/log/log-files.ts';
import { emptyFileName, loadTableState, toDataFile } from '../../lake/log/snapshot.ts';
import { isLedgerKey } from '../../lake/log/version-ledger.ts';
import { restampsFolder } from '../../lake/log/version-points.ts';
import { listReportIds, openJobRecords, partKey } from '../../reports/report-records.ts';
import { attemptPrefix } from '../../reports/reports.ts';
import { inParallel } from '../../runtime/async/in-parallel.ts';
import type { ObjectStore } from '../../runtime/store/object-store.ts';
import { listSecondaryTables } from '../backup/lake-copy.ts';
import type { MoveSource } from './places.ts';

/** An object to copy. Size and hash (hex) are those that its record names. */
export interface MovedObject {
  readonly key: string;
  readonly sizeBytes?: number | undefined;
  readonly sha256?: string | undefined;
  /** Whether its name is never used for other bytes. */
  readonly isImmutable?: true;
}

const readsAtOnce = 16;

/** Lists the keys of files that exist, and those below folders. All are paths below `root`, the folder of the store. */
async function listBelow(
  store: ObjectStore,
  root: string,
  { files, folders }: { readonly files: readonly string[]; readonly folders: readonly string[] },
): Promise<string[]> {
  const toKey = (place: string): string => path.relative(root, place).replaceAll(path.sep, '/');
  const found: string[] = [];
  for (const key of files.map(toKey)) if ((await store.findSize(key)) !== undefined) found.push(key);
  for (const folder of folders) found.push(...(await store.list(`${toKey(folder)}/`)));
  return found;
}

/** Reads the files that a table's log adds, those of the newest version last, by encoded path. */
async function readAdds(tableDir: string) {
  const { commits, checkpoints } = await listLog(tableDir);
  const adds = new Map<string, AddAction>();
  const keep = (found: Iterable<AddAction>): void => {
    for (const add of found) adds.set(add.path, add);
  };
  const [oldest] = checkpoints;
  if (oldest !== undefined) keep((await loadTableState(tableDir, oldest)).files.values());
  await inParallel(commits, readsAtOnce, async (version) => {
    const { actions } = await readCommit(tableDir, version);
    keep(actions.flatMap(({ add }) => add ?? []));
  });
  const { files } = await loadTableState(tableDir);
  keep(files.values());
  return { adds, live: files, newest: commitName(commits.at(-1) ?? 0) };
}

/** Reports whether a key of a table is needed next to its log and its data files. */
const isOther = (key: string): boolean =>
  key === emptyFileName ||
  isLedgerKey(key) ||
  [restampsFolder, erasureListFolder].some((folder) => key.startsWith(`${folder}/`));

const byKey = (a: MovedObject, b: MovedObject): number => (a.key < b.key ? -1 : 1);

/** Lists the objects of a table. */
async function listTable(lakeDir: string, { table }: TableName) {
  const { table: tableDir } = tablePaths(lakeDir, { table });
  const toObject = (key: string): MovedObject => ({ key: `${table}/${key}` });
  const keys = (await lakeStore(lakeDir).list(`${table}/`)).map((key) => key.slice(table.length + 1));
  const existing = new Set(keys);
  const { adds, live, newest } = await readAdds(tableDir);
  // Removed files may be gone. A missing live one is an error of the copy.
  const files = [...adds.values()].flatMap((add): MovedObject[] => {
    const { path: file, sha256, sizeBytes } = toDataFile(tableDir, add);
    if (!live.has(add.path) && !existing.has(file)) return [];
    return [{ ...toObject(file), sizeBytes, sha256, isImmutable: true }];
  });
  const logPrefix = `${path.basename(logFolder(tableDir))}/`;
  return {
    files,
    others: keys.filter(isOther).map(toObject),
    log: keys.filter((key) => key.startsWith(logPrefix)).map(toObject),
    newest: toObject(logPrefix + newest),
  };
}

/**
 * Lists the objects of a lake: the data files of all versions that the logs have, others, and the logs. Each log
 * ascends; that of the events is the last one, and has its newest entry apart. Errors: `log_damaged`, `lake_protocol`.
 */
export async function listLake(lakeDir: string) {
  const { root, failed, quarantine, formerQuarantine, erasedIds, watermark, streamEnd } = lakePaths(lakeDir);
  const { folder: catalogue, packs, viewsSql } = cataloguePaths(lakeDir);
  // The next start writes snapshot.sql, which names its place.
  const beside = await listBelow(lakeStore(lakeDir), root, {
    files: [identityPath(lakeDir), erasedIds, watermark, streamEnd, viewsSql],
    folders: [failed, quarantine, formerQuarantine, catalogue],
  });
  const tables = [];
  for (const name of await listSecondaryTables(lakeDir)) tables.push(await listTable(lakeDir, name));
  const primary = await listTable(lakeDir, events);
  tables.push(primary);
  const isPack = (key: string): boolean => path.join(root, key).startsWith(packs + path.sep);
  return {
    tables: tables.length,
    files: tables.flatMap(({ files }) => files),
    others: [
      ...beside.filter((key) => !isPack(key)).map((key): MovedObject => ({ key })),
      ...tables.flatMap(({ others }) => others),
    ],
    log: tables.flatMap(({ log }) => log.toSorted(byKey)).filter(({ key }) => key !== primary.newest.key),
    newest: primary.newest,
  };
}

/** Lists the requests and their files, without the work of attempts. Damaged records are objects too. */
export async function listReports(reports: ObjectStore) {
  const known = new Map<string, Pick<MovedObject, 'sha256' | 'sizeBytes'>>();
  const ids = await listReportIds(reports);
  const records = openJobRecords(reports);
  await inParallel(ids, readsAtOnce, async (id) => {
    const job = await records.getSound(String(id));
    if (job === undefined) return;
    for (const { name, bytes, sha256 } of job.files ?? []) known.set(partKey(job, name), { sha256, sizeBytes: bytes });
  });
  const keys = (await reports.list('')).filter((key) => key.split('/')[1]?.startsWith(attemptPrefix) !== true);
  return { requests: ids.length, objects: keys.map((key): MovedObject => ({ key, ...known.get(key) })) };
}

/** Lists the objects of a state: access data, keys, the claim, and records with their files and marks. */
export function listState(state: ObjectStore, { dataDir, paths }: MoveSource): Promise<readonly string[]> {
  const { access, audit, claim, destinations, keys, records, schedules, segments, titles, webhooks } = paths;
  const folders = [audit, destinations, keys, records, schedules, segments, titles, webhooks];
  return listBelow(state, dataDir, { files: [access, claim], folders });
}
