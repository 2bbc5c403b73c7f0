/** Lists the objects that a move copies. What a start creates again is left out, as are caches and work in progress. */
import path from 'node:path';
import { events } from '../../datasets/dataset.ts';
import { lakeStore } from '../../lake/files/data-file.ts';
import { tablePaths } from '../../lake/lake.ts';
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

export interface MovedLake {
  /** Number of tables. */
  readonly tables: number;
  /** Data files of all versions that the logs have. */
  readonly files: readonly MovedObject[];
  readonly others: readonly MovedObject[];
  /** The logs, each ascending, that of the events last and without its newest entry. */
  readonly log: readonly MovedObject[];
  readonly newest: MovedObject;
}

const readsAtOnce = 16;

/** Objects next to the tables. The next start writes snapshot.sql, which names its place. */
const besideTables =
  /^(?:(?:identity|watermark|stream-end)\.json|erased-ids\.parquet|views\.sql|(?:failed|quarantine|orphans)\/.+|catalogue\/[^/]+)$/;

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

/** Lists the objects of one table. `keys`: all that exist below its folder. */
async function listTable(tableDir: string, keys: readonly string[]) {
  const table = path.basename(tableDir);
  const existing = new Set(keys);
  const { adds, live, newest } = await readAdds(tableDir);
  const toKey = (key: string): MovedObject => ({ key: `${table}/${key}` });
  // Removed files may be gone. A missing live one is an error of the copy.
  const files = [...adds.values()].flatMap((add): MovedObject[] => {
    const { path: file, sha256, sizeBytes } = toDataFile(tableDir, add);
    return live.has(add.path) || existing.has(file) ? [{ ...toKey(file), sizeBytes, sha256, isImmutable: true }] : [];
  });
  const isOther = (key: string): boolean =>
    key === emptyFileName || isLedgerKey(key) || key.startsWith(`${restampsFolder}/`);
  const logPrefix = `${path.basename(logFolder(tableDir))}/`;
  return {
    files,
    others: keys.filter(isOther).map(toKey),
    log: keys
      .filter((key) => key.startsWith(logPrefix))
      .toSorted()
      .map(toKey),
    newest: toKey(logPrefix + newest),
  };
}

/** Lists the objects of a lake that no process changes. Errors: `log_damaged`, `lake_protocol`. */
export async function listLake(lakeDir: string): Promise<MovedLake> {
  const keys = await lakeStore(lakeDir).list('');
  const keysOf = (folder: string): string[] =>
    keys.filter((key) => key.startsWith(folder)).map((key) => key.slice(folder.length));
  const others = keys.filter((key) => besideTables.test(key)).map((key): MovedObject => ({ key }));
  const secondaryTables = await listSecondaryTables(lakeDir);
  const list = ({ table }: { readonly table: string }) =>
    listTable(tablePaths(lakeDir, { table }).table, keysOf(`${table}/`));
  const secondary = [];
  for (const name of secondaryTables) secondary.push(await list(name));
  const first = await list(events);
  const tables = [...secondary, first];
  return {
    tables: tables.length,
    files: tables.flatMap(({ files }) => files),
    others: [...others, ...tables.flatMap((table) => table.others)],
    log: tables.flatMap(({ log }) => log).filter(({ key }) => key !== first.newest.key),
    newest: first.newest,
  };
}

/** Lists the requests and their files, without the work of attempts. Damaged records are objects too. */
export async function listReports(reports: ObjectStore) {
  const hashes = new Map<string, Pick<MovedObject, 'sha256' | 'sizeBytes'>>();
  const ids = await listReportIds(reports);
  const records = openJobRecords(reports);
  await inParallel(ids, readsAtOnce, async (id) => {
    const job = await records.getSound(String(id));
    for (const { name, bytes, sha256 } of job?.files ?? []) hashes.set(partKey(id, name), { sha256, sizeBytes: bytes });
  });
  const keys = (await reports.list('')).filter((key) => !key.split('/')[1]?.startsWith(attemptPrefix));
  return { requests: ids.length, objects: keys.map((key): MovedObject => ({ key, ...hashes.get(key) })) };
}

/** Lists the objects of a state: access data, keys, the claim, and records with their files and marks. */
export async function listState(
  state: ObjectStore,
  { dataDir, paths }: Pick<MoveSource, 'dataDir' | 'paths'>,
): Promise<readonly string[]> {
  const { access, claim, keys, records, schedules, segments, titles, webhooks } = paths;
  const toKey = (place: string): string => path.relative(dataDir, place).replaceAll(path.sep, '/');
  const found: string[] = [];
  for (const key of [access, claim].map(toKey)) if ((await state.findSize(key)) !== undefined) found.push(key);
  for (const folder of [keys, records, schedules, segments, titles, webhooks])
    found.push(...(await state.list(`${toKey(folder)}/`)));
  return found;
}
