/**
 * Looks up distinct texts of rows in JavaScript, and stores the results in temporary tables for joins.
 *
 * In: the SQL of rows. Out: their distinct texts with result numbers, and the results.
 * Caches results between batches, because most texts repeat and transfers to JavaScript cost more than the rest of a
 * row.
 * Limits: cached texts have a share of the engine's memory and expire. JavaScript holds one page of texts, and yields
 * to the event loop every 20 ms.
 */
import { setImmediate } from 'node:timers/promises';
import type { EnrichedColumn } from '../../datasets/enriched-columns.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { createResultDictionary, type LookupResult, type ResultDictionary } from './result-dictionary.ts';

/** Distinct texts per page: 33 MB of the longest User-Agents. */
const pageRows = 8192;
/** Longest work before a yield to the event loop, ms. */
const stretchMs = 20;
/** Lifetime of cached texts, ms: they are personal data. */
export const cacheLifetimeMs = 600_000;

/** Share of the engine's memory for cached texts. Above it, all are dropped. */
const memoryPart = 1 / 16;
/** Results above which all are dropped: 10 MB in JavaScript. */
const maxResults = 20_000;

/** Result of a text that timed out. It is looked up again. */
export const timedOut = Symbol('no time');

export interface LookupKind {
  readonly name: 'places' | 'agents';
  readonly keys: readonly string[];
  /** Largest text in the engine's memory, bytes. */
  readonly textBytes: number;
}

/** Source of results. Other columns, constants or another edition clear the cache. */
export interface LookupSource {
  readonly columns: readonly EnrichedColumn[];
  /** Names and SQL of columns that every result has. */
  readonly constants: readonly string[];
  readonly databaseVersion: number;
  /** Returns the result of texts in the order of the keys. */
  readonly find: (text: unknown, other: unknown) => LookupResult | typeof timedOut | undefined;
}

export interface LookupCache {
  /** Looks up texts of rows `r` that match. Returns the columns in which any cached result has a value. */
  lookUp(source: string, condition: string, from: LookupSource): Promise<ReadonlySet<string>>;
  /** SQL that joins rows `r` with their results, named after the kind. */
  readonly joinSql: string;
  /** Removes the data of the last rows, and the cache if it is too large. */
  release(): Promise<void>;
  /** Empties the cache and removes its tables. */
  forget(): Promise<void>;
}

/** Number of a text without a result. */
const unknown = -1;
/** Number of a text that timed out. */
const skipped = -2;

interface CacheState {
  readonly key: string;
  readonly sinceMs: number;
  readonly resultDictionary: ResultDictionary;
  texts: number;
  /** Columns in which any result has a value. */
  filled: ReadonlySet<string>;
}

interface Names {
  /** Distinct texts of the rows, each with its result number `v`. */
  readonly asked: string;
  /** New texts, and result numbers in the same order. */
  readonly fresh: string;
  readonly numbers: string;
  /** Cached texts with result numbers. */
  readonly known: string;
  /** Results by number, and in the form that rows are joined with. */
  readonly answers: string;
  readonly joined: string;
}

/** Looks up a page of texts, yielding to the event loop. Returns result numbers. */
async function findPage(
  [places = [], texts = [], others = []]: readonly (readonly unknown[])[],
  find: LookupSource['find'],
  resultDictionary: ResultDictionary,
): Promise<number[]> {
  const numbers = places.map(() => unknown);
  let workedSince = performance.now();
  for (const [index, place] of places.entries()) {
    const lookupResult = find(texts[index], others[index]);
    numbers[place as number] =
      lookupResult === timedOut
        ? skipped
        : ((lookupResult === undefined ? undefined : resultDictionary.numberOf(lookupResult)) ?? unknown);
    if (performance.now() - workedSince < stretchMs) continue;
    await setImmediate();
    workedSince = performance.now();
  }
  return numbers;
}

const drop = (duckdb: Duckdb, ...names: readonly string[]): Promise<void> =>
  duckdb.run(names.map((name) => `DROP TABLE IF EXISTS ${name};`).join(' '));

async function addAnswers(
  duckdb: Duckdb,
  answers: string,
  from: LookupSource,
  resultDictionary: ResultDictionary,
): Promise<void> {
  const types = Object.fromEntries([
    ['v', 'INTEGER'],
    ...from.columns.map(({ column, type }) => [column, type] as const),
  ]);
  await duckdb.run(
    `INSERT INTO ${answers} BY NAME SELECT unnest(from_json($1::JSON, ${sqlText(JSON.stringify([types]))}), recursive := true)`,
    [`[${resultDictionary.take().join(',')}]`],
  );
}

/** Builds the joined table. Returns the non-empty columns: others would cost as much to write. */
async function buildJoinTable(
  duckdb: Duckdb,
  { answers, joined }: Names,
  from: LookupSource,
  resultDictionary: ResultDictionary,
): Promise<ReadonlySet<string>> {
  const enumerated = from.columns.flatMap(({ column, type }) => {
    const texts = type === 'VARCHAR' ? (resultDictionary.listTexts(column) ?? []) : [];
    return texts.length === 0 ? [] : [`answers.${column}::ENUM(${texts.map(sqlText).join(', ')}) AS ${column}`];
  });
  const replaced = enumerated.length === 0 ? '' : ` REPLACE (${enumerated.join(', ')})`;
  const columns = [`answers.*${replaced}`, ...from.constants].join(', ');
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${joined} AS SELECT ${columns} FROM ${answers} AS answers`);
  const [counts = {}] = await duckdb.rows(`SELECT count(COLUMNS(* EXCLUDE (v))) FROM ${joined}`);
  return new Set(Object.keys(counts).filter((column) => Number(counts[column]) > 0));
}

/** Looks up the texts of `asked` without a number, by page, and caches the results. */
async function lookUpNewTexts(
  duckdb: Duckdb,
  { keys }: LookupKind,
  names: Names,
  from: LookupSource,
  into: CacheState,
): Promise<void> {
  const { resultDictionary } = into;
  const { asked, fresh, numbers, known, answers } = names;
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${fresh} AS SELECT * EXCLUDE (v) FROM ${asked} WHERE v IS NULL;
    CREATE OR REPLACE TEMP TABLE ${numbers} (v INTEGER)`);
  let isJoined = true;
  for (let at = 0; ; at += pageRows) {
    const page = await duckdb.columns(
      [`rowid - ${at}`, ...keys],
      `${fresh} WHERE rowid >= ${at} AND rowid < ${at + pageRows}`,
    );
    const found = await findPage(page, from.find, resultDictionary);
    into.texts += found.filter((number) => number !== skipped).length;
    await duckdb.appendIntegers(numbers, [found]);
    const isLast = found.length < pageRows;
    // A statement costs as much as a thousand results.
    if (resultDictionary.waiting() > 0 && (isLast || resultDictionary.waiting() >= pageRows)) {
      await addAnswers(duckdb, answers, from, resultDictionary);
      isJoined = false;
    }
    if (isLast) break;
  }
  if (!isJoined) into.filled = await buildJoinTable(duckdb, names, from, resultDictionary);
  const numbered = `SELECT fresh.*, numbers.v FROM ${fresh} AS fresh POSITIONAL JOIN ${numbers} AS numbers`;
  await duckdb.run(`INSERT INTO ${known} ${numbered} WHERE numbers.v <> ${skipped};
    CREATE OR REPLACE TEMP TABLE ${asked} AS SELECT * FROM ${asked} WHERE v >= 0 UNION ALL ${numbered} WHERE numbers.v >= 0`);
  await drop(duckdb, fresh, numbers);
}

/** Creates the cache of a kind of text. `of` distinguishes its tables from those of other caches in the engine. */
export function createLookupCache(duckdb: Duckdb, of: string, sort: LookupKind): LookupCache {
  const { name, keys, textBytes } = sort;
  const maxTexts = (duckdb.memoryMb * 1024 ** 2 * memoryPart) / textBytes;
  const table = (what: string): string => `enrich_${of}_${name}_${what}`;
  const [asked, fresh, numbers] = [table('asked'), table('fresh'), table('numbers')];
  const [known, answers, joined] = [table('known'), table('answers'), table('joined')];
  const names: Names = { asked, fresh, numbers, known, answers, joined };
  const by = keys.length === 1 ? '=' : 'IS NOT DISTINCT FROM';
  const matches = (one: string, other: string): string =>
    keys.map((key) => `${one}.${key} ${by} ${other}.${key}`).join(' AND ');
  let memory: CacheState | undefined;

  /** Returns the cache, or a new one if it is outdated. */
  async function getOrCreateCache({ columns, constants, databaseVersion }: LookupSource): Promise<CacheState> {
    const key = JSON.stringify([columns, constants, databaseVersion]);
    const nowMs = performance.now();
    if (memory?.key === key && nowMs - memory.sinceMs < cacheLifetimeMs) return memory;
    const typed = columns.map(({ column, type }) => `, ${column} ${type}`).join('');
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${known} (${keys.map((each) => `${each} VARCHAR`).join(', ')}, v INTEGER);
      CREATE OR REPLACE TEMP TABLE ${answers} (v INTEGER${typed})`);
    return { key, sinceMs: nowMs, resultDictionary: createResultDictionary(columns), texts: 0, filled: new Set() };
  }

  /** Lists the distinct texts, with the numbers of the cached ones. */
  async function listDistinctTexts(source: string, condition: string, isEmpty: boolean): Promise<void> {
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
    await drop(duckdb, asked, fresh, numbers, known, answers, joined);
  }

  return {
    async lookUp(source, condition, from) {
      const into = await getOrCreateCache(from);
      // Unset until success: after a failure tables and numbers may disagree.
      memory = undefined;
      await listDistinctTexts(source, condition, into.texts === 0);
      if ((await countAsked('v IS NULL')) > 0) await lookUpNewTexts(duckdb, sort, names, from, into);
      memory = into;
      return (await countAsked('v >= 0')) > 0 ? into.filled : new Set();
    },
    joinSql: `LEFT JOIN ${asked} AS ${name}_asked ON ${matches(`${name}_asked`, 'r')} LEFT JOIN ${joined} AS ${name} ON ${name}.v = ${name}_asked.v`,
    async release() {
      const isTooMuch =
        memory !== undefined && (memory.texts > maxTexts || memory.resultDictionary.count() > maxResults);
      await (isTooMuch ? forget() : drop(duckdb, asked, fresh, numbers));
    },
    forget,
  };
}
