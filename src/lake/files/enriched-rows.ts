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

/** User-Agents of one look-up are parsed for so long, milliseconds: of usual ones, 200,000 different ones. */
export const agentBudgetMs = 3000;

/** An address of each version; the 2,048 characters that the schema allows, of up to three bytes. */
const places: TextSort = { name: 'places', keys: ['ipv4', 'ipv6'], textBytes: 128 };
const agents: TextSort = { name: 'agents', keys: ['user_agent'], textBytes: 6144 };

/** How rows are selected with what was found, where `r` is the row. */
export interface EnrichedSelect {
  readonly joins: string;
  /** The expressions of the columns that may be filled, by their names. */
  readonly values: ReadonlyMap<string, string>;
  /** A condition: something of the row is filled. */
  readonly isFilled: string;
}

/** A row says nothing of a group; columns that the rows do not have say nothing. */
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

/** `onOver` is told once, when the time is over. */
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

/** The row names no country, or that of the address: compared by the first field in which both have one. */
function isSameCountry({ name }: TextSort, country: EnrichedGroup, has: (column: string) => boolean): string {
  const same = country.columns
    .filter(({ column }) => has(column))
    .map(({ column }) => `r.${column} = ${name}.${column}`);
  return `coalesce(${[...same, `(${saysNothing(country, has)})`].join(', ')})`;
}

/** A row says nothing of the group, and something of it is known. */
function isFilledSql(sort: TextSort, group: EnrichedGroup, has: (column: string) => boolean): string {
  const isKnown = group.columns.map(({ column }) => `${sort.name}.${column} IS NOT NULL`).join(' OR ');
  const isThere = group.within === undefined ? '' : ` AND ${isSameCountry(sort, group.within, has)}`;
  return `((${saysNothing(group, has)}) AND (${isKnown})${isThere})`;
}

/** What a column becomes; in rows that say nothing at all, what is known as it is. */
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

/** Looks up what rows of one sort say, one batch after the other, in temporary tables of an engine. */
export interface LookUps {
  /**
   * Looks up what the rows' addresses and User-Agents say; what is selected holds until `release`, or the next look-up.
   * Errors: those of the engine.
   */
  lookUp(rows: RowsToEnrich): Promise<EnrichedRows>;
  /**
   * Runs queries of rows with what was found. The engine makes its hash tables of what was found: left to itself it
   * takes the smaller relation, and where that is the rows, with a hundred columns each, they cost twice as much to write.
   */
  joined<T>(work: () => Promise<T>): Promise<T>;
  /** Removes what was looked up for the last rows; what texts say is remembered for a while. */
  release(): Promise<void>;
  /** Removes everything: it is of people. */
  forget(): Promise<void>;
}

/** Creates the look-ups, which know nothing yet; `of` keeps their tables apart from those of other rows in the engine. */
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
        // Its own error is the one to see.
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

/** Tells what addresses and User-Agents say, by the names of the fields that are filled. Nothing of it throws. */
export interface Enricher {
  /** Date of the database that places come from, YYYY-MM-DD; undefined while there is none. */
  readonly databaseDate: string | undefined;
  /** Another number for each database that was in use: what was told of a place may be told otherwise from then on. */
  readonly edition: number;
  findPlace(address: string): Readonly<Partial<Record<PlaceField, string | number>>> | undefined;
  parseAgent(userAgent: string): Readonly<Partial<Record<AgentField, string | number>>>;
  /** Takes in a database that has come in the place of the one before. */
  refresh(): Promise<void>;
  /** Rows were written without what could be told of them. */
  failed(error: unknown): void;
  /** Rows were written with it. */
  passed(): void;
}
