import type { Duckdb } from '../lake/duckdb.ts';

/** Days of time zones. DuckDB does all of the arithmetic, as it does for the rows: two engines would disagree some day. */
export interface ZoneDays {
  /** The date in the zone at a moment, `YYYY-MM-DD`. */
  currentDate(zone: string, nowMs: number): Promise<string>;
  /** Unix seconds of a day's first instant in the zone. A day that the zone skipped begins where the next one does. */
  firstInstant(zone: string, date: string): Promise<number>;
  /** The day after, by the calendar. */
  nextDay(date: string): string;
}

/** No zone is further from UTC than 15 hours, and all of them change by whole minutes since 1970. */
const dateQuery = `
  SELECT CAST(CAST(timezone($1, make_timestamptz(CAST($2 AS BIGINT))) AS DATE) AS VARCHAR) AS date`;
const instantQuery = `
  SELECT epoch_us(min(moment)) // 1000000 AS seconds
  FROM generate_series(CAST($2 || ' 00:00:00+00' AS TIMESTAMPTZ) - INTERVAL 16 HOUR, CAST($2 || ' 00:00:00+00' AS TIMESTAMPTZ) + INTERVAL 40 HOUR, INTERVAL 1 MINUTE) AS series(moment)
  WHERE timezone($1, moment) >= CAST($2 AS TIMESTAMP)`;

const rememberedInstants = 10_000;

/**
 * Creates the arithmetic over an engine of its own. The first instant of a day is looked for minute by minute: midnight
 * may come twice or not at all on the days when clocks change, and one query of three thousand rows is cheap beside an
 * export.
 */
export function createZoneDays(duckdb: Duckdb): ZoneDays {
  const instants = new Map<string, number>();
  return {
    async currentDate(zone, nowMs) {
      const [row] = await duckdb.rows(dateQuery, [zone, BigInt(Math.floor(nowMs)) * 1000n]);
      return String(row?.['date']);
    },
    async firstInstant(zone, date) {
      const key = `${zone} ${date}`;
      const known = instants.get(key);
      if (known !== undefined) return known;
      const [row] = await duckdb.rows(instantQuery, [zone, date]);
      const seconds = Number(row?.['seconds']);
      if (instants.size >= rememberedInstants) instants.clear();
      instants.set(key, seconds);
      return seconds;
    },
    nextDay: (date) => new Date(Date.parse(`${date}T00:00:00Z`) + 86_400_000).toISOString().slice(0, 10),
  };
}
