/**
 * Seals: rewrites young rows into sealed files, concurrently with the flushes.
 *
 * In: young files of the lake's log whose rows are due (seal-policy.ts). Out: sealed files in their folders, new young
 * files for the rows that are not due, one commit.
 * Invariant: a seal changes no value of a row; the counts in and out are equal; damaged files are left out.
 * Crash: all or nothing, by one change (lake/files/change.ts).
 */
import { localFiles } from '../../runtime/store/open-store.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { partitionPath } from '../../datasets/partition.ts';
import type { Action } from '../../lake/log/actions.ts';
import { toAdd, findFileDamage } from '../../lake/files/data-file.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { openChange, type OpenChange } from '../../lake/files/change.ts';
import { engineBudget, type EngineBudget } from '../../lake/files/row-memory.ts';
import { withEmptyFile, type DataFile } from '../../lake/log/snapshot.ts';
import type { Change, Table } from '../../lake/log/table.ts';
import { parseSchemaString } from '../../lake/table-schema.ts';
import { isYoungPath } from '../../lake/log/young-folder.ts';
import { takeBounded } from '../compact-options.ts';
import {
  partitionKeyOf,
  type DueOptions,
  type DueRows,
  type PartitionGroup,
  readPartitionGroups,
  allocateBytes,
  type YoungFileStats,
} from './seal-policy.ts';
import {
  writeOutputs,
  type Output,
  measurePartitionCosts,
  sortChunkSql,
  type PartitionCosts,
  type PartitionCost,
} from './seal-outputs.ts';

export interface SealDependencies {
  readonly dataset: Dataset;
  readonly table: Table;
  /** One thread, with bounded row groups. */
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly stagingDir: string;
  readonly dueRows: DueRows;
  readonly known?: YoungFileStats;
  readonly measured?: PartitionCosts;
  /** Receives an error after which fewer files are tried. */
  readonly onRetry?: (error: AppError) => void;
  readonly signal?: AbortSignal;
}

export interface Sealed {
  readonly version: number;
  readonly filesIn: number;
  readonly sealedFiles: number;
  readonly rows: number;
  /** Rows that stay young: their partition has too few. */
  readonly remnantRows: number;
  readonly sizeBytes: number;
}

/** Number of small young files that are merged, so that readers do not open hundreds. */
const mergeFiles = 64;
/** Young files of at least this part of `sealMaxBytes` are not merged. */
const smallPart = 16;
/** Limits the input of a seal, in multiples of `sealMaxBytes`. */
const inputPart = 4;
/** Limits the rows of a seal in memory, bytes: of rows that compress well, `sealMaxBytes` would be hours of work. */
const maxInputBytes = 8 * 1024 ** 3;
/** Number of files that may fail individually before a seal gives up. */
const maxFailures = 3;

/**
 * Picks the young files to rewrite: those with due rows, or the small ones if there are too many. Of a due group it
 * takes about the rows of one sealed file.
 */
function pickInputs(
  young: readonly DataFile[],
  due: readonly PartitionGroup[],
  known: YoungFileStats,
  sealMaxBytes: number,
): DataFile[] {
  const wanted = new Set(due.flatMap((partitionGroup) => partitionGroup.files));
  const candidates =
    due.length > 0
      ? young.filter((file) => wanted.has(file.absolutePath))
      : young.filter((file) => file.sizeBytes < sealMaxBytes / smallPart);
  if (due.length === 0 && candidates.length < mergeFiles) return [];
  const oldestFirst = candidates.toSorted((a, b) =>
    String(a.minValues['available_at']) < String(b.minValues['available_at']) ? -1 : 1,
  );
  const takenOf = new Map(due.map((partitionGroup) => [partitionKeyOf(partitionGroup), 0]));
  const inputs: DataFile[] = [];
  let bytes = 0;
  for (const file of oldestFirst) {
    const shares = allocateBytes(file, known).filter(([key]) => takenOf.has(key));
    const isFull =
      bytes + file.sizeBytes > inputPart * sealMaxBytes ||
      shares.some(([key, share]) => (takenOf.get(key) ?? 0) + share > sealMaxBytes);
    if (inputs.length > 0 && isFull) break;
    inputs.push(file);
    bytes += file.sizeBytes;
    for (const [key, share] of shares) takenOf.set(key, (takenOf.get(key) ?? 0) + share);
  }
  return inputs;
}

function toChange(inputs: readonly DataFile[], outputs: readonly Output[], nowMs: number): Change {
  const keyless = inputs.every((file) => file.keyless);
  const actions: Action[] = [
    ...outputs.map((output) => ({ add: toAdd(output.path, output.written, nowMs, false, keyless) })),
    ...inputs.map((file) => ({ remove: { path: encodeURI(file.path), deletionTimestamp: nowMs, dataChange: false } })),
  ];
  const metrics = { rows: countRows(outputs), filesIn: inputs.length, filesOut: outputs.length };
  return { cause: 'seal', actions, metrics };
}

function countRows(outputs: readonly Output[]): number {
  return outputs.reduce((sum, output) => sum + output.written.numRecords, 0);
}

function isEngineError(error: unknown): error is AppError {
  return isAppError(error, 'memory') || isAppError(error, 'sql');
}

function describeFailure(
  { path: file, absolutePath }: DataFile,
  partitionGroups: readonly PartitionGroup[],
  error: AppError,
): AppError {
  const held = partitionGroups
    .filter(({ files }) => files.includes(absolutePath))
    .map(({ partition }) => partitionPath(partition));
  const of =
    held.length === 0
      ? ''
      : ` (${held.slice(0, 3).join(', ')}${held.length > 3 ? ` and ${held.length - 3} more` : ''})`;
  return new AppError(error.code, `cannot seal ${file}${of}: ${error.message}`, {
    cause: error,
    ...(error.hint === undefined ? {} : { hint: error.hint }),
  });
}

/** Skips files that the engine cannot read; reports whether there are any. Throws if it cannot read the empty file. */
async function noteUnreadable(
  { dataset, duckdb, table }: SealDependencies,
  files: readonly DataFile[],
  leftOut: Map<string, AppError>,
): Promise<boolean> {
  const before = leftOut.size;
  await localFiles.use(withEmptyFile(table.snapshot()), ([emptyFile = '']) =>
    duckdb.rows(`SELECT count(*) AS n FROM ${sortChunkSql({ files: [] }, emptyFile)}`),
  );
  for (const file of files) {
    await readPartitionGroups(dataset, duckdb, [file]).catch((error: unknown) => {
      if (!isEngineError(error)) throw error;
      leftOut.set(file.path, describeFailure(file, [], error));
    });
  }
  return leftOut.size > before;
}

async function noteDamages(files: readonly DataFile[], leftOut: Map<string, AppError>): Promise<boolean> {
  const before = leftOut.size;
  for (const file of files) {
    const damage = await findFileDamage(file);
    if (damage !== undefined) leftOut.set(file.path, damage);
  }
  return leftOut.size > before;
}

/** Returns the oldest files whose rows fit the memory, at least one. */
function boundInputs(inputs: readonly DataFile[], partitionCosts: readonly PartitionCost[]): DataFile[] {
  const bytesOf = new Map<string, number>();
  for (const { file, bytes } of partitionCosts) bytesOf.set(file, (bytesOf.get(file) ?? 0) + bytes);
  return takeBounded(inputs, ({ absolutePath }) => bytesOf.get(absolutePath) ?? 0, inputs.length, maxInputBytes);
}

/** Reports whether a merge leaves half as many files: wide rows fill several files again. */
function isWorthMerging(
  inputs: readonly DataFile[],
  partitionCosts: readonly PartitionCost[],
  budget: EngineBudget,
): boolean {
  const wide = partitionCosts.reduce((sum, partitionCost) => sum + partitionCost.wideBytes, 0);
  return 2 * Math.ceil(wide / budget.wideBytes) <= inputs.length;
}

async function stage(
  dependencies: SealDependencies,
  inputs: readonly DataFile[],
  due: readonly PartitionGroup[],
  { id, folder }: OpenChange,
  emptyFile: string,
): Promise<{ outputs: Output[]; usedInputs: DataFile[] } | undefined> {
  const { dataset, table, duckdb } = dependencies;
  const { schemaString = '' } = table.snapshot();
  const columns = parseSchemaString(schemaString).map(({ name }) => name);
  const budget = engineBudget(duckdb.memoryMb);
  const source = { dataset, duckdb, emptyFile, budget };
  const measured = await measurePartitionCosts(source, inputs, dependencies.measured ?? new Map());
  const usedInputs = boundInputs(inputs, measured);
  const partitionCosts = measured.filter((partitionCost) =>
    usedInputs.some(({ absolutePath }) => absolutePath === partitionCost.file),
  );
  if (due.length === 0 && !isWorthMerging(usedInputs, partitionCosts, budget)) return undefined;
  // The inputs are bounded: they may have no rows of a due group.
  const dueInInputs = due.filter((partitionGroup) =>
    partitionCosts.some((partitionCost) => partitionKeyOf(partitionCost) === partitionKeyOf(partitionGroup)),
  );
  const outputs = await localFiles.use(usedInputs, (paths) => {
    const pathOf = new Map(usedInputs.map(({ absolutePath }, index) => [absolutePath, paths[index] ?? '']));
    const local = partitionCosts.map((partitionCost) => ({
      ...partitionCost,
      file: pathOf.get(partitionCost.file) ?? '',
    }));
    return writeOutputs({ dataset, columns, duckdb, emptyFile, partitionCosts: local, due: dueInInputs, folder, id });
  });
  const rowsIn = usedInputs.reduce((sum, file) => sum + (file.numRecords ?? Number.NaN), 0);
  if (countRows(outputs) !== rowsIn)
    throw new AppError('file_damaged', `a seal of ${rowsIn} rows wrote ${countRows(outputs)}`, {
      hint: "Run 'tributary lake check', and restore the files that it names from a backup.",
    });
  return { outputs, usedInputs };
}

/** Seals files by one commit; undefined if it is not worth it. After an error nothing is left. */
async function sealFiles(
  dependencies: SealDependencies,
  inputs: readonly DataFile[],
  due: readonly PartitionGroup[],
  nowMs: number,
): Promise<{ sealed: Sealed; usedInputs: DataFile[] } | undefined> {
  const { table, stagingDir, crashPoint } = dependencies;
  const change = await openChange(table, stagingDir, 'a seal', crashPoint);
  try {
    const staged = await localFiles.use(withEmptyFile(table.snapshot()), ([emptyFile = '']) =>
      stage(dependencies, inputs, due, change, emptyFile),
    );
    if (staged === undefined) return undefined;
    const { outputs, usedInputs } = staged;
    await change.commit(outputs, () => toChange(usedInputs, outputs, nowMs));
    const sealed = outputs.filter((output) => !isYoungPath(output.path));
    return {
      usedInputs,
      sealed: {
        version: table.state().version,
        filesIn: usedInputs.length,
        sealedFiles: sealed.length,
        rows: countRows(sealed),
        remnantRows: countRows(outputs) - countRows(sealed),
        sizeBytes: sealed.reduce((sum, output) => sum + output.written.sizeBytes, 0),
      },
    };
  } finally {
    await change.close();
  }
}

/**
 * Seals what is due: young rows of a partition become one file in its Hive folder, sorted by app and time, or several
 * if the rows are so wide that the engine cannot sort them together. Other rows of the same files stay young, in new
 * files. Undefined if nothing is due. Runs under the maintenance lock. Skips the files of `leftOut`, by path, and adds
 * damaged files and those that fail. After an engine error (`memory`, `sql`) it tries half the files, down to one.
 * Errors: `file_damaged` if the rows in and out differ, `disk`; `memory` and `sql` if one file after the other fails.
 */
export async function sealDueFiles(
  dependencies: SealDependencies,
  { sealMaxBytes }: Pick<DueOptions, 'sealMaxBytes'>,
  leftOut: Map<string, AppError>,
): Promise<Sealed | undefined> {
  const { dataset, table, duckdb, clock, dueRows, signal } = dependencies;
  const known = dependencies.known ?? new Map();
  await table.refresh();
  let maxInputs = Number.POSITIVE_INFINITY;
  for (let failures = 0; ;) {
    const nowMs = clock.nowMs();
    const young = table.snapshot().young.filter((file) => !leftOut.has(file.path));
    if (young.length === 0) return undefined;
    const partitionGroups = await readPartitionGroups(dataset, duckdb, young, known).catch(async (error: unknown) => {
      if (
        signal?.aborted !== true &&
        ((await noteDamages(young, leftOut)) ||
          (isEngineError(error) && (await noteUnreadable(dependencies, young, leftOut))))
      )
        return undefined;
      throw error;
    });
    if (partitionGroups === undefined) continue;
    const due = dueRows.find(partitionGroups, young, nowMs);
    const inputs = pickInputs(young, due, known, sealMaxBytes).slice(0, maxInputs);
    if (inputs.length === 0 || (due.length === 0 && inputs.length < 2)) return undefined;
    // A rewrite gets its own hash, which would hide damage.
    if (await noteDamages(inputs, leftOut)) continue;

    let done;
    try {
      done = await sealFiles(dependencies, inputs, due, nowMs);
    } catch (error) {
      if (signal?.aborted === true || !isEngineError(error)) throw error;
      maxInputs = Math.floor(inputs.length / 2);
      if (maxInputs > 0) {
        dependencies.onRetry?.(error);
        continue;
      }
      const [failed] = inputs;
      if (failed !== undefined) leftOut.set(failed.path, describeFailure(failed, partitionGroups, error));
      failures += 1;
      if (failures === maxFailures) throw error;
      maxInputs = 1;
      continue;
    }
    if (done === undefined) return undefined;
    // Groups that the bound has left young are still due.
    const sealedPaths = new Set(done.usedInputs.map((file) => file.absolutePath));
    dueRows.sealed(due.filter((partitionGroup) => partitionGroup.files.every((file) => sealedPaths.has(file))));
    return done.sealed;
  }
}
