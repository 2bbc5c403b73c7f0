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
import type { AgentField, EnrichedColumn, EnrichedGroup, PlaceField } from '../../datasets/enriched-columns.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import type { Enricher } from './enricher.ts';

/** Distinct texts that are looked up at a time: 33 MB of the longest User-Agents. */
const pageRows = 8192;
/** Different answers that are remembered, to hand each to the engine once: 10 MB. */
const maxAnswers = 20_000;
/**
 * Different texts of a column that are an enumeration to the engine, which carries and writes their numbers in place of
 * them; with more, the list would be larger than what it spares.
 */
const maxEnumerated = 4096;
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

/** What is told of a text, by the names of fields. */
type Answer = Readonly<Partial<Record<PlaceField | AgentField, string | number>>>;

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

/** The distinct texts. */
const askedTable = (name: LookUp['name']): string => `enrich_${name}_asked`;
/** The rows of the texts of which something is known, `r`, each with the number of its answer, `v`. */
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

/** What is told of a text, as the members of a JSON object; undefined for nothing. */
function renderAnswer(columns: readonly EnrichedColumn[], answer: Answer): string | undefined {
  const members = columns.flatMap(({ column, field }) =>
    answer[field] === undefined ? [] : [[column, answer[field]] as const],
  );
  return members.length === 0 ? undefined : JSON.stringify(Object.fromEntries(members)).slice(1);
}

/** Numbers different answers. */
interface Numbering {
  /** The number of an answer; undefined where it tells nothing. */
  numberOf(answer: Answer): number | undefined;
  /** How many answers are to be handed out. */
  waiting(): number;
  /** Hands out the answers since the last time, members of a JSON array with their numbers as `v`. */
  take(): string[];
  /** All texts that answers had in a column so far; undefined where they are too many to be an enumeration. */
  listTexts(column: string): readonly string[] | undefined;
}

function createNumbering(columns: readonly EnrichedColumn[]): Numbering {
  // Most texts have the answer of another: it is the same object.
  const byAnswer = new Map<Answer, number | undefined>();
  const byText = new Map<string, number>();
  const texts = new Map(columns.map(({ column }) => [column, new Set<string>()]));
  let answers: string[] = [];
  let next = 0;
  const numberText = (text: string): number => {
    const known = byText.get(text);
    if (known !== undefined) return known;
    const number = next;
    next += 1;
    answers.push(`{"v":${number},${text}`);
    byText.set(text, number);
    return number;
  };
  const keepTexts = (answer: Answer): void => {
    for (const { column, field } of columns) {
      const value = answer[field];
      const known = texts.get(column);
      if (typeof value === 'string' && known !== undefined && known.size <= maxEnumerated) known.add(value);
    }
  };
  return {
    numberOf(answer) {
      const known = byAnswer.get(answer);
      if (known !== undefined || byAnswer.has(answer)) return known;
      // One that comes again then has a number more.
      if (byAnswer.size >= maxAnswers) {
        byAnswer.clear();
        byText.clear();
      }
      const text = renderAnswer(columns, answer);
      const number = text === undefined ? undefined : numberText(text);
      if (number === next - 1) keepTexts(answer);
      byAnswer.set(answer, number);
      return number;
    },
    waiting: () => answers.length,
    take() {
      const taken = answers;
      answers = [];
      return taken;
    },
    listTexts(column) {
      const all = [...(texts.get(column) ?? [])];
      // A statement ends at the character NUL.
      return all.length > maxEnumerated || all.some((text) => text.includes('\0')) ? undefined : all;
    },
  };
}

/** The rows of a page of which something is known, and beside each the number of its answer. */
type FoundPage = readonly [rows: number[], numbers: number[]];

/** Looks up a page of texts, whose rows come first; the event loop runs in between. */
async function findPage(
  [rows = [], texts = [], others = []]: readonly (readonly unknown[])[],
  find: LookUp['find'],
  numbering: Numbering,
): Promise<FoundPage> {
  const found: FoundPage = [[], []];
  let workedSince = performance.now();
  for (const [index, row] of rows.entries()) {
    const answer = find(texts[index], others[index]);
    const number = answer === undefined ? undefined : numbering.numberOf(answer);
    if (number !== undefined) {
      found[0].push(row as number);
      found[1].push(number);
    }
    if (performance.now() - workedSince < stretchMs) continue;
    await setImmediate();
    workedSince = performance.now();
  }
  return found;
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
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${numbersTable(name)} (r INTEGER, v INTEGER)`);
  let isKnown = false;
  for (let from = 0; ; from += pageRows) {
    const page = await duckdb.columns(
      ['rowid', ...keys],
      `${askedTable(name)} WHERE rowid >= ${from} AND rowid < ${from + pageRows}`,
    );
    const found = await findPage(page, find, numbering);
    if (found[0].length > 0) await duckdb.appendIntegers(numbersTable(name), found);
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
     FROM ${askedTable(name)} AS asked JOIN ${numbersTable(name)} AS numbers ON numbers.r = asked.rowid`,
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
