import { removeFile } from '../../runtime/files/durable-file.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { findEnrichedGroups } from '../../datasets/enriched-columns.ts';
import { writeDataFiles, type WrittenPart } from '../../lake/files/data-file.ts';
import {
  type Enricher,
  createRowLookups,
  type EnrichedSelect,
  type RowLookups,
} from '../../lake/files/enriched-rows.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import { describeFileSql } from '../../lake/table-schema.ts';
import { fillRows } from '../enrich.ts';
import { throwIfStopped, rowGroupsPerFile, type StageOptions } from './stage-rows.ts';

/**
 * Fills the enriched columns of staged rows: a file with rows to fill is rewritten in the same order. The identities of
 * rows, computed before, stay.
 */

interface EnrichStagedOptions extends Pick<StageOptions, 'dataset' | 'signal' | 'makeRoom'> {
  readonly enricher: Enricher | undefined;
}

const lookedUp = ['ipv4', 'ipv6', 'user_agent'];

/** The columns of a staged file, which has only those that its rows need. */
interface StagedColumns {
  readonly has: (column: string) => boolean;
  readonly missing: readonly string[];
}

async function readStagedColumns(duckdb: Duckdb, file: string): Promise<StagedColumns> {
  const names = new Set((await duckdb.rows(describeFileSql(file))).map((row) => String(row['column_name'])));
  return { has: (column) => names.has(column), missing: lookedUp.filter((column) => !names.has(column)) };
}

/** SQL of the rows of a file with the filled columns, in order, which decides on the duplicate that stays. */
function toQuery(
  source: string,
  { values, joins }: EnrichedSelect,
  { columns }: Dataset,
  { has, missing }: StagedColumns,
): string {
  const typed = columns.flatMap(({ name, type }) => {
    const value = values.get(name);
    return value === undefined ? [] : [{ name, sql: `CAST(${value} AS ${type}) AS ${name}` }];
  });
  const replaced = typed.filter(({ name }) => has(name)).map(({ sql }) => sql);
  const added = typed.filter(({ name }) => !has(name)).map(({ sql }) => `, ${sql}`);
  const own = `r.* EXCLUDE (${['file_row_number', ...missing].join(', ')})`;
  const replace = replaced.length === 0 ? '' : ` REPLACE (${replaced.join(', ')})`;
  return `SELECT ${own}${replace}${added.join('')} FROM ${source} AS r ${joins} ORDER BY r.file_row_number`;
}

async function enrichPart(
  duckdb: Duckdb,
  rowLookups: RowLookups,
  part: WrittenPart,
  { dataset, makeRoom }: EnrichStagedOptions,
): Promise<readonly WrittenPart[]> {
  const staged = await readStagedColumns(duckdb, part.file);
  if (staged.missing.length === lookedUp.length) return [part];
  const empty = staged.missing.map((column) => `, NULL::VARCHAR AS ${column}`).join('');
  const file = `read_parquet(${sqlText(part.file)}, file_row_number = true, hive_partitioning = false)`;
  const source = `(SELECT *${empty} FROM ${file})`;
  const rows = { source, groups: findEnrichedGroups(dataset), has: staged.has };
  const written = await fillRows(duckdb, rowLookups, rows, async (select) =>
    writeDataFiles(duckdb, toQuery(source, select, dataset, staged), await makeRoom(), rowGroupsPerFile),
  );
  return written ?? [part];
}

/** Fills staged files; returns the files to commit. A failure is reported, and the rows stay. Error: `stopping`. */
export async function enrichStaged(
  duckdb: Duckdb,
  staged: readonly WrittenPart[],
  options: EnrichStagedOptions,
): Promise<readonly WrittenPart[]> {
  const { enricher, signal } = options;
  if (enricher === undefined || staged.length === 0) return staged;
  const interrupt = (): void => duckdb.interrupt();
  const rowLookups = createRowLookups(duckdb, enricher, 'staged');
  signal.addEventListener('abort', interrupt);
  try {
    await enricher.refresh();
    const parts: WrittenPart[] = [];
    for (const part of staged) {
      throwIfStopped(signal);
      parts.push(...(await enrichPart(duckdb, rowLookups, part, options)));
    }
    await rowLookups.forget();
    for (const { file } of staged) if (!parts.some((part) => part.file === file)) await removeFile(file);
    enricher.passed();
    return parts;
  } catch (error) {
    throwIfStopped(signal, error);
    enricher.failed(error);
    await rowLookups.forget().catch((fault: unknown) => enricher.failed(fault));
    return staged;
  } finally {
    signal.removeEventListener('abort', interrupt);
  }
}
