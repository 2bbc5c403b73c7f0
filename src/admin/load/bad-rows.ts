import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { readPlain } from '../../runtime/files/input-file.ts';
import { findLines, walkRecords, type RowPositions } from './csv-records.ts';
import type { RowsSql } from './row-sql.ts';
import type { LoadSource } from './source.ts';
import type { BadRow } from './file-fields.ts';

/** Maximum number of bad rows that are listed. */
export const maxListedBadRows = 20;

export interface BadBounds {
  readonly maxBad: number;
  /** Maximum size of kept bad rows, bytes; they are in memory at once. */
  readonly maxKeptBytes: number;
}

export const defaultKeptBytes = 64 * 1024 * 1024;

export interface KeptBadRow extends BadRow {
  /** A line of JSON unchanged, otherwise the fields as JSON. */
  readonly text: string;
}

export interface BadRows {
  readonly count: number;
  readonly first: readonly BadRow[];
  /** All bad rows; empty if they exceed the limits. */
  readonly failed: readonly KeptBadRow[];
  readonly isTooLarge?: true;
}

export const noBadRows: BadRows = { count: 0, first: [], failed: [] };

/** Reports whether a load is rejected: it has more bad rows than allowed, or they are too large to keep. */
export function exceedsBounds({ count, isTooLarge }: BadRows, { maxBad }: BadBounds): boolean {
  return count > maxBad || isTooLarge === true;
}

async function readSize(duckdb: Duckdb, from: string) {
  const [row] = await duckdb.rows(`SELECT count(*) AS n, coalesce(sum(bytes), 0)::BIGINT AS bytes FROM ${from}`);
  return { count: Number(row?.['n']), bytes: Number(row?.['bytes']) };
}

/** SQL of the lines that the last scan has rejected: `place`, the offset, and `text`. */
const rejectedSql = `(SELECT line_byte_position - 1 AS place, ltrim(coalesce(any_value(csv_line), ''), chr(13) || chr(10)) AS text
  FROM reject_errors WHERE scan_id = (SELECT max(scan_id) FROM reject_errors) GROUP BY line_byte_position)`;

async function readFound(duckdb: Duckdb, sql: RowsSql, isKept: boolean) {
  const query = isKept
    ? `SELECT place, fault, CAST(raw AS VARCHAR) AS raw FROM (${sql.checkedSql}) AS checked WHERE fault IS NOT NULL ORDER BY place`
    : `SELECT place, fault, '' AS raw FROM load_bad ORDER BY place LIMIT ${maxListedBadRows}`;
  const rows = await duckdb.rows(query);
  return rows.map(({ place, fault, raw }) => ({
    place: Number(place),
    fault: Number(fault),
    raw: typeof raw === 'string' ? raw : '',
  }));
}

async function readRejected(duckdb: Duckdb, isKept: boolean) {
  const rows = await duckdb.rows(
    `SELECT place, ${isKept ? 'text' : "''"} AS text FROM ${rejectedSql} ORDER BY place ${isKept ? '' : `LIMIT ${maxListedBadRows}`}`,
  );
  return rows.map((row) => ({ offset: Number(row['place']), text: String(row['text']) }));
}

/** Maps places to line numbers by reading the file; in Parquet a place is the row number. */
async function toLines(loadSource: LoadSource, places: RowPositions): ReturnType<typeof findLines> {
  if (loadSource.format === 'parquet')
    return { rows: new Map(places.rows.map((row) => [row, row])), rejected: new Map<number, number>() };
  const { header, names } = loadSource;
  return findLines(walkRecords(readPlain(loadSource.file, loadSource.gzip), header?.delimiter), places, {
    headers: header?.records ?? 0,
    // With one column, a blank line is a row without a value.
    skipsBlank: header !== undefined && names.length > 1,
  });
}

function withoutText({ line, reason, field }: BadRow): BadRow {
  return { line, reason, ...(field === undefined ? {} : { field }) };
}

/**
 * Counts the bad rows of a source and locates the first, or all within the limits. Reads the file up to three times.
 */
export async function findBadRows(
  duckdb: Duckdb,
  loadSource: LoadSource,
  sql: RowsSql,
  { maxBad, maxKeptBytes }: BadBounds,
): Promise<BadRows> {
  await duckdb.run('DROP TABLE IF EXISTS reject_errors');
  await duckdb.run('DROP TABLE IF EXISTS reject_scans');
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE load_bad AS SELECT place, fault, strlen(CAST(raw AS VARCHAR)) AS bytes FROM (${sql.checkedSql}) AS checked WHERE fault IS NOT NULL`,
  );
  const hasRejected = loadSource.format !== 'parquet';
  const sizes = [await readSize(duckdb, 'load_bad')];
  if (hasRejected) sizes.push(await readSize(duckdb, `(SELECT strlen(text) AS bytes FROM ${rejectedSql})`));
  const count = sizes.reduce((sum, size) => sum + size.count, 0);
  if (count === 0) return noBadRows;
  const isTooLarge = count <= maxBad && sizes.reduce((sum, { bytes }) => sum + bytes, 0) > maxKeptBytes;
  const isKept = count <= maxBad && !isTooLarge;
  const found = await readFound(duckdb, sql, isKept);
  const refused = hasRejected ? await readRejected(duckdb, isKept) : [];
  const lines = await toLines(loadSource, {
    rows: found.map(({ place }) => place),
    rejected: refused.map((one) => one.offset),
  });
  const rows = [
    ...found.map(({ place, fault, raw }): KeptBadRow => {
      const { reason, field } = sql.checks[fault] ?? { reason: 'bad_type' as const };
      return { line: lines.rows.get(place) ?? place, reason, ...(field === undefined ? {} : { field }), text: raw };
    }),
    ...refused.map(({ offset, text }): KeptBadRow => ({
      line: lines.rejected.get(offset) ?? 0,
      reason: 'bad_line',
      text,
    })),
  ].toSorted((a, b) => a.line - b.line);
  const first = rows.slice(0, maxListedBadRows).map(withoutText);
  return { count, first, failed: isKept ? rows : [], ...(isTooLarge ? { isTooLarge } : {}) };
}
