/**
 * Enriches rows by their IP addresses and User-Agents: joins the lookup results of lookup-cache.ts in SQL.
 *
 * In: the SQL of rows. Out: temporary tables of results, and expressions for columns without a client's value.
 * Limits: User-Agents that are not parsed within the time of a lookup stay unknown.
 */
import { geoDateColumn } from '../../datasets/field-schema.ts';
import type { EnrichedGroup, UserAgentField, GeoField } from '../../datasets/enriched-columns.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { createLookupCache, timedOut, type LookupKind, type LookupSource } from './lookup-cache.ts';

/** Time for parsing the User-Agents of a lookup, ms: enough for 200,000 distinct usual ones. */
export const agentBudgetMs = 3000;

/** Bytes: an address of each version; 2,048 characters of up to three bytes. */
const places: LookupKind = { name: 'places', keys: ['ipv4', 'ipv6'], textBytes: 128 };
const agents: LookupKind = { name: 'agents', keys: ['user_agent'], textBytes: 6144 };

export interface EnrichedSelect {
  readonly joins: string;
  /** Expressions of the columns that may be filled, by name. */
  readonly values: ReadonlyMap<string, string>;
  /** Condition that any column of the row is filled. */
  readonly isFilled: string;
}

/** Returns a condition that a row has no value of a group. */
function saysNothing({ saidBy }: EnrichedGroup, has: (column: string) => boolean): string {
  return ['true', ...saidBy.filter(has).map((column) => `r.${column} IS NULL`)].join(' AND ');
}

function readPlaces(enricher: Enricher, groups: readonly EnrichedGroup[]): LookupSource {
  const find = (address: unknown) => (typeof address === 'string' ? enricher.findLocation(address) : undefined);
  return {
    columns: groups.flatMap(({ columns }) => columns),
    constants:
      enricher.databaseDate === undefined ? [] : [`DATE ${sqlText(enricher.databaseDate)} AS ${geoDateColumn.name}`],
    databaseVersion: enricher.databaseVersion,
    find: (ipv4, ipv6) => find(ipv4) ?? find(ipv6),
  };
}

/** Calls `onOver` once the time has run out. */
function readAgents(
  enricher: Enricher,
  groups: readonly EnrichedGroup[],
  budgetMs: number,
  onOver: () => void,
): LookupSource {
  const startedAt = performance.now();
  let isOver = false;
  return {
    columns: groups.flatMap(({ columns }) => columns),
    constants: [],
    databaseVersion: 0,
    find(userAgent) {
      if (isOver) return timedOut;
      if (performance.now() - startedAt > budgetMs) {
        isOver = true;
        onOver();
        return timedOut;
      }
      return enricher.parseUserAgent(String(userAgent));
    },
  };
}

/** Returns a condition that the row has no country, or that of its address. */
function isSameCountry({ name }: LookupKind, country: EnrichedGroup, has: (column: string) => boolean): string {
  const same = country.columns
    .filter(({ column }) => has(column))
    .map(({ column }) => `r.${column} = ${name}.${column}`);
  return `coalesce(${[...same, `(${saysNothing(country, has)})`].join(', ')})`;
}

/** Returns a condition that a row has no value of the group, and some are known. */
function isFilledSql(sort: LookupKind, group: EnrichedGroup, has: (column: string) => boolean): string {
  const isKnown = group.columns.map(({ column }) => `${sort.name}.${column} IS NOT NULL`).join(' OR ');
  const isThere = group.within === undefined ? '' : ` AND ${isSameCountry(sort, group.within, has)}`;
  return `((${saysNothing(group, has)}) AND (${isKnown})${isThere})`;
}

function fillSql(
  { name }: LookupKind,
  column: string,
  isFilled: string,
  isSaid: boolean,
  has: (column: string) => boolean,
): string {
  const elseSql = has(column) ? ` ELSE r.${column}` : '';
  return isSaid || has(column) ? `CASE WHEN ${isFilled} THEN ${name}.${column}${elseSql} END` : `${name}.${column}`;
}

export interface RowsToEnrich {
  readonly source: string;
  readonly groups: readonly EnrichedGroup[];
  readonly has: (column: string) => boolean;
  /** Time for User-Agents, ms [`agentBudgetMs`]. */
  readonly agentBudgetMs?: number;
}

export interface EnrichedRows {
  /** Undefined if no row can be enriched. */
  readonly select: EnrichedSelect | undefined;
  /** Whether the time ran out before all User-Agents were parsed. */
  readonly isCutShort: boolean;
}

export interface RowLookups {
  /** Looks up addresses and User-Agents. The result is valid until `release` or the next call. Errors: the engine's. */
  lookUp(rows: RowsToEnrich): Promise<EnrichedRows>;
  /** Makes the results the build side of hash joins: wide rows would cost twice as much. */
  joined<T>(work: () => Promise<T>): Promise<T>;
  /** Removes the results for the last rows. Texts stay cached for a while. */
  release(): Promise<void>;
  /** Removes all texts, since they are personal data. */
  forget(): Promise<void>;
}

/** Creates lookups. `of` separates their tables from others in the engine. */
export function createRowLookups(duckdb: Duckdb, enricher: Enricher, of: string): RowLookups {
  const [placeTables, agentTables] = [createLookupCache(duckdb, of, places), createLookupCache(duckdb, of, agents)];
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
        const [kind, tables] = from === 'address' ? [places, placeTables] : [agents, agentTables];
        const texts = from === 'address' ? readPlaces(enricher, own) : readAgents(enricher, own, budgetMs, onOver);
        const conditionSql = own.map((group) => `(${saysNothing(group, has)})`).join(' OR ');
        const known = await tables.lookUp(source, conditionSql, texts);
        if (known.size === 0) continue;
        joins.push(tables.joinSql);
        const isFilled = own.map((group) => isFilledSql(kind, group, has));
        own.forEach((group, index) => {
          const isSaid = [...group.saidBy, ...(group.within?.saidBy ?? [])].some(has);
          for (const { column } of group.columns)
            if (known.has(column)) values.set(column, fillSql(kind, column, isFilled[index] ?? '', isSaid, has));
        });
        const isAnySaid = own.some((group) => group.saidBy.some(has));
        if (known.has(geoDateColumn.name))
          values.set(geoDateColumn.name, fillSql(kind, geoDateColumn.name, isFilled.join(' OR '), isAnySaid, has));
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

/** Looks up addresses and User-Agents. Never throws. */
export interface Enricher {
  /** Date of the geo database, YYYY-MM-DD. */
  readonly databaseDate: string | undefined;
  /** Number of the loaded database. A change outdates earlier results. */
  readonly databaseVersion: number;
  findLocation(address: string): Readonly<Partial<Record<GeoField, string | number>>> | undefined;
  parseUserAgent(userAgent: string): Readonly<Partial<Record<UserAgentField, string | number>>>;
  /** Loads a replaced database. */
  refresh(): Promise<void>;
  /** Is called when rows were written without enrichment. */
  failed(error: unknown): void;
  /** Is called when rows were written with enrichment. */
  passed(): void;
}
