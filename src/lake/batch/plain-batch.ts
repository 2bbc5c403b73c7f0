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
import { ownKeyKinds } from './deduplicate.ts';

/**
 * A batch that leaves nothing but keys to judge goes from the spool to the file in one query. That is one whose lines
 * are all *plain*: good by the same expressions that the tables judge by, of kinds of the table of events that have no
 * key of their own, and with values in no other columns than batches before had; under Idempotency-Keys only where
 * these have been judged (`loadKeyedLines`). The query checks each line as it reads it, and gives up at the first that is
 * not plain.
 */
export interface PlainWriter {
  /**
   * Writes the rows of a spool of lines, in no order and without repeats, to a file that is soon sealed. Undefined, and
   * there is no file: a line is not plain, or the engine has no memory for them all, where the tables, which spill to the
   * disk, may have. Durability and errors: those of `writeDataFile`, but `sql` and `memory`.
   */
  write(lines: PlainLines, file: string, availableAtMs: number): Promise<WrittenFile | undefined>;
  /** From now on, rows with values in these columns are plain. */
  learn(columns: Iterable<string>): void;
}

/** Lines that may be plain. */
export interface PlainLines {
  /** Path of the spool. */
  readonly file: string;
  /** How many there are. */
  readonly events: number;
  /** Repeats among them, those of the table `left_out`; undefined: no key was judged, and a line under one is not plain. */
  readonly repeats?: number;
}

const plainKinds = leader.kinds.filter((kind) => !ownKeyKinds(leader).includes(kind));

/** SQL that is true for a line `r` of a kind that a plain line may be of; never NULL. */
export const isPlainKindSql = `(r.kind IN (${plainKinds.map(sqlText).join(', ')})) IS TRUE`;

/** SQL that is true for the rows that are no repeats. */
const isKeptSql = '(checked.event_id, checked.received_at) NOT IN (SELECT (event_id, received_at) FROM left_out)';

/**
 * Bytes of a row group: two are filled at a time. Measured with 240,000 rows of 560 bytes: half of the memory of 122,880
 * rows, and 1 % more bytes.
 */
const rowGroupBytes = 32 * 1024 ** 2;

/** Lines that the columns are learnt from before any batch was measured, and that are tried before a look-up. */
const sampleLines = 2048;

/** The texts that look-ups are made of: a row has them to be joined by, also where none has a value. */
const lookedUp = ['ipv4', 'ipv6', 'user_agent'];

/** Where a row of `plainLinesSql` has the value of a column, beside its text. */
const valueSql = ({ name }: Pick<Column, 'name'>): string => `r.value_${name}`;

/**
 * `FROM` the plain lines of a spool that are no repeats. A query of them that reads `event_id` fails at a line that is
 * not plain: this is where it is checked, since a condition would have each value made out of its text twice, for a
 * seventh of the time.
 */
function plainLinesSql({ file: spool, repeats }: PlainLines, filled: ReadonlySet<string>): string {
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

/**
 * Runs work on an engine that keeps no order of rows: each thread writes row groups of its own, for two thirds of the
 * time, and they can be bound by their bytes.
 */
async function withoutOrder<T>(duckdb: Duckdb, work: (engine: Duckdb) => Promise<T>): Promise<T> {
  await duckdb.run('SET preserve_insertion_order = false');
  try {
    return await work({ ...duckdb, boundRowGroups: true });
  } finally {
    await duckdb.run('SET preserve_insertion_order = true');
  }
}

/** Undefined where the engine refuses to read a line, finds one that is not plain, or has no memory for them. */
export async function unlessRefused<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (!isAppError(error, 'sql') && !isAppError(error, 'memory')) throw error;
    return undefined;
  }
}

/** Creates the writer of an engine. */
export function createPlainWriter(duckdb: Duckdb, enrichment: BatchEnrichment | undefined): PlainWriter {
  /** Columns in which rows may have a value. They stay: one too many costs little. */
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

  /** Tries the first lines: of a stream in which some are not plain, they nearly always show it. */
  async function assertBeginsPlain(from: string): Promise<void> {
    await duckdb.run(`SELECT count(event_id) FROM (SELECT event_id ${from} LIMIT ${sampleLines})`);
  }

  /** Writes with look-ups of what the lines say. They are read here: that one cannot be is no fault of the look-ups. */
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

  async function writeRows(lines: PlainLines, file: string, availableAtMs: number) {
    const { file: spool, events, repeats = 0 } = lines;
    if (!isLearnt) await learnFrom(spool);
    const from = plainLinesSql(lines, filled);
    const toFile = async (enriched?: EnrichedSelect): Promise<{ readonly written: WrittenFile | undefined }> => {
      const query = rowsSql(leader, availableAtMs, { from, enriched, filled });
      const write = (engine: Duckdb): Promise<WrittenFile> => writeDataFile(engine, query, file, 'young', { bytes });
      return { written: await unlessRefused(() => withoutOrder(duckdb, write)) };
    };
    // A look-up reads all lines first.
    if (enrichment !== undefined) await assertBeginsPlain(from);
    const { written } = enrichment === undefined ? await toFile() : await writeEnriched(enrichment, spool, toFile);
    if (written === undefined || written.numRecords === events - repeats) return written;
    await removeFile(file);
    return undefined;
  }

  return {
    learn,
    write: (lines, file, availableAtMs) => unlessRefused(() => writeRows(lines, file, availableAtMs)),
  };
}

/**
 * The lines under Idempotency-Keys of a batch that may go straight to the file: they alone are loaded and judged, and
 * those that are repeats are left out when all lines are written. To read them takes a sixth of what the batch costs.
 */

/** What a line under a key is judged by. */
const judgedColumns = new Set(['event_id', 'kind', 'id_app', 'received_at']);

/**
 * Loads the lines under keys of a spool into the table `batch`, in their order, as if they were all good: who writes the
 * lines checks them. Returns how many there are. Error: `sql`, also where a line is surely not plain.
 */
export async function loadKeyedLines(duckdb: Duckdb, spool: string): Promise<number> {
  const values = lineColumns
    .filter(({ name }) => judgedColumns.has(name))
    .map((column) => `${castSql(column)} AS ${column.name}`);
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE batch AS SELECT ${values.join(', ')}, false AS bad ${readLinesSql(spool)}
     WHERE CASE WHEN ${isPlainKindSql} THEN ${isKeyedSql('r.event_id')} ELSE error('a line is not plain') END`,
  );
  const [row] = await duckdb.rows('SELECT count(*) AS n FROM batch');
  return Number(row?.['n']);
}

/** Names the lines that were dropped in the table `left_out`, by what a line of a spool shows of itself. */
export async function nameLeftOut(duckdb: Duckdb): Promise<void> {
  await duckdb.run(
    'CREATE OR REPLACE TEMP TABLE left_out AS SELECT event_id, received_at FROM batch WHERE rowid IN (SELECT r FROM dropped)',
  );
}
