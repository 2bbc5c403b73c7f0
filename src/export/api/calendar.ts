import type { Duckdb } from '../../lake/sql/duckdb.ts';

/** The start of a day in a zone, Unix s. A day starts twice if clocks go back over midnight. */
interface DayBegin {
  /** The first instant of this day or a later one. */
  readonly firstSeconds: number;
  /** From here on, no instant belongs to an earlier day; usually equal to `firstSeconds`. */
  readonly settledSeconds: number;
}

export type Calendar = ReturnType<typeof createCalendar>;

const dateQuery = `
  SELECT CAST(CAST(timezone($1, make_timestamptz(CAST($2 AS BIGINT))) AS DATE) AS VARCHAR) AS date`;
/** No zone differs from UTC by more than 15 hours. In the minutes of a change every second is checked. */
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
 * Creates the calendar of time zones. DuckDB computes it, since it computes the dates of rows too. Midnight may occur
 * twice or not at all when clocks change, so one query of 3,000 rows searches it minute by minute.
 */
export function createCalendar(duckdb: Duckdb) {
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
    async currentDate(zone: string, nowMs: number): Promise<string> {
      const [row] = await duckdb.rows(dateQuery, [zone, BigInt(Math.floor(nowMs)) * 1000n]);
      return String(row?.['date']);
    },
    /** Finds the start of a day; that of the next day if the zone skipped it. */
    beginOf: (zone: string, date: string): Promise<DayBegin> => search(zone, date, '00:00'),
    /**
     * Finds when the clocks of a zone first show a time (`HH:MM`) of a date or a later one, Unix s: the moment of the
     * change if clocks skip it, the first one if it comes twice.
     */
    momentOf: async (zone: string, date: string, time: string): Promise<number> =>
      (await search(zone, date, time)).firstSeconds,
    nextDay: (date: string): string =>
      new Date(Date.parse(`${date}T00:00:00Z`) + 86_400_000).toISOString().slice(0, 10),
  };
}
