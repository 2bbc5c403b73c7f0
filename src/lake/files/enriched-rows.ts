/**
 * Rows with what their addresses and User-Agents say: each distinct one is looked up once, in JavaScript, and joined to
 * the rows in SQL.
 *
 * In: the SQL of some rows. Out: temporary tables of the places and agents that are known, and expressions that fill
 * the columns of a row which says nothing itself.
 * Bounds: a page of texts in memory at a time; the event loop runs between stretches of 20 ms; User-Agents that are not
 * parsed within the time of a look-up stay unknown.
 */
import { setImmediate } from 'node:timers/promises';
import { geoDateColumn } from '../../datasets/own-columns.ts';
import type { EnrichedColumn, EnrichedGroup } from '../../datasets/enriched-columns.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { createNumbering, type Answer, type Numbering } from './answer-numbering.ts';
import type { Enricher } from './enricher.ts';

/** Distinct texts that are looked up at a time: 33 MB of the longest User-Agents. */
const pageRows = 8192;
/** Works so long at a stretch, milliseconds. */
const stretchMs = 20;
/** User-Agents of one look-up are parsed for so long, milliseconds: of usual ones, 200,000 different ones. */
export const agentBudgetMs = 3000;

/** How rows are selected with what was found, where `r` is the row. */
export interface EnrichedSelect {
  readonly joins: string;
  /** The expressions of the columns that may be filled, by their names. */
  readonly values: ReadonlyMap<string, string>;
  /** A condition: something of the row is filled. */
  readonly isFilled: string;
}

/** One sort of text that is looked up. */
interface LookUp {
  readonly name: 'places' | 'agents';
  /** Columns of a row that are looked up together. */
  readonly keys: readonly string[];
  readonly columns: readonly EnrichedColumn[];
  /** Columns that every answer has, beside those that it tells: names and SQL. */
  readonly constants: readonly string[];
  /** The texts in the order of `keys`. */
  readonly find: (text: unknown, other: unknown) => Answer | undefined;
}

/** In place of a number: nothing is known of a text. */
const unknown = -1;

/** The distinct texts. */
const askedTable = (name: LookUp['name']): string => `enrich_${name}_asked`;
/** The number of the answer of each distinct text, `v`, in their order. */
const numbersTable = (name: LookUp['name']): string => `enrich_${name}_numbers`;
/** The answers by their numbers, `v`. */
const answersTable = (name: LookUp['name']): string => `enrich_${name}_answers`;
/** The texts of which something is known, `key_COLUMN`, each with the number of its answer, `v`. */
const foundTable = (name: LookUp['name']): string => `enrich_${name}`;
const tables = [askedTable, numbersTable, answersTable, foundTable];

/** Removes what was looked up: it is of people. */
export async function forgetLookUps(duckdb: Duckdb): Promise<void> {
  const names = (['places', 'agents'] as const).flatMap((name) => tables.map((table) => table(name)));
  await duckdb.run(names.map((table) => `DROP TABLE IF EXISTS ${table};`).join(' '));
}

/**
 * Looks up a page of texts, whose places from 0 come first; the event loop runs in between. Returns the numbers of their
 * answers by their places.
 */
async function findPage(
  [places = [], texts = [], others = []]: readonly (readonly unknown[])[],
  find: LookUp['find'],
  numbering: Numbering,
): Promise<number[]> {
  const numbers = places.map(() => unknown);
  let workedSince = performance.now();
  for (const [index, place] of places.entries()) {
    const answer = find(texts[index], others[index]);
    numbers[place as number] = (answer === undefined ? undefined : numbering.numberOf(answer)) ?? unknown;
    if (performance.now() - workedSince < stretchMs) continue;
    await setImmediate();
    workedSince = performance.now();
  }
  return numbers;
}

/** Finds the answers of what is asked, a page at a time; says whether there are any. */
async function findAnswers(duckdb: Duckdb, { name, keys, columns, constants, find }: LookUp): Promise<boolean> {
  const numbering = createNumbering(columns);
  const types = Object.fromEntries([['v', 'INTEGER'], ...columns.map(({ column, type }) => [column, type] as const)]);
  // Answers that all come at once have their texts as enumerations; later ones might have others.
  const toEnumerated = ({ column, type }: EnrichedColumn): string[] => {
    const texts = type === 'VARCHAR' ? (numbering.listTexts(column) ?? []) : [];
    return texts.length === 0 ? [] : [`told.${column}::ENUM(${texts.map(sqlText).join(', ')}) AS ${column}`];
  };
  const selectAnswers = (enumerated: readonly string[]): string => {
    const replaced = enumerated.length === 0 ? '' : ` REPLACE (${enumerated.join(', ')})`;
    return `SELECT ${[`told.*${replaced}`, ...constants].join(', ')}
    FROM (SELECT unnest(from_json($1::JSON, ${sqlText(JSON.stringify([types]))}), recursive := true)) AS told`;
  };
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${numbersTable(name)} (v INTEGER)`);
  let isKnown = false;
  for (let from = 0; ; from += pageRows) {
    const page = await duckdb.columns(
      [`rowid - ${from}`, ...keys],
      `${askedTable(name)} WHERE rowid >= ${from} AND rowid < ${from + pageRows}`,
    );
    await duckdb.appendIntegers(numbersTable(name), [await findPage(page, find, numbering)]);
    const isLast = (page[0]?.length ?? 0) < pageRows;
    // Each statement has a cost of its own, as high as that of a thousand answers.
    if (isLast || numbering.waiting() >= pageRows) {
      const answers = numbering.take();
      if (answers.length > 0) {
        const into = isKnown
          ? `INSERT INTO ${answersTable(name)}`
          : `CREATE OR REPLACE TEMP TABLE ${answersTable(name)} AS`;
        const enumerated = isLast && !isKnown ? columns.flatMap(toEnumerated) : [];
        await duckdb.run(`${into} ${selectAnswers(enumerated)}`, [`[${answers.join(',')}]`]);
        isKnown = true;
      }
    }
    if (isLast) return isKnown;
  }
}

/** Looks up the texts of some rows; says whether anything is known. `says`: the rows that are looked at. */
async function lookUp(duckdb: Duckdb, source: string, says: string, one: LookUp): Promise<boolean> {
  const { name, keys } = one;
  const isThere = keys.map((key) => `${key} IS NOT NULL`).join(' OR ');
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE ${askedTable(name)} AS SELECT DISTINCT ${keys.join(', ')} FROM ${source} AS r WHERE (${isThere}) AND (${says})`,
  );
  if (!(await findAnswers(duckdb, one))) return false;
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE ${foundTable(name)} AS
     SELECT ${keys.map((key) => `asked.${key} AS key_${key}`).join(', ')}, numbers.v
     FROM ${askedTable(name)} AS asked POSITIONAL JOIN ${numbersTable(name)} AS numbers WHERE numbers.v <> ${unknown}`,
  );
  return true;
}

/** A row says nothing of a group; columns that the rows do not have say nothing. */
function saysNothing({ saidBy }: EnrichedGroup, has: (column: string) => boolean): string {
  return ['true', ...saidBy.filter(has).map((column) => `r.${column} IS NULL`)].join(' AND ');
}

function createPlaceLookUp(enricher: Enricher, groups: readonly EnrichedGroup[]): LookUp {
  const find = (address: unknown) => (typeof address === 'string' ? enricher.findPlace(address) : undefined);
  return {
    name: 'places',
    keys: ['ipv4', 'ipv6'],
    columns: groups.flatMap(({ columns }) => columns),
    constants:
      enricher.databaseDate === undefined ? [] : [`DATE ${sqlText(enricher.databaseDate)} AS ${geoDateColumn.name}`],
    find: (ipv4, ipv6) => find(ipv4) ?? find(ipv6),
  };
}

function createAgentLookUp(
  enricher: Enricher,
  groups: readonly EnrichedGroup[],
  budgetMs: number,
  onOver: () => void,
): LookUp {
  const startedAt = performance.now();
  let isOver = false;
  return {
    name: 'agents',
    keys: ['user_agent'],
    columns: groups.flatMap(({ columns }) => columns),
    constants: [],
    find(userAgent) {
      if (isOver) return undefined;
      if (performance.now() - startedAt > budgetMs) {
        isOver = true;
        onOver();
        return undefined;
      }
      return enricher.parseAgent(String(userAgent));
    },
  };
}

function joinSql({ name, keys }: LookUp): string {
  const by = keys.length === 1 ? '=' : 'IS NOT DISTINCT FROM';
  const matches = keys.map((key) => `${name}_found.key_${key} ${by} r.${key}`);
  return `LEFT JOIN ${foundTable(name)} AS ${name}_found ON ${matches.join(' AND ')} LEFT JOIN ${answersTable(name)} AS ${name} ON ${name}.v = ${name}_found.v`;
}

/** A row says nothing of the group, and something of it is known. */
function isFilledSql({ name }: LookUp, group: EnrichedGroup, has: (column: string) => boolean): string {
  const isKnown = group.columns.map(({ column }) => `${name}.${column} IS NOT NULL`).join(' OR ');
  return `((${saysNothing(group, has)}) AND (${isKnown}))`;
}

/** Rows to enrich. */
export interface RowsToEnrich {
  /** SQL of a relation. */
  readonly source: string;
  readonly groups: readonly EnrichedGroup[];
  /** Which columns the relation has; what it does not have says nothing. */
  readonly has: (column: string) => boolean;
  /** Time for User-Agents, milliseconds; `agentBudgetMs` unless stated otherwise. */
  readonly agentBudgetMs?: number;
}

/** What was found for some rows. */
export interface EnrichedRows {
  /** Undefined: nothing is known of any. */
  readonly select: EnrichedSelect | undefined;
  /** There was no time for some User-Agents. */
  readonly isCutShort: boolean;
}

/**
 * Looks up what the rows' addresses and User-Agents say, and fills temporary tables with it, which take the place of
 * those before; `forgetLookUps` removes them. Errors: those of the engine.
 */
export async function lookUpRows(
  duckdb: Duckdb,
  enricher: Enricher,
  { source, groups, has, agentBudgetMs: budgetMs = agentBudgetMs }: RowsToEnrich,
): Promise<EnrichedRows> {
  let isCutShort = false;
  const onOver = (): void => {
    isCutShort = true;
  };
  const [joins, values, filled]: [string[], Map<string, string>, string[]] = [[], new Map(), []];
  for (const from of ['address', 'agent'] as const) {
    const own = groups.filter((group) => group.from === from);
    if (own.length === 0) continue;
    const one =
      from === 'address' ? createPlaceLookUp(enricher, own) : createAgentLookUp(enricher, own, budgetMs, onOver);
    const says = own.map((group) => `(${saysNothing(group, has)})`).join(' OR ');
    if (!(await lookUp(duckdb, source, says, one))) continue;
    joins.push(joinSql(one));
    for (const group of own) {
      const isFilled = isFilledSql(one, group, has);
      const dated = one.constants.length === 0 ? [] : [geoDateColumn.name];
      const isSaid = group.saidBy.some(has);
      for (const column of [...group.columns.map((filledColumn) => filledColumn.column), ...dated]) {
        const kept = has(column) ? ` ELSE r.${column}` : '';
        // Rows that say nothing at all have what is known as it is.
        const found = `${one.name}.${column}`;
        values.set(column, isSaid || has(column) ? `CASE WHEN ${isFilled} THEN ${found}${kept} END` : found);
      }
      filled.push(isFilled);
    }
  }
  const select = joins.length === 0 ? undefined : { joins: joins.join(' '), values, isFilled: filled.join(' OR ') };
  return { select, isCutShort };
}
