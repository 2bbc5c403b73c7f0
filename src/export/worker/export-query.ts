/** A value bound to a parameter of a statement; lists bind as lists. */
export type BoundValue = string | bigint | readonly string[] | readonly bigint[];

/**
 * A statement over the data files, which bind as `$files` where it reads them, and the relation `apps` (the apps the
 * caller may read). The text is made of our own words only; whatever came with the request is in the values, each of
 * which the text uses.
 */
export interface Statement {
  readonly sql: string;
  readonly values: Readonly<Record<string, BoundValue>>;
}

/** What an export asks the engine. Rows come as they lie in the files, or in the order of time. */
export interface ExportQuery {
  readonly select: Statement;
  /** The rows of each file that has any: its index in the list of files, and their number. */
  readonly count: Statement;
  /**
   * Sets are compared value by value, which keeps the order of the rows. Otherwise they are looked up by a join, which
   * loses it, and the rows are sorted: better for sets too large to be walked through for every row.
   */
  readonly inline: boolean;
  /**
   * The same for those rows only that lie in their file from `$fromRow` up to `$beforeRow`: where rows are written as
   * they are read, nothing of them sorted or joined. Then slices of the files, one after the other, give what all give.
   */
  readonly selectRows?: Statement;
  /** What is run before the two statements, which read the table that it makes. */
  readonly preparation?: Preparation;
}

/**
 * Makes the temporary table `derived`: the file and place of each row that the result has, and what it stands for. In
 * steps, each of which reads files further beyond the end of the request's time, until no row can change any more.
 */
export interface Preparation {
  /** How far each step reads beyond that end, seconds. */
  readonly reachSeconds: readonly number[];
  /** The first step makes the table, a later one the rows anew that the step before might have cut. */
  statements(step: number): readonly Statement[];
  /** Counts the rows that events beyond the step's reach might change; undefined: there are none. */
  unfinished(step: number): Statement | undefined;
}

/** The data files, as a relation. */
export const filesSql = 'read_parquet($files, union_by_name = true, hive_partitioning = false)';

/** The order of time; of one time that of the ids, which may come twice (an Idempotency-Key after its 24 hours). */
export const orderByTime = 'ORDER BY events.event_time, events.event_id, events.file_index, events.file_row_number';
