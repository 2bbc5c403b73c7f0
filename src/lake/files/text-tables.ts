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

/** Distinct texts that are looked up at a time: 33 MB of the longest User-Agents. */
const pageRows = 8192;
/** Works so long at a stretch, milliseconds. */
const stretchMs = 20;
/** What was found is remembered for so long, milliseconds: texts are of people. */
export const rememberMs = 600_000;

/** So much of the engine's memory is for the texts of a sort that are remembered. With more, it begins anew. */
const memoryPart = 1 / 16;
/** With more different answers it begins anew: in JavaScript they take 10 MB. */
const maxAnswers = 20_000;

/** In place of an answer: there was no time for the text. It is asked for again. */
export const noTime = Symbol('no time');

/** A sort of text that rows have. */
export interface TextSort {
  readonly name: 'places' | 'agents';
  /** Columns of a row that are looked up together. */
  readonly keys: readonly string[];
  /** What one text takes of the engine's memory at most, bytes. */
  readonly textBytes: number;
}

/** How texts are looked up now. What was found under other columns, constants or another edition is forgotten. */
export interface TextSource {
  readonly columns: readonly EnrichedColumn[];
  /** Columns that every answer has, beside those that it tells: names and SQL. */
  readonly constants: readonly string[];
  /** Of what answers come from. */
  readonly edition: number;
  /** The texts in the order of the keys. */
  readonly find: (text: unknown, other: unknown) => Answer | typeof noTime | undefined;
}

export interface TextTables {
  /**
   * Looks up the texts of rows `r` for which a condition holds. Returns the columns in which any answer that is remembered
   * has a value: none where nothing is known of any of the texts. Errors: the engine's.
   */
  lookUp(source: string, condition: string, from: TextSource): Promise<ReadonlySet<string>>;
  /** Joins rows `r` with the answers to their texts, a relation under the name of the sort. */
  readonly joinSql: string;
  /** Removes what is of the rows that were looked up last, and everything when it is too much to be remembered. */
  release(): Promise<void>;
  /** Removes everything. */
  forget(): Promise<void>;
}

/** In place of a number: nothing is known of a text. */
const unknown = -1;
/** In place of a number: there was no time. */
const skipped = -2;

/** What the tables remember. */
interface Memory {
  /** Of what it was made. */
  readonly key: string;
  readonly sinceMs: number;
  readonly numbering: Numbering;
  texts: number;
  /** The columns in which any answer has a value. */
  filled: ReadonlySet<string>;
}

/** The names of a sort's tables. */
interface Names {
  /** The distinct texts of the rows, each with the number of its answer, `v`. */
  readonly asked: string;
  /** Those that are new, and the numbers of their answers in the same order. */
  readonly fresh: string;
  readonly numbers: string;
  /** The texts that are remembered, each with the number of its answer. */
  readonly known: string;
  /** The answers by their number, and the same as rows are joined with them. */
  readonly answers: string;
  readonly told: string;
}

/**
 * Looks up a page of texts, whose places from 0 come first; the event loop runs in between. Returns the numbers of their
 * answers by their places.
 */
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

/** Hands new answers to the engine. */
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
 * Makes of the answers what rows are joined with: with what all of them have, and texts as enumerations, where they are
 * few. Returns the columns in which any has a value: to write one without takes as long as one with.
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

/** Looks up the texts of `asked` that have no number, a page at a time, and remembers what is found. */
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
    // Each statement has a cost of its own, as high as that of a thousand answers.
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

/** Creates the tables of a sort of text; `of` keeps them apart from those of other rows in the engine. */
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

  /** The memory, or a new one where that is of something else, or too old. */
  async function recall({ columns, constants, edition }: TextSource): Promise<Memory> {
    const key = JSON.stringify([columns, constants, edition]);
    const nowMs = performance.now();
    if (memory?.key === key && nowMs - memory.sinceMs < rememberMs) return memory;
    const typed = columns.map(({ column, type }) => `, ${column} ${type}`).join('');
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${known} (${keys.map((each) => `${each} VARCHAR`).join(', ')}, v INTEGER);
      CREATE OR REPLACE TEMP TABLE ${answers} (v INTEGER${typed})`);
    return { key, sinceMs: nowMs, numbering: createNumbering(columns), texts: 0, filled: new Set() };
  }

  /** Lists the distinct texts, with the numbers of those that are known. */
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
      // Until it is done: of what fails on its way, the tables and the numbers may not agree.
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
