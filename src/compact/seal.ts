import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { AppError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { inParallel } from '../runtime/in-parallel.ts';
import { eventColumns } from '../model/event-fields.ts';
import type { Action } from '../lake/actions.ts';
import { toAdd, writeDataFile, type WrittenFile } from '../lake/data-file.ts';
import { sqlList, sqlText, type Duckdb } from '../lake/duckdb.ts';
import { carryOut, openStaging, type Intent } from '../lake/intent.ts';
import { youngFolder, type DataFile } from '../lake/snapshot.ts';
import type { Table } from '../lake/table.ts';
import { findFileDamage } from '../lake/verify-files.ts';
import type { DueRows, Group } from './due.ts';

export interface SealDependencies {
  readonly table: Table;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly stagingDir: string;
  readonly dueRows: DueRows;
}

export interface SealOptions {
  /** What a sealed file is to hold, bytes, as in `DueOptions`; the input of one seal is bounded by a multiple of it. */
  readonly sealMaxBytes: number;
}

/** What a seal did, for its log line and the metrics. */
export interface Sealed {
  readonly version: number;
  readonly filesIn: number;
  readonly sealedFiles: number;
  readonly rows: number;
  /** Rows that stay young: their kind and date has too few yet. */
  readonly remnantRows: number;
  readonly sizeBytes: number;
}

/** So many small young files are made one, so that readers do not open hundreds. */
const mergeFiles = 64;
/** Young files of this part of `sealMaxBytes` and more are large enough as they are. */
const smallPart = 16;
/** Most a seal takes in at once, in multiples of `sealMaxBytes`. */
const inputPart = 4;
/** From so many groups on, the rows are sorted once instead of scanned for each. */
const manyGroups = 16;

const columnList = eventColumns.map(({ name }) => name).join(', ');

async function readGroups(duckdb: Duckdb, files: readonly DataFile[]): Promise<Group[]> {
  const rows = await duckdb.rows(
    `SELECT kind, date::VARCHAR AS date, count(*) AS rows, epoch_ms(min(available_at)) AS oldest, list(DISTINCT filename) AS files
     FROM read_parquet(${sqlList(files.map((file) => file.absolutePath))}, hive_partitioning = false, filename = true)
     GROUP BY ALL ORDER BY kind, date`,
  );
  return rows.map((row) => ({
    kind: String(row['kind']),
    date: String(row['date']),
    rows: Number(row['rows']),
    oldestMs: Number(row['oldest']),
    files: row['files'] as string[],
  }));
}

/** The young files to rewrite: those with rows that are due, up to a bound; or the small ones, when there are too many. */
function pickInputs(young: readonly DataFile[], due: readonly Group[], options: SealOptions): DataFile[] {
  const wanted = new Set(due.flatMap((group) => group.files));
  const candidates = due.length > 0 ? young.filter((file) => wanted.has(file.absolutePath)) : young.filter((file) => file.sizeBytes < options.sealMaxBytes / smallPart);
  if (due.length === 0 && candidates.length < mergeFiles) return [];
  const oldestFirst = candidates.toSorted((a, b) => (String(a.minValues['available_at']) < String(b.minValues['available_at']) ? -1 : 1));
  const inputs: DataFile[] = [];
  let bytes = 0;
  for (const file of oldestFirst) {
    if (inputs.length > 0 && bytes + file.sizeBytes > inputPart * options.sealMaxBytes) break;
    inputs.push(file);
    bytes += file.sizeBytes;
  }
  return inputs;
}

interface Output {
  /** Name in the staging folder. */
  readonly name: string;
  /** Relative to the table's folder. */
  readonly path: string;
  readonly written: WrittenFile;
}

/** Writes one file for each group that is due, and one young file of what remains, into the staging folder. */
async function writeOutputs(duckdb: Duckdb, inputs: readonly DataFile[], due: readonly Group[], folder: string, id: string): Promise<Output[]> {
  let source = `read_parquet(${sqlList(inputs.map((file) => file.absolutePath))}, union_by_name = true, hive_partitioning = false)`;
  const isDue = due.length === 0 ? 'false' : `(kind, date) IN (${due.map((group) => `(${sqlText(group.kind)}, DATE ${sqlText(group.date)})`).join(', ')})`;
  if (due.length >= manyGroups) {
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE seal_rows AS SELECT * FROM ${source} ORDER BY kind, date`);
    source = 'seal_rows';
  }
  const outputs: Output[] = [];
  const write = async (where: string, order: string, name: string, to: string): Promise<void> => {
    const file = path.join(folder, name);
    const written = await writeDataFile(duckdb, `SELECT ${columnList} FROM ${source} WHERE ${where} ORDER BY ${order}`, file);
    // A group that is due may have no rows in the inputs of a bounded seal.
    if (written.numRecords > 0) outputs.push({ name, path: to, written });
  };
  // While the engine writes one file, another is synced and hashed.
  await inParallel(due.entries(), 2, async ([index, { kind, date }]) => {
    await write(`kind = ${sqlText(kind)} AND date = DATE ${sqlText(date)}`, 'id_app, event_time', `${index}.parquet`, `kind=${kind}/date=${date}/${id}.parquet`);
  });
  await write(`NOT (${isDue})`, 'kind, date, id_app, event_time', 'young.parquet', `${youngFolder}/${id}.parquet`);
  if (due.length >= manyGroups) await duckdb.run('DROP TABLE seal_rows');
  return outputs;
}

function toIntent(table: Table, inputs: readonly DataFile[], outputs: readonly Output[], commitId: string, nowMs: number): Intent {
  const actions: Action[] = [
    ...outputs.map((output) => ({ add: toAdd(output.path, output.written, nowMs, false) })),
    ...inputs.map((file) => ({ remove: { path: encodeURI(file.path), deletionTimestamp: nowMs, dataChange: false } })),
  ];
  const rows = outputs.reduce((sum, output) => sum + output.written.numRecords, 0);
  return {
    commitId,
    baseVersion: table.state().version,
    moves: outputs.map((output) => ({ name: output.name, to: path.join(table.dir, output.path) })),
    change: { cause: 'seal', actions, metrics: { rows, filesIn: inputs.length, filesOut: outputs.length } },
    unlink: [],
  };
}

function countRows(outputs: readonly Output[]): number {
  return outputs.reduce((sum, output) => sum + output.written.numRecords, 0);
}

/** Notes which files are damaged; says whether any is. */
async function noteDamages(files: readonly DataFile[], leftOut: Map<string, AppError>): Promise<boolean> {
  const before = leftOut.size;
  for (const file of files) {
    const damage = await findFileDamage(file);
    if (damage !== undefined) leftOut.set(file.path, damage);
  }
  return leftOut.size > before;
}

/**
 * Seals what is due: young rows of a kind and date become one file in its Hive folder, sorted by app and time; rows of the
 * same files that are not due stay young, in one new file. Undefined when nothing is due. Under the maintenance lock.
 * Rows change place, never value: `available_at` stays. A damaged file is noted in `leftOut`, by its path, and stays as it is, as do those that are there
 * already. Errors: `corrupt` when the rows in and out differ, `disk`, `sql`.
 */
export async function sealDue(dependencies: SealDependencies, options: SealOptions, leftOut: Map<string, AppError>): Promise<Sealed | undefined> {
  const { table, duckdb, clock, crashPoint, stagingDir, dueRows } = dependencies;
  const nowMs = clock.nowMs();
  await table.refresh();
  const young = table.snapshot().files.filter((file) => file.young && !leftOut.has(file.path));
  if (young.length === 0) return undefined;
  const groups = await readGroups(duckdb, young).catch(async (error: unknown) => {
    if (await noteDamages(young, leftOut)) return undefined;
    throw error;
  });
  if (groups === undefined) return sealDue(dependencies, options, leftOut);
  const due = dueRows.find(groups, young, nowMs);
  const inputs = pickInputs(young, due, options);
  if (inputs.length === 0) return undefined;
  // What is rewritten gets a hash of its own: damage would be believed from then on.
  if (await noteDamages(inputs, leftOut)) return sealDue(dependencies, options, leftOut);

  const commitId = randomUUID();
  const folder = await openStaging(stagingDir, commitId);
  const outputs = await writeOutputs(duckdb, inputs, due, folder, commitId).catch(async (error: unknown) => {
    // Nothing is certain yet; on a disk that is full the room is needed at once.
    await rm(folder, { recursive: true, force: true });
    throw error;
  });
  const sealed = outputs.filter((output) => !output.path.startsWith(youngFolder));
  const rowsIn = inputs.reduce((sum, file) => sum + (file.numRecords ?? Number.NaN), 0);
  if (countRows(outputs) !== rowsIn) {
    throw new AppError('corrupt', `a seal of ${rowsIn} rows wrote ${countRows(outputs)}`, { hint: 'Run tributary lake check.' });
  }
  await carryOut(table, stagingDir, toIntent(table, inputs, outputs, commitId, nowMs), crashPoint);
  // What the bound has left young is still due.
  const taken = new Set(inputs.map((file) => file.absolutePath));
  dueRows.sealed(due.filter((group) => group.files.every((file) => taken.has(file))));
  return {
    version: table.state().version,
    filesIn: inputs.length,
    sealedFiles: sealed.length,
    rows: countRows(sealed),
    remnantRows: countRows(outputs) - countRows(sealed),
    sizeBytes: sealed.reduce((sum, output) => sum + output.written.sizeBytes, 0),
  };
}
