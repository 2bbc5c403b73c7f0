import type { Duckdb } from '../../lake/sql/duckdb.ts';

/**
 * Where a day begins in a zone, Unix seconds. Where clocks go back over midnight a day begins, is left for the one
 * before once more, and begins again.
 */
interface DayBegin {
  /** The first instant of this day or a later one. */
  readonly firstSeconds: number;
  /** From here on no instant is of an earlier day; the same as the first, nearly always. */
  readonly settledSeconds: number;
}

/**
 * Days of time zones. DuckDB does all of the arithmetic, as it does for the rows: two engines could disagree.
 */
export interface ZoneDays {
  /** The date in the zone at a moment, `YYYY-MM-DD`. */
  currentDate(zone: string, nowMs: number): Promise<string>;
  /** Where a day begins. A day that the zone skipped begins where the next one does. */
  beginOf(zone: string, date: string): Promise<DayBegin>;
  /**
   * When the clocks of a zone first show a time (`HH:MM`) of a date, or a later one, Unix seconds: where they are set
   * forward over it the moment at which they are, where they show it twice the first.
   */
  momentOf(zone: string, date: string, time: string): Promise<number>;
  /** The day after, by the calendar. */
  nextDay(date: string): string;
}

const dateQuery = `
  SELECT CAST(CAST(timezone($1, make_timestamptz(CAST($2 AS BIGINT))) AS DATE) AS VARCHAR) AS date`;
/**
 * No zone is further from UTC than 15 hours. In the minutes in which the day is reached, or left again, every second is
 * checked.
 */
const beginQuery = `
  WITH minutes AS (
    SELECT moment, timezone($1, moment) >= CAST($2 || ' ' || $3 AS TIMESTAMP) AS reached
    FROM generate_series(CAST($2 || ' 00:00:00+00' AS TIMESTAMPTZ) - INTERVAL 16 HOUR, CAST($2 || ' 00:00:00+00' AS TIMESTAMPTZ) + INTERVAL 40 HOUR, INTERVAL 1 MINUTE) AS series(moment)
  ), turns AS (
    SELECT moment FROM minutes QUALIFY reached <> lead(reached) OVER (ORDER BY moment)
  ), seconds AS (
    SELECT moment + to_seconds(second) AS moment FROM turns, generate_series(0, 60) AS series(second)
  )
  SELECT epoch_us(min(moment) FILTER (timezone($1, moment) >= CAST($2 || ' ' || $3 AS TIMESTAMP))) // 1000000 AS first,
         epoch_us(max(moment) FILTER (timezone($1, moment) < CAST($2 || ' ' || $3 AS TIMESTAMP))) // 1000000 + 1 AS settled
  FROM seconds`;

const rememberedBegins = 10_000;

/**
 * Creates the arithmetic over an engine of its own. Midnight is searched for minute by minute, since it may come twice or
 * not at all on the days when clocks change, and one query of three thousand rows is cheap beside an export.
 */
export function createZoneDays(duckdb: Duckdb): ZoneDays {
  const begins = new Map<string, DayBegin>();

  async function search(zone: string, date: string, time: string): Promise<DayBegin> {
    const key = `${zone} ${date} ${time}`;
    const known = begins.get(key);
    if (known !== undefined) return known;
    const [row] = await duckdb.rows(beginQuery, [zone, date, `${time}:00`]);
    const begin = { firstSeconds: Number(row?.['first']), settledSeconds: Number(row?.['settled']) };
    if (begins.size >= rememberedBegins) begins.clear();
    begins.set(key, begin);
    return begin;
  }

  return {
    async currentDate(zone, nowMs) {
      const [row] = await duckdb.rows(dateQuery, [zone, BigInt(Math.floor(nowMs)) * 1000n]);
      return String(row?.['date']);
    },
    beginOf: (zone, date) => search(zone, date, '00:00'),
    momentOf: async (zone, date, time) => (await search(zone, date, time)).firstSeconds,
    nextDay: (date) => new Date(Date.parse(`${date}T00:00:00Z`) + 86_400_000).toISOString().slice(0, 10),
  };
}
