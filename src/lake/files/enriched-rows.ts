/**
 * Rows with what their addresses and User-Agents say: what is found of their texts (text-tables.ts) is joined to the rows
 * in SQL.
 *
 * In: the SQL of some rows. Out: temporary tables of the places and agents that are known, and expressions that fill
 * the columns of a row which says nothing itself.
 * Bounds: User-Agents that are not parsed within the time of a look-up stay unknown.
 */
import { geoDateColumn } from '../../datasets/field-schema.ts';
import type { EnrichedGroup, AgentField, PlaceField } from '../../datasets/enriched-columns.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { createTextTables, noTime, type TextSort, type TextSource } from './text-tables.ts';

/** Time for parsing the User-Agents of one look-up, ms: enough for 200,000 distinct usual ones. */
export const agentBudgetMs = 3000;

/** Bytes: an address of each version; 2,048 characters of up to three bytes. */
const places: TextSort = { name: 'places', keys: ['ipv4', 'ipv6'], textBytes: 128 };
const agents: TextSort = { name: 'agents', keys: ['user_agent'], textBytes: 6144 };

/** SQL of enriched rows, where `r` is the row. */
export interface EnrichedSelect {
  readonly joins: string;
  /** Expressions of the columns that may be filled, by name. */
  readonly values: ReadonlyMap<string, string>;
  /** Condition: any column of the row is filled. */
  readonly isFilled: string;
}

/** Condition: a row has no value of a group. Columns that the rows lack have none. */
function saysNothing({ saidBy }: EnrichedGroup, has: (column: string) => boolean): string {
  return ['true', ...saidBy.filter(has).map((column) => `r.${column} IS NULL`)].join(' AND ');
}

function readPlaces(enricher: Enricher, groups: readonly EnrichedGroup[]): TextSource {
  const find = (address: unknown) => (typeof address === 'string' ? enricher.findPlace(address) : undefined);
  return {
    columns: groups.flatMap(({ columns }) => columns),
    constants:
      enricher.databaseDate === undefined ? [] : [`DATE ${sqlText(enricher.databaseDate)} AS ${geoDateColumn.name}`],
    edition: enricher.edition,
    find: (ipv4, ipv6) => find(ipv4) ?? find(ipv6),
  };
}

/** Calls `onOver` once, when the time is over. */
function readAgents(
  enricher: Enricher,
  groups: readonly EnrichedGroup[],
  budgetMs: number,
  onOver: () => void,
): TextSource {
  const startedAt = performance.now();
  let isOver = false;
  return {
    columns: groups.flatMap(({ columns }) => columns),
    constants: [],
    edition: 0,
    find(userAgent) {
      if (isOver) return noTime;
      if (performance.now() - startedAt > budgetMs) {
        isOver = true;
        onOver();
        return noTime;
      }
      return enricher.parseAgent(String(userAgent));
    },
  };
}

/** Condition: the row names no country, or that of the address, by the first field that both have. */
function isSameCountry({ name }: TextSort, country: EnrichedGroup, has: (column: string) => boolean): string {
  const same = country.columns
    .filter(({ column }) => has(column))
    .map(({ column }) => `r.${column} = ${name}.${column}`);
  return `coalesce(${[...same, `(${saysNothing(country, has)})`].join(', ')})`;
}

/** Condition: a row has no value of the group, and some are known. */
function isFilledSql(sort: TextSort, group: EnrichedGroup, has: (column: string) => boolean): string {
  const isKnown = group.columns.map(({ column }) => `${sort.name}.${column} IS NOT NULL`).join(' OR ');
  const isThere = group.within === undefined ? '' : ` AND ${isSameCountry(sort, group.within, has)}`;
  return `((${saysNothing(group, has)}) AND (${isKnown})${isThere})`;
}

/** Returns the expression of a column. */
function fillSql(
  { name }: TextSort,
  column: string,
  isFilled: string,
  isSaid: boolean,
  has: (column: string) => boolean,
): string {
  const kept = has(column) ? ` ELSE r.${column}` : '';
  return isSaid || has(column) ? `CASE WHEN ${isFilled} THEN ${name}.${column}${kept} END` : `${name}.${column}`;
}

export interface RowsToEnrich {
  readonly source: string;
  readonly groups: readonly EnrichedGroup[];
  /** Whether the relation has a column. */
  readonly has: (column: string) => boolean;
  /** Time for User-Agents, ms; `agentBudgetMs` by default. */
  readonly agentBudgetMs?: number;
}

export interface EnrichedRows {
  /** Undefined if nothing is known of any row. */
  readonly select: EnrichedSelect | undefined;
  /** Whether the time ran out before all User-Agents were parsed. */
  readonly isCutShort: boolean;
}

/** Looks up rows, one batch after another, in temporary tables of an engine. */
export interface LookUps {
  /**
   * Looks up the addresses and User-Agents of rows. The result is valid until `release` or the next look-up. Errors:
   * the engine's.
   */
  lookUp(rows: RowsToEnrich): Promise<EnrichedRows>;
  /**
   * Runs queries of enriched rows with the hash tables built from the answers. By default the engine builds them from
   * the smaller relation: if that is the rows, with a hundred columns each, they cost twice as much to write.
   */
  joined<T>(work: () => Promise<T>): Promise<T>;
  /** Removes the answers for the last rows. Texts stay remembered for a while. */
  release(): Promise<void>;
  /** Removes everything, since it is personal data. */
  forget(): Promise<void>;
}

/** Creates the look-ups. `of` separates their tables from those of other rows in the engine. */
export function createLookUps(duckdb: Duckdb, enricher: Enricher, of: string): LookUps {
  const [placeTables, agentTables] = [createTextTables(duckdb, of, places), createTextTables(duckdb, of, agents)];
  return {
    async lookUp({ source, groups, has, agentBudgetMs: budgetMs = agentBudgetMs }) {
      let isCutShort = false;
      const onOver = (): void => {
        isCutShort = true;
      };
      const [joins, values, filled]: [string[], Map<string, string>, string[]] = [[], new Map(), []];
      for (const from of ['address', 'agent'] as const) {
        const own = groups.filter((group) => group.from === from);
        if (own.length === 0) continue;
        const [sort, tables] = from === 'address' ? [places, placeTables] : [agents, agentTables];
        const texts = from === 'address' ? readPlaces(enricher, own) : readAgents(enricher, own, budgetMs, onOver);
        const says = own.map((group) => `(${saysNothing(group, has)})`).join(' OR ');
        const known = await tables.lookUp(source, says, texts);
        if (known.size === 0) continue;
        joins.push(tables.joinSql);
        const isFilled = own.map((group) => isFilledSql(sort, group, has));
        own.forEach((group, index) => {
          const isSaid = [...group.saidBy, ...(group.within?.saidBy ?? [])].some(has);
          for (const { column } of group.columns)
            if (known.has(column)) values.set(column, fillSql(sort, column, isFilled[index] ?? '', isSaid, has));
        });
        const isAnySaid = own.some((group) => group.saidBy.some(has));
        if (known.has(geoDateColumn.name))
          values.set(geoDateColumn.name, fillSql(sort, geoDateColumn.name, isFilled.join(' OR '), isAnySaid, has));
        filled.push(...isFilled);
      }
      const select = joins.length === 0 ? undefined : { joins: joins.join(' '), values, isFilled: filled.join(' OR ') };
      return { select, isCutShort };
    },
    async joined(work) {
      await duckdb.run("SET disabled_optimizers = 'build_side_probe_side'");
      const reset = (): Promise<void> => duckdb.run('RESET disabled_optimizers');
      try {
        const done = await work();
        await reset();
        return done;
      } catch (error) {
        // The first error is reported instead.
        await reset().catch(() => undefined);
        throw error;
      }
    },
    async release() {
      await placeTables.release();
      await agentTables.release();
    },
    async forget() {
      await placeTables.forget();
      await agentTables.forget();
    },
  };
}

/** Finds what addresses and User-Agents say, by field. Nothing throws. */
export interface Enricher {
  /** Date of the database of places, YYYY-MM-DD; undefined if there is none. */
  readonly databaseDate: string | undefined;
  /** Number of the database: earlier answers may be outdated when it changes. */
  readonly edition: number;
  findPlace(address: string): Readonly<Partial<Record<PlaceField, string | number>>> | undefined;
  parseAgent(userAgent: string): Readonly<Partial<Record<AgentField, string | number>>>;
  /** Loads a database that has replaced the previous one. */
  refresh(): Promise<void>;
  /** Called when rows were written without answers. */
  failed(error: unknown): void;
  /** Called when rows were written with answers. */
  passed(): void;
}
