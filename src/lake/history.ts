import { localFiles } from '../runtime/store/open-store.ts';
import { events } from '../datasets/dataset.ts';
import { parsePartitionPath } from '../datasets/partition.ts';
import { openDuckdb } from './sql/duckdb.ts';
import { sqlList } from './sql/literals.ts';
import { findLakeState, type Epoch, type Totals } from './log/lake-state.ts';
import { listLog, readCommit } from './log/log-files.ts';
import { lakePaths, listTables, tablePaths } from './lake.ts';
import { readSnapshot, type DataFile, type Snapshot } from './log/snapshot.ts';
import { findInfo } from './log/actions.ts';

/** A commit as `lake log` shows it. */
export interface HistoryEntry {
  /** Absent for the events table. */
  readonly table?: string;
  readonly version: number;
  /** ISO 8601. */
  readonly at: string;
  readonly cause: string;
  readonly filesAdded: number;
  readonly filesRemoved: number;
  readonly bytesAdded: number;
  /** Figures of the cause, such as rows or the stream fault. */
  readonly metrics: Readonly<Record<string, unknown>>;
  readonly totals?: Totals;
}

export async function readHistory(lakeDir: string, limit: number, dataset = events): Promise<HistoryEntry[]> {
  const { table } = tablePaths(lakeDir, dataset);
  const named = dataset === events ? {} : { table: dataset.table };
  const { commits } = await listLog(table);
  const newest = commits.slice(-limit).toReversed();
  return Promise.all(
    newest.map(async (version) => {
      const { actions } = await readCommit(table, version);
      const info = findInfo(actions);
      const lake = findLakeState(info);
      const adds = actions.flatMap((action) => action.add ?? []);
      return {
        ...named,
        version,
        at: new Date(info?.timestamp ?? 0).toISOString(),
        cause: lake?.cause ?? info?.operation ?? 'unknown',
        filesAdded: adds.length,
        filesRemoved: actions.filter((action) => action.remove !== undefined).length,
        bytesAdded: adds.reduce((sum, add) => sum + add.size, 0),
        metrics: info?.operationParameters ?? {},
        ...(lake === undefined ? {} : { totals: lake.totals }),
      };
    }),
  );
}

interface GroupStats {
  readonly kind: string;
  readonly date: string;
  readonly rows: number;
  readonly bytes: number;
  readonly sealedFiles: number;
  readonly youngRows: number;
}

export interface LakeStats {
  readonly version: number;
  readonly totals: Totals | undefined;
  readonly epoch: Epoch | undefined;
  readonly files: number;
  readonly youngFiles: number;
  readonly bytes: number;
  readonly groups: readonly GroupStats[];
  /** Secondary tables by name; absent without any. */
  readonly tables?: Readonly<Record<string, TableStats>>;
}

export interface TableStats {
  readonly version: number;
  readonly rows: number;
  readonly bytes: number;
  readonly files: number;
  readonly youngFiles: number;
}

/** The service status needs them every second. */
const summaries = new WeakMap<Snapshot, TableStats>();

function summarizeTable(snapshot: Snapshot): TableStats {
  const known = summaries.get(snapshot);
  if (known !== undefined) return known;
  const { version, files, young } = snapshot;
  const summary = {
    version,
    rows: files.reduce((sum, file) => sum + (file.numRecords ?? 0), 0),
    bytes: files.reduce((sum, file) => sum + file.sizeBytes, 0),
    files: files.length,
    youngFiles: young.length,
  };
  summaries.set(snapshot, summary);
  return summary;
}

/** Reads the newest snapshots of the secondary tables, by name. */
export async function readSecondaryTables(lakeDir: string): Promise<ReadonlyMap<string, Snapshot>> {
  const snapshots = new Map<string, Snapshot>();
  for (const dataset of await listTables(lakeDir))
    if (dataset !== events) snapshots.set(dataset.table, await readSnapshot(tablePaths(lakeDir, dataset).table));
  return snapshots;
}

export function summarizeTables(snapshots: ReadonlyMap<string, Snapshot>): Record<string, TableStats> {
  return Object.fromEntries([...snapshots].map(([table, snapshot]) => [table, summarizeTable(snapshot)]));
}

/** Returns the kind and date of a sealed file, if its folder has both. */
function findKindAndDate(file: DataFile): { readonly kind: string; readonly date: string } | undefined {
  const { kind, date } = parsePartitionPath(file.publishedPath ?? file.path) ?? {};
  return file.young || kind === undefined || date === undefined ? undefined : { kind, date };
}

/** Counts the rows of files by reading them: young ones, and sealed ones without kind and date in their folders. */
async function countRows(files: readonly DataFile[]): Promise<GroupStats[]> {
  if (files.length === 0) return [];
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    const rows = await localFiles.use(files, (paths) =>
      duckdb.rows(
        `SELECT kind, date::VARCHAR AS date, count(*) AS n FROM read_parquet(${sqlList(paths)}, hive_partitioning = false) GROUP BY ALL`,
      ),
    );
    const isYoung = files.every(({ young }) => young);
    const bytes = files.reduce((sum, file) => sum + file.sizeBytes, 0);
    const all = rows.reduce((sum, row) => sum + Number(row['n']), 0);
    return rows.map((row) => {
      const count = Number(row['n']);
      return {
        kind: String(row['kind']),
        date: String(row['date']),
        rows: count,
        bytes: Math.round((bytes * count) / all),
        sealedFiles: 0,
        youngRows: isYoung ? count : 0,
      };
    });
  } finally {
    duckdb.close();
  }
}

export async function readLakeStats(lakeDir: string): Promise<LakeStats> {
  const { table } = lakePaths(lakeDir);
  const { files, young, version, lake } = await readSnapshot(table);
  const sealed = files.flatMap((file): GroupStats[] => {
    const named = findKindAndDate(file);
    return named === undefined
      ? []
      : [{ ...named, rows: file.numRecords ?? 0, bytes: file.sizeBytes, sealedFiles: 1, youngRows: 0 }];
  });
  const untold = files.filter((file) => !file.young && findKindAndDate(file) === undefined);
  const groups = new Map<string, GroupStats>();
  for (const part of [...sealed, ...(await countRows(untold)), ...(await countRows(young))]) {
    const key = `${part.date} ${part.kind}`;
    const sum = groups.get(key) ?? { ...part, rows: 0, bytes: 0, sealedFiles: 0, youngRows: 0 };
    groups.set(key, {
      ...sum,
      rows: sum.rows + part.rows,
      bytes: sum.bytes + part.bytes,
      sealedFiles: sum.sealedFiles + part.sealedFiles,
      youngRows: sum.youngRows + part.youngRows,
    });
  }
  const tables = summarizeTables(await readSecondaryTables(lakeDir));
  return {
    version,
    totals: lake?.totals,
    epoch: lake?.epoch,
    files: files.length,
    youngFiles: young.length,
    bytes: files.reduce((sum, file) => sum + file.sizeBytes, 0),
    groups: [...groups.entries()].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, group]) => group),
    ...(Object.keys(tables).length === 0 ? {} : { tables }),
  };
}
