/**
 * Texts of rows and what they say: each distinct one is looked up in JavaScript, and what was found lies in temporary
 * tables of the engine, for rows to be joined with.
 *
 * In: the SQL of some rows. Out: their distinct texts, each with the number of an answer, and the answers.
 * Memory: from one batch to the next it is remembered what texts say: most come again, of the same people, and to hand
 * one to JavaScript and back costs more than the rest of its row.
 * Bounds: what is remembered has a part of the engine's memory, and is forgotten after some minutes; a page of texts at a
 * time in JavaScript; the event loop runs between stretches of 20 ms.
 */
import { setImmediate } from 'node:timers/promises';
import type { EnrichedColumn } from '../../datasets/enriched-columns.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { createNumbering, type Answer, type Numbering } from './answer-numbering.ts';

/** Distinct texts per look-up: 33 MB of the longest User-Agents. */
const pageRows = 8192;
/** Longest stretch without yielding, ms. */
const stretchMs = 20;
/** Lifetime of answers, ms: texts are personal data. */
export const rememberMs = 600_000;

/** Share of the engine's memory for remembered texts. Beyond it, all are forgotten. */
const memoryPart = 1 / 16;
/** Answers beyond which all are forgotten: 10 MB in JavaScript. */
const maxAnswers = 20_000;

/** Instead of an answer: the time ran out. The text is looked up again. */
export const noTime = Symbol('no time');

/** A kind of text that rows have. */
export interface TextSort {
  readonly name: 'places' | 'agents';
  /** Columns that are looked up together. */
  readonly keys: readonly string[];
  /** Largest text in the engine's memory, bytes. */
  readonly textBytes: number;
}

/** The source of answers. Answers of other columns, constants or another edition are forgotten. */
export interface TextSource {
  readonly columns: readonly EnrichedColumn[];
  /** Columns that every answer has besides its own: names and SQL. */
  readonly constants: readonly string[];
  readonly edition: number;
  /** Finds the answer to texts in the order of the keys. */
  readonly find: (text: unknown, other: unknown) => Answer | typeof noTime | undefined;
}

export interface TextTables {
  /**
   * Looks up the texts of the rows `r` that match a condition. Returns the columns in which any remembered answer has a
   * value. Errors: the engine's.
   */
  lookUp(source: string, condition: string, from: TextSource): Promise<ReadonlySet<string>>;
  /** SQL that joins rows `r` with their answers, under the name of the kind. */
  readonly joinSql: string;
  /** Removes the data of the last rows, and everything if it is too much. */
  release(): Promise<void>;
  forget(): Promise<void>;
}

/** Instead of a number: nothing is known of a text. */
const unknown = -1;
/** Instead of a number: the time ran out. */
const skipped = -2;

interface Memory {
  /** Identifies the source. */
  readonly key: string;
  readonly sinceMs: number;
  readonly numbering: Numbering;
  texts: number;
  /** Columns in which any answer has a value. */
  filled: ReadonlySet<string>;
}

/** Table names. */
interface Names {
  /** The distinct texts of the rows, each with the number of its answer, `v`. */
  readonly asked: string;
  /** New ones, and the numbers of their answers in the same order. */
  readonly fresh: string;
  readonly numbers: string;
  /** Remembered texts, each with the number of its answer. */
  readonly known: string;
  /** The answers by number, and in the form that rows are joined with. */
  readonly answers: string;
  readonly told: string;
}

/** Looks up a page of texts, yielding to the event loop. Returns the numbers of their answers. */
async function findPage(
  [places = [], texts = [], others = []]: readonly (readonly unknown[])[],
  find: TextSource['find'],
  numbering: Numbering,
): Promise<number[]> {
  const numbers = places.map(() => unknown);
  let workedSince = performance.now();
  for (const [index, place] of places.entries()) {
    const answer = find(texts[index], others[index]);
    numbers[place as number] =
      answer === noTime ? skipped : ((answer === undefined ? undefined : numbering.numberOf(answer)) ?? unknown);
    if (performance.now() - workedSince < stretchMs) continue;
    await setImmediate();
    workedSince = performance.now();
  }
  return numbers;
}

const drop = (duckdb: Duckdb, ...names: readonly string[]): Promise<void> =>
  duckdb.run(names.map((name) => `DROP TABLE IF EXISTS ${name};`).join(' '));

async function addAnswers(duckdb: Duckdb, answers: string, from: TextSource, numbering: Numbering): Promise<void> {
  const types = Object.fromEntries([
    ['v', 'INTEGER'],
    ...from.columns.map(({ column, type }) => [column, type] as const),
  ]);
  await duckdb.run(
    `INSERT INTO ${answers} BY NAME SELECT unnest(from_json($1::JSON, ${sqlText(JSON.stringify([types]))}), recursive := true)`,
    [`[${numbering.take().join(',')}]`],
  );
}

/**
 * Builds the table that rows are joined with: with the constants, and with enumerations if there are few texts. Returns
 * the columns in which any answer has a value: writing an empty column takes as long as any.
 */
async function tell(
  duckdb: Duckdb,
  { answers, told }: Names,
  from: TextSource,
  numbering: Numbering,
): Promise<ReadonlySet<string>> {
  const enumerated = from.columns.flatMap(({ column, type }) => {
    const texts = type === 'VARCHAR' ? (numbering.listTexts(column) ?? []) : [];
    return texts.length === 0 ? [] : [`answers.${column}::ENUM(${texts.map(sqlText).join(', ')}) AS ${column}`];
  });
  const replaced = enumerated.length === 0 ? '' : ` REPLACE (${enumerated.join(', ')})`;
  const columns = [`answers.*${replaced}`, ...from.constants].join(', ');
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${told} AS SELECT ${columns} FROM ${answers} AS answers`);
  const [counts = {}] = await duckdb.rows(`SELECT count(COLUMNS(* EXCLUDE (v))) FROM ${told}`);
  return new Set(Object.keys(counts).filter((column) => Number(counts[column]) > 0));
}

/** Looks up the texts of `asked` without a number, a page at a time, and remembers the answers. */
async function learn(duckdb: Duckdb, { keys }: TextSort, names: Names, from: TextSource, into: Memory): Promise<void> {
  const { numbering } = into;
  const { asked, fresh, numbers, known, answers } = names;
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${fresh} AS SELECT * EXCLUDE (v) FROM ${asked} WHERE v IS NULL;
    CREATE OR REPLACE TEMP TABLE ${numbers} (v INTEGER)`);
  let isTold = true;
  for (let at = 0; ; at += pageRows) {
    const page = await duckdb.columns(
      [`rowid - ${at}`, ...keys],
      `${fresh} WHERE rowid >= ${at} AND rowid < ${at + pageRows}`,
    );
    const found = await findPage(page, from.find, numbering);
    into.texts += found.filter((number) => number !== skipped).length;
    await duckdb.appendIntegers(numbers, [found]);
    const isLast = found.length < pageRows;
    // A statement costs as much as a thousand answers.
    if (numbering.waiting() > 0 && (isLast || numbering.waiting() >= pageRows)) {
      await addAnswers(duckdb, answers, from, numbering);
      isTold = false;
    }
    if (isLast) break;
  }
  if (!isTold) into.filled = await tell(duckdb, names, from, numbering);
  const numbered = `SELECT fresh.*, numbers.v FROM ${fresh} AS fresh POSITIONAL JOIN ${numbers} AS numbers`;
  await duckdb.run(`INSERT INTO ${known} ${numbered} WHERE numbers.v <> ${skipped};
    CREATE OR REPLACE TEMP TABLE ${asked} AS SELECT * FROM ${asked} WHERE v >= 0 UNION ALL ${numbered} WHERE numbers.v >= 0`);
  await drop(duckdb, fresh, numbers);
}

/** Creates the tables of a kind of text. `of` separates them from those of other rows in the engine. */
export function createTextTables(duckdb: Duckdb, of: string, sort: TextSort): TextTables {
  const { name, keys, textBytes } = sort;
  const maxTexts = (duckdb.memoryMb * 1024 ** 2 * memoryPart) / textBytes;
  const table = (what: string): string => `enrich_${of}_${name}_${what}`;
  const [asked, fresh, numbers] = [table('asked'), table('fresh'), table('numbers')];
  const [known, answers, told] = [table('known'), table('answers'), table('told')];
  const names: Names = { asked, fresh, numbers, known, answers, told };
  const by = keys.length === 1 ? '=' : 'IS NOT DISTINCT FROM';
  const matches = (one: string, other: string): string =>
    keys.map((key) => `${one}.${key} ${by} ${other}.${key}`).join(' AND ');
  let memory: Memory | undefined;

  /** Returns the memory, or a new one if that is outdated. */
  async function recall({ columns, constants, edition }: TextSource): Promise<Memory> {
    const key = JSON.stringify([columns, constants, edition]);
    const nowMs = performance.now();
    if (memory?.key === key && nowMs - memory.sinceMs < rememberMs) return memory;
    const typed = columns.map(({ column, type }) => `, ${column} ${type}`).join('');
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${known} (${keys.map((each) => `${each} VARCHAR`).join(', ')}, v INTEGER);
      CREATE OR REPLACE TEMP TABLE ${answers} (v INTEGER${typed})`);
    return { key, sinceMs: nowMs, numbering: createNumbering(columns), texts: 0, filled: new Set() };
  }

  /** Lists the distinct texts, with the numbers of the known ones. */
  async function ask(source: string, condition: string, isEmpty: boolean): Promise<void> {
    const isThere = keys.map((key) => `${key} IS NOT NULL`).join(' OR ');
    const distinct = `SELECT DISTINCT ${keys.join(', ')} FROM ${source} AS r WHERE (${isThere}) AND (${condition})`;
    const numbered = isEmpty
      ? `SELECT *, NULL::INTEGER AS v FROM (${distinct})`
      : `SELECT q.*, known.v FROM (${distinct}) AS q LEFT JOIN ${known} AS known ON ${matches('known', 'q')}`;
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${asked} AS ${numbered}`);
  }

  async function countAsked(condition: string): Promise<number> {
    const [row] = await duckdb.rows(`SELECT count(*) AS n FROM ${asked} WHERE ${condition}`);
    return Number(row?.['n']);
  }

  async function forget(): Promise<void> {
    memory = undefined;
    await drop(duckdb, asked, fresh, numbers, known, answers, told);
  }

  return {
    async lookUp(source, condition, from) {
      const into = await recall(from);
      // Until it succeeds: after a failure the tables and the numbers may disagree.
      memory = undefined;
      await ask(source, condition, into.texts === 0);
      if ((await countAsked('v IS NULL')) > 0) await learn(duckdb, sort, names, from, into);
      memory = into;
      return (await countAsked('v >= 0')) > 0 ? into.filled : new Set();
    },
    joinSql: `LEFT JOIN ${asked} AS ${name}_asked ON ${matches(`${name}_asked`, 'r')} LEFT JOIN ${told} AS ${name} ON ${name}.v = ${name}_asked.v`,
    async release() {
      const isTooMuch = memory !== undefined && (memory.texts > maxTexts || memory.numbering.count() > maxAnswers);
      await (isTooMuch ? forget() : drop(duckdb, asked, fresh, numbers));
    },
    forget,
  };
}
