import { listTitleFields } from '../../datasets/dictionaries.ts';
import { sqlText } from '../../lake/sql/literals.ts';

/** How many titles were loaded for each field, by the field's name. */
export type TitleCounts = Readonly<Record<string, number>>;

/** The loaded titles that a selector shows. */
export interface TitleLookUp {
  /** Joins that follow the relation `events` in FROM. They find at most one title for a row, and lose the order. */
  readonly joins: readonly string[];
  /** SQL of the titles that were found; the first that is not NULL counts. */
  readonly titles: readonly string[];
}

/** The relation of the loaded titles; their file binds as `$titles`. */
const titlesSql = 'read_parquet($titles, hive_partitioning = false)';

function fieldsWithTitles(selector: string, counts: TitleCounts): string[] {
  return listTitleFields(selector)
    .map(({ name }) => name)
    .filter((name) => (counts[name] ?? 0) > 0);
}

/** Says whether titles were loaded that a selector may show: only then is there anything to join. */
export function hasTitles(selector: string, counts: TitleCounts): boolean {
  return fieldsWithTitles(selector, counts).length > 0;
}

/** Looks up the loaded titles of a selector, whose id is the SQL `id`. */
export function lookUpTitles(selector: string, id: string, counts: TitleCounts): TitleLookUp {
  const named = fieldsWithTitles(selector, counts).map((name, index) => ({
    name,
    alias: `titles_${selector}_${index}`,
  }));
  return {
    joins: named.map(
      ({ name, alias }) =>
        `LEFT JOIN (SELECT id, title FROM ${titlesSql} WHERE field = ${sqlText(name)}) AS ${alias} ON ${alias}.id = CAST(${id} AS VARCHAR)`,
    ),
    titles: named.map(({ alias }) => `${alias}.title`),
  };
}
