import type { FieldSchema } from '../../datasets/field-schema.ts';
import { jsonNumberPattern } from '../../datasets/json-number.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import type { BadReason, RowCheck } from './file-fields.ts';

/**
 * Builds SQL from the JSON Schema of a field: the value of a cell in its column's type, and its checks. Pure. `cell` is
 * always a column name, so that it may be repeated.
 */

/** Kind of a cell: text as in CSV and JSON; an exact Parquet number; or a list of texts, for parameters only. */
export type CellKind = 'text' | 'number' | 'list';

interface ValueSql {
  /** SQL of the column that `value` reads as `cast`: the cell as DuckDB casts it. Absent if `value` reads none. */
  readonly cast?: string;
  /** SQL of the value that all checks read; NULL if the cell is empty or of another type. */
  readonly value: string;
  /** SQL of the stored value, by the column of the value. */
  readonly toStored: (value: string) => string;
  readonly toChecks: (cell: string, value: string) => readonly RowCheck[];
}

/** The end of year 9999, Unix seconds. */
const maxSeconds = 253_402_300_799;

/** Numbers that DECIMAL(38,18) holds exactly: up to 20 digits before the point and 18 after it. */
const shortNumber = String.raw`-?(?:0|[1-9]\d{0,19})(?:\.\d{1,9}0*)?(?:[eE](?:\+?\d{1,2}|-0?\d))?`;

const matches = (cell: string, pattern: string): string => `regexp_full_match(${cell}, ${sqlText(pattern)})`;
const exactDecimal = (cell: string): string => `TRY_CAST(${cell} AS DECIMAL(38,18))`;

/**
 * SQL of an integer in JSON's grammar (`12`, `1.50e1`). Most cells equal the engine's text of their value; comparing
 * both is faster than a pattern. The cast alone would accept `+1`, ` 1` and `007`, and round `1.6`.
 */
function integerSql(cell: string, cast: string, type: string): string {
  const exact = exactDecimal(cell);
  return `CASE WHEN CAST(${cast} AS VARCHAR) = ${cell} THEN ${cast}
    WHEN ${matches(cell, shortNumber)} AND ${exact} = trunc(${exact}) THEN TRY_CAST(${exact} AS ${type}) END`;
}

/**
 * SQL of a decimal in JSON's grammar; NULL if the column would round it. Most cells are a prefix of the engine's text
 * (`1.5` of `1.5000`); comparing both is faster than a pattern. The prefix `1.` is invalid.
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

/** Returns a bound as digits. Beyond 2^53 a JSON number is inexact, and the column's type is the bound. */
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

function checkBy<T>(rule: T | undefined, reason: BadReason, toSql: (rule: T) => string): Omit<RowCheck, 'field'>[] {
  return rule === undefined ? [] : [{ reason, sql: toSql(rule) }];
}

function numberChecks(schema: FieldSchema, value: string): Omit<RowCheck, 'field'>[] {
  const { minimum, maximum } = findBounds(schema);
  return [
    ...checkBy(schema.enum, 'not_allowed', (allowed) => `${value} NOT IN (${allowed.map(Number).join(', ')})`),
    ...checkBy(minimum, 'out_of_range', (least) => `${value} < ${least}`),
    ...checkBy(maximum, 'out_of_range', (most) => `${value} > ${most}`),
  ];
}

/** Lengths are in code points, as in JSON Schema. The bytes come first: a text of few bytes needs no count. */
function textChecks({ minLength, maxLength, enum: texts, pattern }: FieldSchema, value: string) {
  return [
    ...checkBy(minLength, 'bad_length', (least) => `length(${value}) < ${least}`),
    ...checkBy(maxLength, 'bad_length', (most) => `(strlen(${value}) > ${most} AND length(${value}) > ${most})`),
    ...checkBy(texts, 'not_allowed', (allowed) => `${value} NOT IN (${allowed.map(String).map(sqlText).join(', ')})`),
    ...checkBy(pattern, 'bad_pattern', (known) => `NOT regexp_matches(${value}, ${sqlText(known)})`),
  ];
}

/** Builds the SQL of a field from the columns of its cell, cast and value. Throws for other column types. */
export function valueSql(name: string, schema: FieldSchema, cell: string, cast: string, kind: CellKind): ValueSql {
  const type = schema['x-column-type'];
  const decimal = /^DECIMAL\((\d+),(\d+)\)$/.exec(type);
  const asChecks = (found: readonly Omit<RowCheck, 'field'>[]): RowCheck[] =>
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
  // An empty text is not a value.
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

/** Lists as text: an array literal as exports write it (`['a','it\'s']`, with backslash escapes), or a JSON list. */

const item = String.raw`'(?:[^'\\]|\\.)*'`;
const literal = String.raw`(?s)\[\s*(?:${item}(?:\s*,\s*${item})*)?\s*\]`;

/**
 * SQL of the list of texts in a cell; NULL if invalid. Splits at double backslashes first, to unescape left to right.
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
