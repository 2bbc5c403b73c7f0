import { sqlText } from '../sql/literals.ts';

/**
 * The form of a parameter's value. Parameters are texts; these are the forms that a text may have, each with the SQL type
 * of such a column in views.sql. Every number of JSON is a number, as JavaScript writes it too: `1e-7`, `1.7e+308`.
 */
export const parameterTypes = ['integer', 'long', 'decimal', 'boolean', 'date', 'time', 'text', 'empty'] as const;
export type ParameterType = (typeof parameterTypes)[number];
/** A type whose values are not texts any more. */
export type TypedType = Exclude<ParameterType, 'text' | 'empty'>;

/** Types that one column can have together, narrow ones first: a column of the last takes the values of all. */
export const typeFamilies: readonly (readonly TypedType[])[] = [
  ['integer', 'long', 'decimal'],
  ['date', 'time'],
  ['boolean'],
];

/** The column of partials and of the fold that counts the values of a type. */
export const typeColumn = (type: ParameterType): string => `n_${type}`;

const integerForm = '-?(0|[1-9][0-9]*)';
/** The forms, whole, ASCII digits only. A number begins with no zero, as in JSON: such a text is an identifier. */
const forms = {
  integer: '-?(0|[1-9][0-9]{0,17})',
  long: '-?(0|[1-9][0-9]{0,37})',
  decimal: String.raw`${integerForm}(\.[0-9]+)?([eE][+-]?[0-9]+)?`,
  date: String.raw`[0-9]{4}-[0-9]{2}-[0-9]{2}`,
  time: String.raw`[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:?[0-9]{2})?`,
} as const;

const matches = (value: string, form: keyof typeof forms): string =>
  `regexp_full_match(${value}, ${sqlText(forms[form])})`;

/** A time without a zone is one in UTC, whatever the zone of the reader's session. */
const toTimeSql = (value: string): string =>
  `TRY_CAST(CASE WHEN regexp_matches(${value}, '(Z|[+-][0-9]{2}:?[0-9]{2})$') THEN ${value} ELSE ${value} || 'Z' END AS TIMESTAMPTZ)`;

/**
 * SQL of a text as a value of a type; NULL where it has another form: a cast alone would round 1.5 to a BIGINT of 2. A
 * number beyond those of a DOUBLE is none, and a date or a time that is none in the calendar.
 */
export function typedSql(value: string, type: TypedType): string {
  switch (type) {
    case 'integer':
      return `CASE WHEN ${matches(value, 'integer')} THEN TRY_CAST(${value} AS BIGINT) END`;
    case 'long':
      return `CASE WHEN ${matches(value, 'long')} THEN TRY_CAST(${value} AS DECIMAL(38, 0)) END`;
    case 'decimal':
      return `CASE WHEN ${matches(value, 'decimal')} AND isfinite(TRY_CAST(${value} AS DOUBLE)) THEN TRY_CAST(${value} AS DOUBLE) END`;
    case 'boolean':
      return `CASE WHEN ${value} IN ('true', 'True', 'TRUE') THEN true WHEN ${value} IN ('false', 'False', 'FALSE') THEN false END`;
    case 'date':
      return `CASE WHEN ${matches(value, 'date')} THEN TRY_CAST(${value} AS DATE) END`;
    case 'time':
      return `CASE WHEN ${matches(value, 'time')} THEN ${toTimeSql(value)} WHEN ${matches(value, 'date')} THEN TRY_CAST(${value} || ' 00:00:00Z' AS TIMESTAMPTZ) END`;
    default:
      return type satisfies never;
  }
}

/** SQL that tells the type of a text: the narrowest that has a value for it. */
export function typeOfSql(value: string): string {
  const typed = typeFamilies.flat().map((type) => `WHEN (${typedSql(value, type)}) IS NOT NULL THEN ${sqlText(type)}`);
  return `CASE WHEN ${value} IS NULL OR trim(${value}) = '' THEN 'empty' ${typed.join(' ')} ELSE 'text' END`;
}

/** How many of the values have each type. */
export type TypeCounts = Readonly<Record<ParameterType, number>>;

/** From this share of the values that are not empty on, a parameter has a type of its own. */
const typedShare = 0.99;

const sumOf = (counts: TypeCounts, types: readonly ParameterType[]): number =>
  types.reduce((sum, type) => sum + counts[type], 0);

/**
 * Returns the type of a parameter, that of nearly all its values, and how many others are not empty and have no value of
 * it. One with decimals among its integers is a decimal.
 */
export function mainType(counts: TypeCounts): { readonly type: ParameterType; readonly untyped: number } {
  const filled = sumOf(counts, parameterTypes) - counts.empty;
  if (filled === 0) return { type: 'empty', untyped: 0 };
  const family = typeFamilies.find((types) => sumOf(counts, types) >= typedShare * filled);
  const type = family?.toReversed().find((each) => counts[each] > 0);
  return family === undefined || type === undefined
    ? { type: 'text', untyped: 0 }
    : { type, untyped: filled - sumOf(counts, family) };
}

/**
 * How many different values there are, from two bitmaps of 320 bytes together, which are merged by OR: that of some rows
 * and that of others make that of all. The first takes each value by one of its bits: nearly exact up to some hundreds.
 * The second is that of Flajolet and Martin (PCSA), within about a tenth for any number.
 */
const fewBits = 1024;
const buckets = 64;
const levels = 24;
/** While so many bits of the first are free, it is the better of the two. */
const fewestFree = 100;

/** SQL of the hash of a value that the bitmaps are made of: one for all versions of the engine. */
export const valueHashSql = (value: string): string => `md5_number_lower(${value})`;

/** SQL of the two bitmaps over a group's values, by their hashes: BLOBs named `few` and `many`. */
export function sketchSql(hash: string): string {
  const rest = `CAST(${hash} >> 16 AS BIGINT)`;
  // The number of zeros at the end; of a zero itself, more than there are levels.
  const level = `least(CASE WHEN ${rest} = 0 THEN ${levels} ELSE bit_count(xor(${rest}, ${rest} - 1)) - 1 END, ${levels - 1})`;
  return `CAST(bitstring_agg(CAST(${hash} % ${fewBits} AS INTEGER), 0, ${fewBits - 1}) AS BLOB) AS few,
    CAST(bitstring_agg(CAST((${hash} // ${fewBits}) % ${buckets} * ${levels} + ${level} AS INTEGER), 0, ${buckets * levels - 1}) AS BLOB) AS many`;
}

/** SQL of two bitmaps merged over a group. */
export const mergedSketchSql = 'bit_or(few::BIT) AS few, bit_or(many::BIT) AS many';

/** SQL of the number of different values, from merged bitmaps. */
export const estimateSql = `CAST(CASE
    WHEN ${fewBits} - bit_count(few) > ${fewestFree} THEN round(-${fewBits} * ln((${fewBits} - bit_count(few)) / ${fewBits}))
    ELSE round(${buckets} / 0.77351 * power(2, list_sum(list_transform(range(${buckets}),
      lambda i : strpos(substr(many::VARCHAR, CAST(i * ${levels} + 1 AS BIGINT), ${levels}) || '0', '0') - 1)) / ${buckets}))
  END AS BIGINT)`;
