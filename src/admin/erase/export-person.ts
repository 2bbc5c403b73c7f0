/**
 * Export of a person: all that the lake has of one person, for the right of access.
 *
 * In: a target, as of an erasure. Out: a folder with a file of JSON lines per table, the failed events, the rows in
 * quarantine, and `manifest.json` with their counts, which equal those of the erasure's dry run.
 * Invariant: the folder has its name when it is complete, and is readable by its owner only.
 * Crash: a killed export leaves `NAME.partial` with some of the files; the next one removes it and starts over.
 */
import path from 'node:path';
import { withEmptyFile } from '../../lake/log/snapshot.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import type { Clock } from '../../runtime/clock.ts';
import { AppError } from '../../runtime/errors.ts';
import { moveFile, syncFile, syncFolder, writeNewFile } from '../../runtime/files/durable-file.ts';
import { exists, hashFile } from '../../runtime/files/file-checks.ts';
import { acquireLock } from '../../runtime/files/lock.ts';
import { makeFolder } from '../../runtime/files/make-folder.ts';
import { removeTree, setMode } from '../../runtime/files/work-files.ts';
import { localFiles } from '../../runtime/store/open-store.ts';
import { readFilesSql } from '../tables.ts';
import { useQuarantined } from './erase-outside-tables.ts';
import { columnsOf, sumHits, type UserIdScope } from './erase-table.ts';
import { matchSql, type ErasureTarget } from './erase-target.ts';
import { countSurvey, surveyTarget, type SurveyDependencies, type SurveyedTable } from './survey.ts';

interface PersonExportDependencies extends SurveyDependencies {
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

export interface PersonExportOptions {
  /** The folder to create; its parent exists. */
  readonly folder: string;
  /** Throws if the ids are those of several people, before anything is written. */
  readonly assertMeant: (found: readonly UserIdScope[]) => void;
}

interface PersonFile {
  readonly name: string;
  /** Table of the rows; absent for failed events. */
  readonly table?: string;
  /** Version of the table that was read; absent for rows outside of a table. */
  readonly version?: number;
  readonly rows: number;
  readonly sha256: string;
}

/** Counts of an export, as in its manifest. `rows` and `failedEvents` are those of `erase --dry-run`. */
export interface ExportedPerson {
  readonly folder: string;
  readonly rows: number;
  readonly failedEvents: number;
  readonly quarantinedRows?: number;
  readonly files: readonly PersonFile[];
}

const fileMode = 0o600;

function throwIfStopped({ signal }: PersonExportDependencies): void {
  if (signal.aborted)
    throw new AppError('stopping', 'the export of a person was stopped', {
      hint: 'Run the command again; it starts over.',
    });
}

/** Copies the rows of a query to JSON lines, durably except for the folder. Error: for another number of rows. */
async function copyRows(
  dependencies: PersonExportDependencies,
  query: string,
  file: string,
  expected: number,
): Promise<Pick<PersonFile, 'name' | 'rows' | 'sha256'>> {
  const { duckdb, signal } = dependencies;
  throwIfStopped(dependencies);
  const interrupt = (): void => duckdb.interrupt();
  signal.addEventListener('abort', interrupt);
  try {
    const [row] = await duckdb.rows(`COPY (${query}) TO ${sqlText(file)} (FORMAT json)`);
    const rows = Number(Object.values(row ?? {})[0]);
    if (rows !== expected) throw new Error(`${file} has ${rows} rows, ${expected} were found`);
    await setMode(file, fileMode);
    await syncFile(file);
    return { name: path.basename(file), rows, sha256: await hashFile(file) };
  } catch (error) {
    throwIfStopped(dependencies);
    throw error;
  } finally {
    signal.removeEventListener('abort', interrupt);
  }
}

function copyTable(
  dependencies: PersonExportDependencies,
  { dataset, snapshot, hits }: SurveyedTable,
  target: ErasureTarget,
  folder: string,
): Promise<PersonFile> {
  const files = withEmptyFile(
    snapshot,
    hits.map(({ file }) => file),
  );
  return localFiles.use(files, async (paths) => {
    const query = `SELECT * FROM ${readFilesSql(paths)} WHERE ${matchSql(target, columnsOf(snapshot))} ORDER BY event_time, event_id`;
    const copied = await copyRows(dependencies, query, path.join(folder, `${dataset.table}.jsonl`), sumHits(hits));
    return { ...copied, table: dataset.table, version: snapshot.version };
  });
}

/** Writes the files of a person into an empty folder. */
async function writeFiles(
  dependencies: PersonExportDependencies,
  target: ErasureTarget,
  folder: string,
  { assertMeant }: PersonExportOptions,
): Promise<Omit<ExportedPerson, 'folder'>> {
  const survey = await surveyTarget(dependencies, target);
  assertMeant(survey.meanings);
  const files: PersonFile[] = [];
  for (const table of survey.tables)
    if (table.hits.length > 0) files.push(await copyTable(dependencies, table, target, folder));
  for (const { file, hits } of survey.quarantined) {
    const name = `quarantined-${path.basename(file, '.parquet')}.jsonl`;
    const copied = await useQuarantined(dependencies.lakeDir, file, target, (source, matches) =>
      copyRows(dependencies, `SELECT * FROM ${source} WHERE ${matches}`, path.join(folder, name), hits),
    );
    files.push(copied);
  }
  if (survey.failed.length > 0) {
    const file = path.join(folder, 'failed.jsonl');
    await writeNewFile(file, survey.failed.map((event) => `${JSON.stringify(event)}\n`).join(''));
    files.push({ name: path.basename(file), rows: survey.failed.length, sha256: await hashFile(file) });
  }
  const { meanings: _meanings, filesToRewrite: _files, tables: _tables, ...counts } = countSurvey(survey);
  return { ...counts, files };
}

/**
 * Exports all that the lake has of a target into a new folder. Events of the backlog are not in it. Errors: `usage` if
 * the folder exists, `locked` while another export writes it, `stopping`, and those of `surveyTarget`.
 */
export async function exportPerson(
  dependencies: PersonExportDependencies,
  target: ErasureTarget,
  options: PersonExportOptions,
): Promise<ExportedPerson> {
  const folder = path.resolve(options.folder);
  if (await exists(folder))
    throw new AppError('usage', `${folder} exists already; nothing was written`, {
      hint: 'Pass a new folder with -o.',
    });
  const work = `${folder}.partial`;
  const lock = acquireLock(work, 'an export of a person');
  try {
    const partial = path.join(work, 'files');
    await removeTree(partial);
    await makeFolder(partial);
    const { rows, files, ...counts } = await writeFiles(dependencies, target, partial, options);
    const createdAt = new Date(dependencies.clock.nowMs()).toISOString();
    const manifest = { createdAt, target, backlog: 'not included', rows, ...counts, files };
    await writeNewFile(path.join(partial, 'manifest.json'), `${JSON.stringify(manifest, undefined, 2)}\n`);
    await syncFolder(partial);
    await moveFile(partial, folder);
    await syncFolder(path.dirname(folder));
    return { folder, rows, ...counts, files };
  } finally {
    await removeTree(work);
    lock.release();
  }
}
