import { sqlText } from '../sql/literals.ts';

/**
 * What the value of a parameter looks like. Parameters are texts; these are the forms that a text may have, each with the
 * SQL type that a column of such values gets in views.sql.
 */
export const parameterTypes = ['integer', 'decimal', 'boolean', 'date', 'time', 'text', 'empty'] as const;
export type ParameterType = (typeof parameterTypes)[number];

/** The column of partials and of the fold that counts the values of a type. */
export const typeColumn = (type: ParameterType): string => `n_${type}`;

/**
 * The forms, whole, ASCII digits only. More than eighteen digits may not fit a BIGINT: such values are texts, as
 * identifiers of that length should be.
 */
export const forms = {
  integer: String.raw`-?[0-9]{1,18}`,
  decimal: String.raw`-?[0-9]{1,18}\.[0-9]{1,18}([eE][+-]?[0-9]{1,2})?`,
  boolean: '[Tt]rue|TRUE|[Ff]alse|FALSE',
  date: String.raw`[0-9]{4}-[0-9]{2}-[0-9]{2}`,
  time: String.raw`[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:?[0-9]{2})?`,
} as const;

const matches = (value: string, form: keyof typeof forms): string =>
  `regexp_full_match(${value}, ${sqlText(forms[form])})`;

/** A time without a zone is one in UTC, whatever the zone of the reader's session. */
const toTimeSql = (value: string): string =>
  `TRY_CAST(CASE WHEN regexp_matches(${value}, '(Z|[+-][0-9]{2}:?[0-9]{2})$') THEN ${value} ELSE ${value} || 'Z' END AS TIMESTAMPTZ)`;

/** SQL that tells the type of a text. A date or a time that is none in the calendar is a text. */
export function typeOfSql(value: string): string {
  return `CASE WHEN ${value} IS NULL OR trim(${value}) = '' THEN 'empty'
    WHEN ${matches(value, 'integer')} THEN 'integer'
    WHEN ${matches(value, 'decimal')} THEN 'decimal'
    WHEN ${matches(value, 'boolean')} THEN 'boolean'
    WHEN ${matches(value, 'date')} AND TRY_CAST(${value} AS DATE) IS NOT NULL THEN 'date'
    WHEN ${matches(value, 'time')} AND ${toTimeSql(value)} IS NOT NULL THEN 'time'
    ELSE 'text' END`;
}

/** How many of the values have each type. */
export type TypeCounts = Readonly<Record<ParameterType, number>>;

/** From this share of the values that are not empty on, a parameter has a type of its own. */
const typedShare = 0.99;

/** The type of a parameter: that of nearly all its values. One with decimals among its integers is a decimal. */
export function mainType(counts: TypeCounts): ParameterType {
  const filled = parameterTypes.reduce((sum, type) => sum + (type === 'empty' ? 0 : counts[type]), 0);
  if (filled === 0) return 'empty';
  const isMost = (count: number): boolean => count >= typedShare * filled;
  if (isMost(counts.integer) && counts.decimal === 0) return 'integer';
  if (isMost(counts.integer + counts.decimal)) return 'decimal';
  if (isMost(counts.date + counts.time)) return counts.time === 0 ? 'date' : 'time';
  return isMost(counts.boolean) ? 'boolean' : 'text';
}

/** SQL of a text as a value of a type; NULL where it has another form: a cast alone would round 1.5 to a BIGINT of 2. */
export function typedSql(value: string, type: ParameterType): string {
  switch (type) {
    case 'integer':
      return `CASE WHEN ${matches(value, 'integer')} THEN TRY_CAST(${value} AS BIGINT) END`;
    case 'decimal':
      return `CASE WHEN ${matches(value, 'integer')} OR ${matches(value, 'decimal')} THEN TRY_CAST(${value} AS DOUBLE) END`;
    case 'boolean':
      return `CASE lower(${value}) WHEN 'true' THEN true WHEN 'false' THEN false END`;
    case 'date':
      return `CASE WHEN ${matches(value, 'date')} THEN TRY_CAST(${value} AS DATE) END`;
    case 'time':
      return `CASE WHEN ${matches(value, 'time')} THEN ${toTimeSql(value)} WHEN ${matches(value, 'date')} THEN TRY_CAST(${value} || ' 00:00:00Z' AS TIMESTAMPTZ) END`;
    case 'text':
    case 'empty':
      return value;
    default:
      return type satisfies never;
  }
}
