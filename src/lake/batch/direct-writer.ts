import { events as leader } from '../../datasets/dataset.ts';
import { isKeyedSql } from '../../datasets/event-id.ts';
import { lineColumns } from '../../datasets/event-line.ts';
import type { Column } from '../../datasets/field-schema.ts';
import { isAppError } from '../../runtime/errors.ts';
import { removeFile } from '../../runtime/files/durable-file.ts';
import { type WrittenFile, writeDataFile } from '../files/data-file.ts';
import type { EnrichedSelect } from '../files/enriched-rows.ts';
import { engineBudget } from '../files/row-memory.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import type { BatchEnrichment } from './enrich-batch.ts';
import { badSql, castSql, lineValuesSql, optionalColumns, readLinesSql, rowsSql } from './line-sql.ts';
import { naturalKeyKinds } from './deduplicate.ts';

export interface DirectLines {
  readonly file: string;
  readonly events: number;
  /** Duplicates among them, in the table `left_out`. Undefined without classification, which excludes keys. */
  readonly repeats?: number;
}

const plainKinds = leader.kinds.filter((kind) => !naturalKeyKinds(leader).includes(kind));

/** Condition, never NULL, that a line `r` is of a kind that may be plain. */
const isPlainKindSql = `(r.kind IN (${plainKinds.map(sqlText).join(', ')})) IS TRUE`;

const isKeptSql = '(checked.event_id, checked.received_at) NOT IN (SELECT (event_id, received_at) FROM left_out)';

/** Bytes of each of two row groups in progress. Needs half the memory of 122,880 rows, and 1 % more bytes. */
const rowGroupBytes = 32 * 1024 ** 2;

/** Lines that are read to find the columns, and to test a spool before a lookup. */
const sampleLines = 2048;

/** Texts that are looked up, selected even if no row has a value. */
const lookedUp = ['ipv4', 'ipv6', 'user_agent'];

const valueSql = ({ name }: Pick<Column, 'name'>): string => `r.value_${name}`;

/** Renders FROM the plain, new lines of a spool. The check makes `event_id` fail: as a condition it is slower. */
function plainLinesSql({ file: spool, repeats }: DirectLines, filled: ReadonlySet<string>): string {
  const [used = [], unused = []] = [true, false].map((isUsed) =>
    lineColumns.filter(({ name }) => (filled.has(name) || !optionalColumns.includes(name)) === isUsed),
  );
  const selected = [...used, ...unused.filter(({ name }) => lookedUp.includes(name))];
  const isNotPlain = [
    badSql(used, valueSql),
    ...(repeats === undefined ? [isKeyedSql('r.event_id')] : []),
    `NOT ${isPlainKindSql}`,
    ...unused.map(({ name }) => `r.${name} IS NOT NULL`),
  ].join(' OR ');
  const checked = `CASE WHEN ${isNotPlain} THEN error('a line is not plain') ELSE r.event_id END`;
  const values = selected.map((column) => `${castSql(column)} AS value_${column.name}`);
  const rows = `SELECT ${lineValuesSql(selected, (column) => (column.name === 'event_id' ? checked : valueSql(column)))}
    FROM (SELECT r.*, ${values.join(', ')} ${readLinesSql(spool)}) AS r`;
  return `FROM (SELECT * FROM (${rows}) AS checked ${(repeats ?? 0) > 0 ? `WHERE ${isKeptSql}` : ''})`;
}

/** Runs work without insertion order: each thread writes its own row groups, in two thirds of the time. */
async function withoutOrder<T>(duckdb: Duckdb, work: (engine: Duckdb) => Promise<T>): Promise<T> {
  await duckdb.run('SET preserve_insertion_order = false');
  try {
    return await work({ ...duckdb, boundRowGroups: true });
  } finally {
    await duckdb.run('SET preserve_insertion_order = true');
  }
}

/** Returns undefined if the engine refuses a line, or has no memory. */
export async function undefinedIfRejected<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (!isAppError(error, 'sql') && !isAppError(error, 'memory')) throw error;
    return undefined;
  }
}

/**
 * Writes a spool to the file in one query, which fails at the first line that is not plain. Plain lines are valid, of
 * the events table, without a natural key, and without an Idempotency-Key unless classified.
 */
export function createDirectWriter(duckdb: Duckdb, enrichment: BatchEnrichment | undefined) {
  const filled = new Set<string>();
  let isLearnt = false;
  const bytes = Math.min(rowGroupBytes, Math.floor(engineBudget(duckdb.memoryMb).rowGroupBytes / 2));

  function learn(columns: Iterable<string>): void {
    for (const column of columns) filled.add(column);
    isLearnt = true;
  }

  async function learnFrom(spool: string): Promise<void> {
    const [row] = await duckdb.rows(
      `SELECT [${optionalColumns.map((name) => `count(${name})`).join(', ')}] AS counts FROM (SELECT * ${readLinesSql(spool)} LIMIT ${sampleLines})`,
    );
    const counts = (row?.['counts'] ?? []) as readonly bigint[];
    learn(optionalColumns.filter((_, index) => Number(counts[index]) > 0));
  }

  /** Tests the first lines, which nearly always show a spool that is not plain. */
  async function assertBeginsPlain(from: string): Promise<void> {
    await duckdb.run(`SELECT count(event_id) FROM (SELECT event_id ${from} LIMIT ${sampleLines})`);
  }

  /** Reads the texts before the lookups: an unreadable spool is not their failure. */
  async function writeEnriched<T extends object>(
    enriching: BatchEnrichment,
    spool: string,
    toFile: (enriched?: EnrichedSelect) => Promise<T>,
  ): Promise<T> {
    await duckdb.run(
      `CREATE OR REPLACE TEMP TABLE plain_texts AS SELECT DISTINCT ${lookedUp.join(', ')} ${readLinesSql(spool)}`,
    );
    try {
      return await enriching.write(leader, toFile, 'plain_texts');
    } finally {
      await duckdb.run('DROP TABLE plain_texts');
    }
  }

  async function writeRows(lines: DirectLines, file: string, availableAtMs: number) {
    const { file: spool, events, repeats = 0 } = lines;
    if (!isLearnt) await learnFrom(spool);
    const from = plainLinesSql(lines, filled);
    const toFile = async (enriched?: EnrichedSelect): Promise<{ readonly written: WrittenFile | undefined }> => {
      const query = rowsSql(leader, availableAtMs, { from, enriched, filled });
      const write = (engine: Duckdb): Promise<WrittenFile> => writeDataFile(engine, query, file, 'young', { bytes });
      return { written: await undefinedIfRejected(() => withoutOrder(duckdb, write)) };
    };
    if (enrichment !== undefined) await assertBeginsPlain(from);
    const { written } = enrichment === undefined ? await toFile() : await writeEnriched(enrichment, spool, toFile);
    if (written === undefined || written.numRecords === events - repeats) return written;
    await removeFile(file);
    return undefined;
  }

  return {
    learn,
    /** Writes a spool's new rows to a young file. Undefined if a line is not plain or memory is short. */
    write: (lines: DirectLines, file: string, availableAtMs: number) =>
      undefinedIfRejected(() => writeRows(lines, file, availableAtMs)),
  };
}

export type DirectWriter = ReturnType<typeof createDirectWriter>;

/** Columns for the classification of a keyed line. Reading these costs a sixth of the batch. */
const classifiedColumns = new Set(['event_id', 'kind', 'id_app', 'received_at']);

/** Loads the keyed lines of a spool into `batch`, in order and unchecked. Returns their number. Error: `sql`. */
export async function loadKeyedLines(duckdb: Duckdb, spool: string): Promise<number> {
  const values = lineColumns
    .filter(({ name }) => classifiedColumns.has(name))
    .map((column) => `${castSql(column)} AS ${column.name}`);
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE batch AS SELECT ${values.join(', ')}, false AS bad ${readLinesSql(spool)}
     WHERE CASE WHEN ${isPlainKindSql} THEN ${isKeyedSql('r.event_id')} ELSE error('a line is not plain') END`,
  );
  const [row] = await duckdb.rows('SELECT count(*) AS n FROM batch');
  return Number(row?.['n']);
}

export async function markSkippedLines(duckdb: Duckdb): Promise<void> {
  await duckdb.run(
    'CREATE OR REPLACE TEMP TABLE left_out AS SELECT event_id, received_at FROM batch WHERE rowid IN (SELECT r FROM dropped)',
  );
}
