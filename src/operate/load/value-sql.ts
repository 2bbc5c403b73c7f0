import type { FieldSchema } from '../../datasets/field-schema.ts';
import { jsonNumberPattern } from '../../datasets/json-number.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import type { BadReason, Check } from './file-fields.ts';

/**
 * From the JSON Schema of a field to SQL: the value of a cell in the type of its column, and what makes it bad. Pure:
 * expressions out of expressions. `cell` is always the name of a column, so that it may stand in them often.
 */

/**
 * What a cell is: a text as CSV and JSON have it; or of a Parquet file's own types, a number that the engine casts to
 * the type of its field without rounding, or a list of texts, which only parameters are.
 */
export type CellKind = 'text' | 'number' | 'list';

interface ValueSql {
  /** What the engine's own cast makes of the cell, for `value` to use often; absent where it needs none. */
  readonly cast?: string;
  /**
   * The cell in a type that all checks can be made on, out of it and of the column of its cast; NULL where it has no
   * value, and where it is not of the type.
   */
  readonly value: string;
  /** Turns the value (the name of a column that has it) into what is stored. */
  readonly toStored: (value: string) => string;
  /** Checks, on the cell and on the column of its value. */
  readonly toChecks: (cell: string, value: string) => readonly Check[];
}

/** The end of year 9999 in Unix seconds: no time is later. */
const maxSeconds = 253_402_300_799;

/** Numbers whose value is exact as DECIMAL(38,18): up to 20 digits before the point, 18 after it. */
const shortNumber = String.raw`-?(?:0|[1-9]\d{0,19})(?:\.\d{1,9}0*)?(?:[eE](?:\+?\d{1,2}|-0?\d))?`;

const matches = (cell: string, pattern: string): string => `regexp_full_match(${cell}, ${sqlText(pattern)})`;
const exactDecimal = (cell: string): string => `TRY_CAST(${cell} AS DECIMAL(38,18))`;

/**
 * An integer in JSON's grammar (`12`, `1.50e1`). Nearly all are written as the engine writes them, which is faster to
 * compare than a pattern; the engine's own cast would also take `+1`, ` 1`, `007` and round `1.6`.
 */
function integerSql(cell: string, cast: string, type: string): string {
  const exact = exactDecimal(cell);
  return `CASE WHEN CAST(${cast} AS VARCHAR) = ${cell} THEN ${cast}
    WHEN ${matches(cell, shortNumber)} AND ${exact} = trunc(${exact}) THEN TRY_CAST(${exact} AS ${type}) END`;
}

/**
 * A decimal in JSON's grammar; NULL where the column would round it. Nearly all are the beginning of what the engine
 * writes for them (`1.5` of `1.5000`), which is faster to compare than a pattern; `1.` begins it too, and is none.
 */
function decimalSql(cell: string, cast: string, type: string, scale: number): string {
  const fraction = scale === 0 ? String.raw`(?:\.0+)?` : String.raw`(?:\.\d{1,${scale}}0*)?`;
  const exact = exactDecimal(cell);
  return `CASE WHEN starts_with(CAST(${cast} AS VARCHAR), ${cell}) AND NOT ends_with(${cell}, '.') THEN ${cast}
    WHEN ${matches(cell, `-?(?:0|[1-9]\\d*)${fraction}`)} THEN TRY_CAST(${cell} AS ${type})
    WHEN ${matches(cell, shortNumber)} AND TRY_CAST(${exact} AS ${type}) = ${exact} THEN TRY_CAST(${exact} AS ${type}) END`;
}

interface Bounds {
  readonly minimum: string | undefined;
  readonly maximum: string | undefined;
}

const typeBounds: Readonly<Record<string, Bounds>> = {
  SMALLINT: { minimum: '-32768', maximum: '32767' },
  TIMESTAMPTZ: { minimum: '0', maximum: String(maxSeconds) },
};

/** A bound as digits. Beyond 2^53 a number of JSON is not what was written; the column's type is the bound then. */
function toDigits(bound: unknown): string | undefined {
  if (typeof bound === 'string' && /^-?\d+$/.test(bound)) return bound;
  return typeof bound === 'number' && Number.isFinite(bound) && Math.abs(bound) <= Number.MAX_SAFE_INTEGER
    ? String(bound)
    : undefined;
}

function findBounds({ decimalRange: range, minimum, maximum, 'x-column-type': type }: FieldSchema): Bounds {
  const own = typeBounds[type];
  return {
    minimum: toDigits(range?.minimum ?? minimum) ?? own?.minimum,
    maximum: toDigits(range?.maximum ?? maximum) ?? own?.maximum,
  };
}

/** A check by a rule of a schema; none where the schema has no such rule. */
function checkBy<T>(rule: T | undefined, reason: BadReason, toSql: (rule: T) => string): Omit<Check, 'field'>[] {
  return rule === undefined ? [] : [{ reason, sql: toSql(rule) }];
}

function numberChecks(schema: FieldSchema, value: string): Omit<Check, 'field'>[] {
  const { minimum, maximum } = findBounds(schema);
  return [
    ...checkBy(schema.enum, 'not_allowed', (allowed) => `${value} NOT IN (${allowed.map(Number).join(', ')})`),
    ...checkBy(minimum, 'out_of_range', (least) => `${value} < ${least}`),
    ...checkBy(maximum, 'out_of_range', (most) => `${value} > ${most}`),
  ];
}

/** Lengths are counted in code points, as JSON Schema does; a text of fewer bytes needs no count. */
function textChecks({ minLength, maxLength, enum: texts, pattern }: FieldSchema, value: string) {
  return [
    ...checkBy(minLength, 'bad_length', (least) => `length(${value}) < ${least}`),
    ...checkBy(maxLength, 'bad_length', (most) => `(strlen(${value}) > ${most} AND length(${value}) > ${most})`),
    ...checkBy(texts, 'not_allowed', (allowed) => `${value} NOT IN (${allowed.map(String).map(sqlText).join(', ')})`),
    ...checkBy(pattern, 'bad_pattern', (known) => `NOT regexp_matches(${value}, ${sqlText(known)})`),
  ];
}

/**
 * The SQL of a field: of the cell and its cast (names of columns) and of the column that has its value. Throws for a
 * type of column that no field of rows has.
 */
export function valueSql(name: string, schema: FieldSchema, cell: string, cast: string, kind: CellKind): ValueSql {
  const type = schema['x-column-type'];
  const decimal = /^DECIMAL\((\d+),(\d+)\)$/.exec(type);
  const asChecks = (found: readonly Omit<Check, 'field'>[]): Check[] =>
    found.map((check) => ({ ...check, field: name }));
  if (type === 'VARCHAR') {
    return {
      value: kind !== 'text' ? `CAST(${cell} AS VARCHAR)` : cell,
      toStored: (value) => value,
      toChecks: (_cell, value) => asChecks(textChecks(schema, value)),
    };
  }
  if (type === 'DATE') {
    const text = `CAST(${cell} AS VARCHAR)`;
    return {
      value: `CASE WHEN ${matches(text, String.raw`\d{4}-\d\d-\d\d`)} THEN TRY_CAST(${text} AS DATE) END`,
      toStored: (value) => value,
      toChecks: (_cell, value) => asChecks([{ reason: 'bad_type', sql: `(${text} <> '' AND ${value} IS NULL)` }]),
    };
  }
  if (type === 'MAP(VARCHAR, VARCHAR)') throw new Error(`schemas: ${name} cannot be loaded as ${type}`);
  const isInteger = decimal === null ? type !== 'DOUBLE' : decimal[2] === '0';
  const wide = decimal === null ? 'BIGINT' : type;
  const parsed = isInteger
    ? integerSql(cell, cast, wide)
    : decimal === null
      ? `CASE WHEN ${matches(cell, jsonNumberPattern)} AND isfinite(TRY_CAST(${cell} AS DOUBLE)) THEN TRY_CAST(${cell} AS DOUBLE) END`
      : decimalSql(cell, cast, type, Number(decimal[2]));
  // A text that is empty is no value.
  const isThere = (text: string): string => (kind === 'text' ? `${text} <> ''` : `${text} IS NOT NULL`);
  const isNumber = (text: string): string =>
    kind !== 'text' ? 'true' : `regexp_matches(${text}, ${sqlText(jsonNumberPattern)})`;
  return {
    ...(kind === 'text' && parsed.includes(cast) ? { cast: `TRY_CAST(${cell} AS ${wide})` } : {}),
    value: kind !== 'text' ? `TRY_CAST(${cell} AS ${isInteger ? wide : type})` : parsed,
    toStored: (value) =>
      type === 'TIMESTAMPTZ'
        ? `make_timestamptz(${value} * 1000000)`
        : type === 'SMALLINT'
          ? `CAST(${value} AS SMALLINT)`
          : value,
    toChecks: (text, value) =>
      asChecks([
        {
          reason: 'bad_type',
          sql: `(${isThere(text)} AND ${value} IS NULL AND NOT ${isNumber(text)})`,
          isDetail: true,
        },
        { reason: 'inexact', sql: `(${isThere(text)} AND ${value} IS NULL)` },
        ...numberChecks(schema, value),
      ]),
  };
}

/**
 * Lists in a text: an array literal as exports write it (`['a','it\'s']`: quotes, backslashes and line breaks escaped
 * by a backslash), or a list of JSON (`["a","b"]`). Pure.
 */

const item = String.raw`'(?:[^'\\]|\\.)*'`;
const literal = String.raw`(?s)\[\s*(?:${item}(?:\s*,\s*${item})*)?\s*\]`;

/**
 * The texts of a list that stands in `cell`, the name of a column; NULL where it has none, and where it is no list of
 * texts. Items are unescaped from left to right: what stands between two backslashes that belong together is split
 * first.
 */
export function listSql(cell: string): string {
  const unescape = String.raw`array_to_string(list_transform(string_split(part, '\\'), lambda piece:
    replace(replace(replace(piece, '\n', chr(10)), '\r', chr(13)), '\''', '''')), '\')`;
  const items = `regexp_extract_all(${cell}, ${sqlText(String.raw`(?s)'((?:[^'\\]|\\.)*)'`)}, 1)`;
  return `CASE WHEN regexp_full_match(${cell}, ${sqlText(literal)}) THEN list_transform(${items}, lambda part: ${unescape})
    WHEN json_valid(${cell}) THEN CASE WHEN json_type(${cell}) = 'ARRAY' THEN
      CASE WHEN len(list_filter(CAST(${cell} AS JSON[]), lambda one: json_type(one) <> 'VARCHAR')) = 0
      THEN list_transform(CAST(${cell} AS JSON[]), lambda one: one ->> '$') END END END`;
}
