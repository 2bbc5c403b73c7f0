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
const maxBlockingMs = 20;
/** Lifetime of cached texts, ms: they are personal data. */
export const cacheLifetimeMs = 600_000;

/** Share of the engine's memory for cached texts. Above it, all are dropped. */
const memoryShare = 1 / 16;
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
  textCount: number;
  /** Columns in which any result has a value. */
  filled: ReadonlySet<string>;
}

interface TableNames {
  /** Distinct texts of the rows, each with its result number `v`. */
  readonly texts: string;
  /** New texts, and result numbers in the same order. */
  readonly newTexts: string;
  readonly numbers: string;
  /** Cached texts with result numbers. */
  readonly cached: string;
  /** Results by number, and in the form that rows are joined with. */
  readonly results: string;
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
    numbers[Number(place)] =
      lookupResult === timedOut
        ? skipped
        : ((lookupResult === undefined ? undefined : resultDictionary.numberOf(lookupResult)) ?? unknown);
    if (performance.now() - workedSince < maxBlockingMs) continue;
    await setImmediate();
    workedSince = performance.now();
  }
  return numbers;
}

const drop = (duckdb: Duckdb, ...names: readonly string[]): Promise<void> =>
  duckdb.run(names.map((name) => `DROP TABLE IF EXISTS ${name};`).join(' '));

async function addResults(
  duckdb: Duckdb,
  results: string,
  from: LookupSource,
  resultDictionary: ResultDictionary,
): Promise<void> {
  const types = Object.fromEntries([
    ['v', 'INTEGER'],
    ...from.columns.map(({ column, type }) => [column, type] as const),
  ]);
  await duckdb.run(
    `INSERT INTO ${results} BY NAME SELECT unnest(from_json($1::JSON, ${sqlText(JSON.stringify([types]))}), recursive := true)`,
    [`[${resultDictionary.take().join(',')}]`],
  );
}

/** Builds the joined table. Returns the non-empty columns: others would cost as much to write. */
async function buildJoinTable(
  duckdb: Duckdb,
  { results, joined }: TableNames,
  from: LookupSource,
  resultDictionary: ResultDictionary,
): Promise<ReadonlySet<string>> {
  const enumerated = from.columns.flatMap(({ column, type }) => {
    const texts = type === 'VARCHAR' ? (resultDictionary.listTexts(column) ?? []) : [];
    return texts.length === 0 ? [] : [`results.${column}::ENUM(${texts.map(sqlText).join(', ')}) AS ${column}`];
  });
  const replaced = enumerated.length === 0 ? '' : ` REPLACE (${enumerated.join(', ')})`;
  const columns = [`results.*${replaced}`, ...from.constants].join(', ');
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${joined} AS SELECT ${columns} FROM ${results} AS results`);
  const [counts = {}] = await duckdb.rows(`SELECT count(COLUMNS(* EXCLUDE (v))) FROM ${joined}`);
  return new Set(Object.keys(counts).filter((column) => Number(counts[column]) > 0));
}

/** Looks up the texts without a number, by page, and caches the results. */
async function lookUpNewTexts(
  duckdb: Duckdb,
  { keys }: LookupKind,
  names: TableNames,
  from: LookupSource,
  cache: CacheState,
): Promise<void> {
  const { resultDictionary } = cache;
  const { texts, newTexts, numbers, cached, results } = names;
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${newTexts} AS SELECT * EXCLUDE (v) FROM ${texts} WHERE v IS NULL;
    CREATE OR REPLACE TEMP TABLE ${numbers} (v INTEGER)`);
  let isJoined = true;
  for (let at = 0; ; at += pageRows) {
    const page = await duckdb.columns(
      [`rowid - ${at}`, ...keys],
      `${newTexts} WHERE rowid >= ${at} AND rowid < ${at + pageRows}`,
    );
    const found = await findPage(page, from.find, resultDictionary);
    cache.textCount += found.filter((number) => number !== skipped).length;
    await duckdb.appendIntegers(numbers, [found]);
    const isLast = found.length < pageRows;
    // A statement costs as much as a thousand results.
    if (resultDictionary.waiting() > 0 && (isLast || resultDictionary.waiting() >= pageRows)) {
      await addResults(duckdb, results, from, resultDictionary);
      isJoined = false;
    }
    if (isLast) break;
  }
  if (!isJoined) cache.filled = await buildJoinTable(duckdb, names, from, resultDictionary);
  const numbered = `SELECT new_texts.*, numbers.v FROM ${newTexts} AS new_texts POSITIONAL JOIN ${numbers} AS numbers`;
  await duckdb.run(`INSERT INTO ${cached} ${numbered} WHERE numbers.v <> ${skipped};
    CREATE OR REPLACE TEMP TABLE ${texts} AS SELECT * FROM ${texts} WHERE v >= 0 UNION ALL ${numbered} WHERE numbers.v >= 0`);
  await drop(duckdb, newTexts, numbers);
}

/** Creates the cache of a kind of text. `scope` distinguishes its tables from those of other caches in the engine. */
export function createLookupCache(duckdb: Duckdb, scope: string, kind: LookupKind): LookupCache {
  const { name, keys, textBytes } = kind;
  const maxTexts = (duckdb.memoryMb * 1024 ** 2 * memoryShare) / textBytes;
  const table = (suffix: string): string => `enrich_${scope}_${name}_${suffix}`;
  const [texts, newTexts, numbers] = [table('texts'), table('new_texts'), table('numbers')];
  const [cached, results, joined] = [table('cached'), table('results'), table('joined')];
  const names: TableNames = { texts, newTexts, numbers, cached, results, joined };
  const by = keys.length === 1 ? '=' : 'IS NOT DISTINCT FROM';
  const matches = (one: string, other: string): string =>
    keys.map((key) => `${one}.${key} ${by} ${other}.${key}`).join(' AND ');
  let cache: CacheState | undefined;

  /** Returns the cache, or a new one if it is outdated. */
  async function getOrCreateCache({ columns, constants, databaseVersion }: LookupSource): Promise<CacheState> {
    const key = JSON.stringify([columns, constants, databaseVersion]);
    const nowMs = performance.now();
    if (cache?.key === key && nowMs - cache.sinceMs < cacheLifetimeMs) return cache;
    const typed = columns.map(({ column, type }) => `, ${column} ${type}`).join('');
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${cached} (${keys.map((each) => `${each} VARCHAR`).join(', ')}, v INTEGER);
      CREATE OR REPLACE TEMP TABLE ${results} (v INTEGER${typed})`);
    return { key, sinceMs: nowMs, resultDictionary: createResultDictionary(columns), textCount: 0, filled: new Set() };
  }

  /** Lists the distinct texts, with the numbers of the cached ones. */
  async function listDistinctTexts(source: string, condition: string, isEmpty: boolean): Promise<void> {
    const isPresent = keys.map((key) => `${key} IS NOT NULL`).join(' OR ');
    const distinct = `SELECT DISTINCT ${keys.join(', ')} FROM ${source} AS r WHERE (${isPresent}) AND (${condition})`;
    const numbered = isEmpty
      ? `SELECT *, NULL::INTEGER AS v FROM (${distinct})`
      : `SELECT q.*, cached.v FROM (${distinct}) AS q LEFT JOIN ${cached} AS cached ON ${matches('cached', 'q')}`;
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${texts} AS ${numbered}`);
  }

  async function countTexts(condition: string): Promise<number> {
    const [row] = await duckdb.rows(`SELECT count(*) AS n FROM ${texts} WHERE ${condition}`);
    return Number(row?.['n']);
  }

  async function forget(): Promise<void> {
    cache = undefined;
    await drop(duckdb, texts, newTexts, numbers, cached, results, joined);
  }

  return {
    async lookUp(source, condition, from) {
      const current = await getOrCreateCache(from);
      // Unset until success: after a failure tables and numbers may disagree.
      cache = undefined;
      await listDistinctTexts(source, condition, current.textCount === 0);
      if ((await countTexts('v IS NULL')) > 0) await lookUpNewTexts(duckdb, kind, names, from, current);
      cache = current;
      return (await countTexts('v >= 0')) > 0 ? current.filled : new Set();
    },
    joinSql: `LEFT JOIN ${texts} AS ${name}_texts ON ${matches(`${name}_texts`, 'r')} LEFT JOIN ${joined} AS ${name} ON ${name}.v = ${name}_texts.v`,
    async release() {
      const isTooMuch =
        cache !== undefined && (cache.textCount > maxTexts || cache.resultDictionary.count() > maxResults);
      await (isTooMuch ? forget() : drop(duckdb, texts, newTexts, numbers));
    },
    forget,
  };
}
