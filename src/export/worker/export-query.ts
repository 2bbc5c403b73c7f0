/** A value bound to a parameter; lists are bound as lists. */
export type BoundValue = string | bigint | readonly string[] | readonly bigint[];

/**
 * A statement over the data files, bound as `$files`, and the relation `apps` (the apps the caller may read). Values of
 * the request are bound, never part of the text, and the text uses each of them.
 */
export interface ExportStatement {
  readonly sql: string;
  readonly values: Readonly<Record<string, BoundValue>>;
}

export interface ExportQuery {
  readonly select: ExportStatement;
  readonly count: ExportStatement;
  /** Counts the rows by date in the time zone of the request, oldest first. */
  readonly days: ExportStatement;
  /** Whether sets are compared value by value, which keeps the row order. Large sets are joined and the rows sorted. */
  readonly inline: boolean;
  /** `select` for the rows from `$fromRow` up to `$beforeRow` of their file; absent if rows are not streamed. */
  readonly selectRows?: ExportStatement;
  /** Runs before the other statements, which read its table. */
  readonly preparation?: Preparation;
}

/** Creates the temporary table `derived`, file and position of each row, in steps that read further beyond the end. */
export interface Preparation {
  /** How far each step reads beyond that end, s. */
  readonly reachSeconds: readonly number[];
  /** Creates the table, or replaces the rows that the previous step may have cut. */
  statements(step: number): readonly ExportStatement[];
  /** Counts the rows that events beyond the step's reach may change; undefined if no row can change. */
  unfinished(step: number): ExportStatement | undefined;
}

export const filesSql = 'read_parquet($files, union_by_name = true, hive_partitioning = false)';

/** The order of time, then of ids, which may repeat (an Idempotency-Key after 24 hours). */
export const orderByTime = 'ORDER BY events.event_time, events.event_id, events.file_index, events.file_row_number';
