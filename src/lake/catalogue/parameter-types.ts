import { sqlText } from '../sql/literals.ts';

/** Type of a parameter's text and of its column in views.sql. Numbers include JavaScript's `1e-7` and `1.7e+308`. */
export const parameterTypes = ['integer', 'long', 'decimal', 'boolean', 'date', 'time', 'text', 'empty'] as const;
export type ParameterType = (typeof parameterTypes)[number];
export type TypedType = Exclude<ParameterType, 'text' | 'empty'>;

/** Types of one column, narrow ones first. The last one fits all values. */
export const typeFamilies: readonly (readonly TypedType[])[] = [
  ['integer', 'long', 'decimal'],
  ['date', 'time'],
  ['boolean'],
];

export const typeColumn = (type: ParameterType): string => `n_${type}`;

const integerForm = '-?(0|[1-9][0-9]*)';
/** Forms in ASCII digits. A text with leading zeros is an identifier, not a number. */
const forms = {
  integer: '-?(0|[1-9][0-9]{0,17})',
  long: '-?(0|[1-9][0-9]{0,37})',
  decimal: String.raw`${integerForm}(\.[0-9]+)?([eE][+-]?[0-9]+)?`,
  date: String.raw`[0-9]{4}-[0-9]{2}-[0-9]{2}`,
  time: String.raw`[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:?[0-9]{2})?`,
} as const;

const matches = (value: string, form: keyof typeof forms): string =>
  `regexp_full_match(${value}, ${sqlText(forms[form])})`;

/** A time without a zone is in UTC, regardless of the session's zone. */
const toTimeSql = (value: string): string =>
  `TRY_CAST(CASE WHEN regexp_matches(${value}, '(Z|[+-][0-9]{2}:?[0-9]{2})$') THEN ${value} ELSE ${value} || 'Z' END AS TIMESTAMPTZ)`;

/** SQL of a text as a value of a type; NULL if it does not have this type, or is infinite. */
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

export function typeOfSql(value: string): string {
  const typed = typeFamilies.flat().map((type) => `WHEN (${typedSql(value, type)}) IS NOT NULL THEN ${sqlText(type)}`);
  return `CASE WHEN ${value} IS NULL OR trim(${value}) = '' THEN 'empty' ${typed.join(' ')} ELSE 'text' END`;
}

export type TypeCounts = Readonly<Record<ParameterType, number>>;

/** Share of the non-empty values for which a parameter is typed. */
const typedShare = 0.99;

const sumOf = (counts: TypeCounts, types: readonly ParameterType[]): number =>
  types.reduce((sum, type) => sum + counts[type], 0);

/** Returns the type of nearly all values, and the number of other non-empty values. */
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
 * Distinct counts by two mergeable bitmaps of 320 bytes. The first has a bit per value, and is exact up to hundreds.
 * The second (PCSA of Flajolet and Martin) is within about a tenth.
 */
const fewBits = 1024;
const buckets = 64;
const levels = 24;
/** Free bits down to which the first bitmap is more exact. */
const fewestFree = 100;

/** SQL of a value's hash, which is the same in all versions of the engine. */
export const valueHashSql = (value: string): string => `md5_number_lower(${value})`;

/** SQL of two bitmaps over a group's hashes: BLOBs named `few` and `many`. */
export function sketchSql(hash: string): string {
  const rest = `CAST(${hash} >> 16 AS BIGINT)`;
  // Trailing zeros; for zero the last level.
  const level = `least(CASE WHEN ${rest} = 0 THEN ${levels} ELSE bit_count(xor(${rest}, ${rest} - 1)) - 1 END, ${levels - 1})`;
  return `CAST(bitstring_agg(CAST(${hash} % ${fewBits} AS INTEGER), 0, ${fewBits - 1}) AS BLOB) AS few,
    CAST(bitstring_agg(CAST((${hash} // ${fewBits}) % ${buckets} * ${levels} + ${level} AS INTEGER), 0, ${buckets * levels - 1}) AS BLOB) AS many`;
}

export const mergedSketchSql = 'bit_or(few::BIT) AS few, bit_or(many::BIT) AS many';

export const estimateSql = `CAST(CASE
    WHEN ${fewBits} - bit_count(few) > ${fewestFree} THEN round(-${fewBits} * ln((${fewBits} - bit_count(few)) / ${fewBits}))
    ELSE round(${buckets} / 0.77351 * power(2, list_sum(list_transform(range(${buckets}),
      lambda i : strpos(substr(many::VARCHAR, CAST(i * ${levels} + 1 AS BIGINT), ${levels}) || '0', '0') - 1)) / ${buckets}))
  END AS BIGINT)`;
