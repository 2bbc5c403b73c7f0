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
import { mergedGroups } from '../../lake/files/row-group-hashes.ts';
import { withReplacedSince } from '../../lake/files/rewrite.ts';
import { rowGroupBounds } from '../../lake/files/row-memory.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { parseSchemaString } from '../../lake/table-schema.ts';
import { measureApps, planRanges, type KeyPortion, type Range } from './merge-plan.ts';
import { sortChunkSql, type Output } from './seal-outputs.ts';

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

interface Merged {
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
  /** Measures the next input, or writes the next file; false if all are written. Errors: the engine's, `commit_conflict` as at the commit. */
  step(): Promise<boolean>;
  /** Under the maintenance lock. Errors: `commit_conflict` if an input was replaced meanwhile, `file_damaged`. */
  commit(): Promise<Merged>;
  /** Removes what was written, unless it is committed. */
  close(): Promise<void>;
}

function countRows(outputs: readonly Output[]): number {
  return outputs.reduce((sum, { written }) => sum + written.numRecords, 0);
}

function assertCounts(inputs: readonly DataFile[], read: number, rows: number): void {
  const known = inputs.reduce((sum, file) => sum + (file.numRecords ?? Number.NaN), 0);
  if (rows === read && (rows === known || Number.isNaN(known))) return;
  throw new AppError('file_damaged', `a merge of ${known} rows read ${read} and wrote ${rows}`, {
    hint: "Run 'tributary lake check', and restore the files that it names from a backup.",
  });
}

function assertLive(table: Table, inputs: readonly DataFile[]): void {
  const { files } = table.state();
  const replaced = inputs.find((file) => !files.has(encodeURI(file.path)));
  if (replaced === undefined) return;
  throw new AppError('commit_conflict', `${replaced.path} was replaced while its day was merged`, {
    hint: 'No action needed: the day is merged later.',
  });
}

function toActions(inputs: readonly DataFile[], outputs: readonly Output[], nowMs: number): Action[] {
  const keyless = inputs.every((file) => file.keyless === true);
  return [
    ...outputs.map((output) => ({
      add: withReplacedSince(toAdd(output.path, output.written, nowMs, false, keyless), nowMs),
    })),
    ...inputs.map((file) => ({ remove: { path: encodeURI(file.path), deletionTimestamp: nowMs, dataChange: false } })),
  ];
}

/** Begins the merge of a day: verifies the files and opens the change. Errors: `file_damaged`. */
export async function openDayMerge(
  { dataset, table, duckdb, clock, crashPoint, stagingDir, fileBytes }: DayMergeDependencies,
  folder: string,
  inputs: readonly DataFile[],
): Promise<DayMerge> {
  // A rewrite gets its own hash, which would hide damage.
  await assertFilesIntact(inputs);
  const snapshot = table.snapshot();
  const columns = parseSchemaString(snapshot.schemaString ?? '').map(({ name }) => name);
  const rowGroup = { ...rowGroupBounds(duckdb.memoryMb, columns.length), ...mergedGroups };
  const outputs: Output[] = [];
  const change = await openChange(table, stagingDir, 'a merge', crashPoint);
  /** The apps of the first inputs. */
  const measured: (readonly KeyPortion[])[] = [];
  let plan: Awaited<ReturnType<typeof planRanges>> | undefined;

  const readFiles = <T>(files: readonly DataFile[], work: (source: string) => Promise<T>): Promise<T> =>
    localFiles.use(withEmptyFile(snapshot, files), ([emptyFile = '', ...local]) =>
      work(sortChunkSql({ files: local }, emptyFile)),
    );

  async function write({ where, apps }: Range, index: number): Promise<void> {
    const file = path.join(change.folder, `${index}.parquet`);
    const isOutside = ({ minValues, maxValues }: DataFile): boolean =>
      Number(minValues['id_app']) > apps[1] || Number(maxValues['id_app']) < apps[0];
    const reached = inputs.filter((input) => !isOutside(input));
    const toQuery = (source: string): string =>
      `SELECT ${columns.join(', ')} FROM ${source} WHERE ${where} ORDER BY ${sortColumnsSql(dataset)}`;
    const written = await readFiles(reached, (source) =>
      writeDataFile(duckdb, toQuery(source), file, 'sealed', rowGroup),
    );
    outputs.push({ file, path: mergedPath(folder, change.id, index), written });
  }

  return {
    folder,
    inputs,
    async step() {
      // Rows that were erased meanwhile must not stay in staged files.
      assertLive(table, inputs);
      const source = { dataset, duckdb, read: readFiles };
      const unmeasured = inputs[measured.length];
      if (unmeasured !== undefined) {
        measured.push(await measureApps(source, unmeasured));
        return true;
      }
      plan ??= await planRanges(source, inputs, measured.flat(), fileBytes);
      const range = plan.ranges[outputs.length];
      if (range !== undefined) await write(range, outputs.length);
      return range !== undefined;
    },
    async commit() {
      const rows = countRows(outputs);
      assertCounts(inputs, plan?.rows ?? 0, rows);
      const metrics = { rows, filesIn: inputs.length, filesOut: outputs.length };
      await change.commit(outputs, () => ({
        cause: 'merge',
        actions: toActions(inputs, outputs, clock.nowMs()),
        metrics,
      }));
      const sizeBytes = outputs.reduce((sum, { written }) => sum + written.sizeBytes, 0);
      return { version: table.state().version, folder, ...metrics, sizeBytes };
    },
    close: () => change.close(),
  };
}
