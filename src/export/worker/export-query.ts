/** A value bound to a parameter of the query; lists bind as lists. */
export type BoundValue = string | bigint | readonly string[] | readonly bigint[];

export type BoundValues = Readonly<Record<string, BoundValue>>;

/**
 * A query over the data files, which bind as `$files`, and the relation `apps` (the apps the caller may read). The text
 * is made of our own words only; whatever came with the request is in the values. Rows of imported events come in the
 * order of the files, derived ones in the order of time.
 */
export interface ExportQuery {
  readonly select: string;
  readonly count: string;
  /** Bound by both statements. */
  readonly filterValues: BoundValues;
  /** Bound by `select` besides. */
  readonly selectValues: BoundValues;
  /**
   * Sets are compared value by value, which keeps the order of the rows. Otherwise they are looked up by a join, which
   * loses it, and the rows are sorted: better for sets too large to be walked through for every row.
   */
  readonly inline: boolean;
  /** What is run before the two statements, which read the table that it makes. */
  readonly preparation?: Preparation;
}

/** Makes the temporary table `derived`: the rows, by file and place, that the result has, and what they stand for. */
export interface Preparation {
  readonly statement: string;
  readonly values: BoundValues;
  /** Counts the rows that events beyond those that were read might still change; absent: there are none. */
  readonly unfinished?: { readonly statement: string; readonly values: BoundValues };
}

/** The data files, as a relation. */
export const filesSql = 'read_parquet($files, union_by_name = true, hive_partitioning = false)';
