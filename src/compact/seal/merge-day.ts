/**
 * Merges the sealed files of a day into files sorted by app and time, cut between apps.
 *
 * In: verified live files of one partition. Out: files of about the target size, one commit that replaces all inputs.
 * Invariant: a merge changes no value of a row; the counts in and out are equal. The inputs are live at its commit.
 * Crash: all or nothing, by one change (lake/files/change.ts). Readers of folders see it later, in one step
 * (lake/files/merged-folders.ts).
 */
import path from 'node:path';
import { localFiles } from '../../runtime/store/open-store.ts';
import { AppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { sortColumnsSql } from '../../datasets/partition.ts';
import type { Action } from '../../lake/log/actions.ts';
import { mergedPath } from '../../lake/log/young-folder.ts';
import { withEmptyFile, type DataFile } from '../../lake/log/snapshot.ts';
import type { Table } from '../../lake/log/table.ts';
import { openChange } from '../../lake/files/change.ts';
import { assertFilesIntact, toAdd, writeDataFile } from '../../lake/files/data-file.ts';
import { engineBudget, rowBytesSql, rowGroupBounds } from '../../lake/files/row-memory.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { parseSchemaString } from '../../lake/table-schema.ts';
import { cutPortions, fits, type Portion } from './merge-policy.ts';
import { sortChunkSql, wideSql, type Output } from './seal-outputs.ts';
import { sumBytes } from './seal-task.ts';

export interface DayMergeDependencies {
  readonly dataset: Dataset;
  readonly table: Table;
  /** One thread, with bounded row groups. */
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly stagingDir: string;
  /** Size of a merged file, bytes. */
  readonly fileBytes: number;
}

export interface Merged {
  readonly version: number;
  readonly folder: string;
  readonly filesIn: number;
  readonly filesOut: number;
  readonly rows: number;
  readonly sizeBytes: number;
}

/** A day whose merge is running. */
export interface DayMerge {
  readonly folder: string;
  readonly inputs: readonly DataFile[];
  /** Writes the next file; false if all are written. Errors: the engine's. */
  step(): Promise<boolean>;
  /** Under the maintenance lock. Errors: `commit_conflict` if an input was replaced meanwhile, `file_damaged`. */
  commit(): Promise<Merged>;
  /** Removes what was written, unless it is committed. */
  close(): Promise<void>;
}

/** Rows of a merged file, and the first and last of their apps. */
interface Range {
  readonly where: string;
  readonly apps: readonly [number, number];
}

/** The rows of an app, or of a second (Unix) of an app. */
interface KeyPortion extends Portion {
  readonly key: number;
}

const secondSql = 'epoch_us(event_time) // 1000000';

const timeSql = ({ key }: KeyPortion): string => `TIMESTAMPTZ '${new Date(key * 1000).toISOString()}'`;

function appRange(portions: readonly KeyPortion[]): Range {
  const [first, last] = [portions[0]?.key ?? 0, portions.at(-1)?.key ?? 0];
  return { where: `id_app BETWEEN ${first} AND ${last}`, apps: [first, last] };
}

/** Returns the ranges of an app's seconds, which files divide between them. */
function secondRanges(idApp: number, files: readonly (readonly KeyPortion[])[]): Range[] {
  return files.map(([first], index) => {
    const next = files[index + 1]?.[0];
    const from = first === undefined || index === 0 ? '' : ` AND event_time >= ${timeSql(first)}`;
    const to = next === undefined ? '' : ` AND event_time < ${timeSql(next)}`;
    return { where: `id_app = ${idApp}${from}${to}`, apps: [idApp, idApp] };
  });
}

/** Begins the merge of a day: verifies the files and opens the change. Errors: `file_damaged`. */
export async function openDayMerge(
  dependencies: DayMergeDependencies,
  folder: string,
  inputs: readonly DataFile[],
): Promise<DayMerge> {
  const { dataset, table, duckdb, clock, crashPoint, stagingDir, fileBytes } = dependencies;
  // A rewrite gets its own hash, which would hide damage.
  await assertFilesIntact(inputs);
  const snapshot = table.snapshot();
  const columns = parseSchemaString(snapshot.schemaString ?? '').map(({ name }) => name);
  const budget = engineBudget(duckdb.memoryMb);
  const outputs: Output[] = [];
  const change = await openChange(table, stagingDir, 'a merge', crashPoint);
  let ranges: Range[] | undefined;
  let rowsIn = 0;

  const withInputs = <T>(files: readonly DataFile[], work: (source: string) => Promise<T>): Promise<T> =>
    localFiles.use(withEmptyFile(snapshot, files), ([emptyFile = '', ...local]) =>
      work(sortChunkSql({ files: local }, emptyFile)),
    );

  /** Measures groups of the inputs' rows. `bytesPerByte`: size in a file of a byte in memory. */
  async function measure(key: string, where: string, bytesPerByte?: number) {
    const rows = await withInputs(inputs, (source) =>
      duckdb.rows(
        `SELECT key, count(*) AS rows, sum(bytes)::BIGINT AS bytes, ${wideSql(budget)}
         FROM (SELECT ${key} AS key, ${rowBytesSql(dataset.columns)} AS bytes FROM ${source} WHERE ${where})
         GROUP BY key ORDER BY key`,
      ),
    );
    const memoryBytes = rows.reduce((sum, row) => sum + Number(row['bytes']), 0);
    const ratio = bytesPerByte ?? sumBytes(inputs) / Math.max(1, memoryBytes);
    const portions = rows.map((row) => ({
      key: Number(row['key']),
      rows: Number(row['rows']),
      bytes: Number(row['bytes']) * ratio,
      wideBytes: Number(row['wide']),
    }));
    return { portions, ratio };
  }

  /** Cuts the day between apps, and an app that is too large for a file between seconds. */
  async function plan(): Promise<Range[]> {
    const limit = { bytes: fileBytes, wideBytes: budget.wideBytes };
    const { portions, ratio } = await measure('id_app', 'true');
    rowsIn = portions.reduce((sum, { rows }) => sum + rows, 0);
    const planned: Range[] = [];
    let small: KeyPortion[] = [];
    const endSmall = (): void => {
      planned.push(...cutPortions(small, limit).map(appRange));
      small = [];
    };
    for (const app of portions) {
      if (fits(app, limit)) small.push(app);
      else {
        endSmall();
        const seconds = await measure(secondSql, `id_app = ${app.key}`, ratio);
        planned.push(...secondRanges(app.key, cutPortions(seconds.portions, limit)));
      }
    }
    endSmall();
    return planned;
  }

  async function write({ where, apps }: Range, index: number): Promise<void> {
    const file = path.join(change.folder, `${index}.parquet`);
    const isOutside = ({ minValues, maxValues }: DataFile): boolean =>
      Number(minValues['id_app']) > apps[1] || Number(maxValues['id_app']) < apps[0];
    const written = await withInputs(
      inputs.filter((input) => !isOutside(input)),
      (source) =>
        writeDataFile(
          duckdb,
          `SELECT ${columns.join(', ')} FROM ${source} WHERE ${where} ORDER BY ${sortColumnsSql(dataset)}`,
          file,
          'sealed',
          { ...rowGroupBounds(duckdb.memoryMb, columns.length), rows: rowsOfGroup },
        ),
    );
    outputs.push({ file, path: mergedPath(folder, change.id, index), written });
  }

  function assertCounts(rows: number): void {
    const known = inputs.reduce((sum, file) => sum + (file.numRecords ?? Number.NaN), 0);
    if (rows === rowsIn && (rows === known || Number.isNaN(known))) return;
    throw new AppError('file_damaged', `a merge of ${known} rows read ${rowsIn} and wrote ${rows}`, {
      hint: "Run 'tributary lake check', and restore the files that it names from a backup.",
    });
  }

  return {
    folder,
    inputs,
    async step() {
      if (ranges === undefined) {
        ranges = await plan();
        return true;
      }
      const range = ranges[outputs.length];
      if (range === undefined) return false;
      await write(range, outputs.length);
      return true;
    },
    async commit() {
      const rows = outputs.reduce((sum, { written }) => sum + written.numRecords, 0);
      assertCounts(rows);
      const keyless = inputs.every((file) => file.keyless === true);
      const metrics = { rows, filesIn: inputs.length, filesOut: outputs.length };
      await change.commit(outputs, () => {
        const nowMs = clock.nowMs();
        const actions: Action[] = [
          ...outputs.map((output) => ({ add: toAdd(output.path, output.written, nowMs, false, keyless) })),
          ...inputs.map((file) => ({
            remove: { path: encodeURI(file.path), deletionTimestamp: nowMs, dataChange: false },
          })),
        ];
        return { cause: 'merge', actions, metrics };
      });
      const sizeBytes = outputs.reduce((sum, { written }) => sum + written.sizeBytes, 0);
      return { version: table.state().version, folder, ...metrics, sizeBytes };
    },
    close: () => change.close(),
  };
}

/** Rows per row group: few, so that reading one app of many reads few other rows. */
const rowsOfGroup = 32_768;
