import { readPlain } from '../../runtime/files/input-file.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList, sqlName, sqlText } from '../../lake/sql/literals.ts';
import { findHeader, type CsvHeader } from './csv-records.ts';
import type { FileField, RefusedFile, Check } from './file-fields.ts';
import { damagedParquet, maxLineBytes, type SourceFile } from './recognize.ts';
import type { FileCell } from './row-parts.ts';
import type { CellKind } from './value-sql.ts';

/** A relation of a file's rows. */
interface Relation {
  /** For FROM. */
  readonly from: string;
  readonly cells: readonly FileCell[];
  /** Columns that go through as they are. */
  readonly through: readonly string[];
  /** What a row must be at all, on those columns. */
  readonly checks: readonly Check[];
}

/** A file whose fields are known. */
export interface Source extends SourceFile {
  readonly names: readonly string[];
  /** Of CSV. */
  readonly header?: CsvHeader;
  /**
   * Its rows. With places: every row in its order, with `place` (its number, from 1) and `raw` (the row as JSON); lines
   * that are no row are in the engine's table of rejected ones. Without, the fastest way: such a line is an error.
   */
  relation(fields: readonly FileField[], hasPlaces: boolean): Relation;
}

/** Lines have any length that is allowed, and what is no line is put aside. */
const anyLines = `, max_line_size = ${maxLineBytes}, store_rejects = true, rejects_limit = 0`;
const placesOf = (hasPlaces: boolean): string[] => (hasPlaces ? ['place', 'raw'] : []);
const compressionSql = ({ gzip }: SourceFile): string => `compression = ${sqlText(gzip ? 'gzip' : 'none')}`;

/** CSV: columns are read by their place, all as text. */
async function openCsv(source: SourceFile): Promise<Source | RefusedFile> {
  const header = await findHeader(readPlain(source.file, source.gzip));
  if (header === undefined)
    return {
      reason: 'bad_header',
      detail:
        'the first line of a CSV file is its header: names of fields with commas, semicolons or tabs between, each once.',
    };
  const { names, delimiter, records } = header;
  const columns = names.map((_, index) => `c${index}: 'VARCHAR'`).join(', ');
  // Without places, lines have the engine's own bound: it makes a piece of work for one thread out of 16 of the longest.
  const read = (hasPlaces: boolean): string =>
    `read_csv(${sqlList([source.file])}, columns = {${columns}}, header = true, skip = ${records - 1}, auto_detect = false, delim = ${sqlText(delimiter)}, quote = '"', escape = '"', ${compressionSql(source)}${hasPlaces ? anyLines : ''})`;
  const raw = `to_json({${names.map((name, index) => `${sqlText(name)}: c${index}`).join(', ')}})`;
  return {
    ...source,
    names,
    header,
    relation: (fields, hasPlaces) => ({
      from: hasPlaces
        ? `(SELECT *, ${raw} AS raw, row_number() OVER () AS place FROM ${read(true)}) AS r`
        : `${read(false)} AS r`,
      // An empty cell has no value to the engine, with quotes or without.
      cells: fields.map((field) => ({ ...field, kind: 'text', sql: `c${names.indexOf(field.name)}` })),
      through: placesOf(hasPlaces),
      checks: [],
    }),
  };
}

/** The lines of a file of JSON lines, each a row of one text; a blank one is NULL. */
const linesSql = (source: SourceFile, hasPlaces: boolean): string =>
  `read_csv(${sqlList([source.file])}, columns = {line: 'VARCHAR'}, header = false, auto_detect = false, delim = chr(1), quote = '', escape = '', ${compressionSql(source)}${hasPlaces ? anyLines : ''})`;

// CASE, since the parts of an AND are tried in any order, and the type of what is no JSON is an error.
const isObject = `(CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END)`;

/**
 * A line whose members are in reverse order where a name is there twice: the engine takes the first, and the last is to
 * count, as in imports.
 */
const lastWins = `(CASE WHEN len(json_keys(line)) = len(list_distinct(json_keys(line))) THEN line ELSE '{' ||
  array_to_string(list_reverse(list_transform(list_zip(json_keys(line), json_extract(line, '$.*')),
    lambda member: CAST(to_json(member[1]) AS VARCHAR) || ':' || CAST(member[2] AS VARCHAR))), ',') || '}' END)`;

const isText = ({ use }: FileField): boolean =>
  ('field' in use && use.field.schema['x-column-type'] === 'VARCHAR') ||
  ('own' in use && (use.own === 'eventId' || use.own === 'SDKKey'));

/**
 * Amounts of more digits than a double keeps: the engine reads numbers of JSON as such, and would round them in silence.
 * Texts are exact, whatever their length. Undefined for other fields.
 */
function findRounding({ use }: FileField): ((number: string, text: string) => string) | undefined {
  const scale = 'field' in use ? findScale(use.field.schema['x-column-type']) : undefined;
  if (scale === undefined || scale === 0) return undefined;
  return (number, text) => {
    const digits = `regexp_replace(${text}, '\\.0$|[-.]', '', 'g')`;
    return `(abs(${number}) >= ${10 ** (doubleDigits - scale)} AND strlen(${digits}) > ${doubleDigits})`;
  };
}

/** Digits of a decimal number that a double keeps, whichever they are. */
const doubleDigits = 15;

/** JSON lines: only the fields that are wanted are read. What no line has is not looked for in each. */
async function openNdjson(duckdb: Duckdb, source: SourceFile): Promise<Source> {
  const keys = `(SELECT DISTINCT TRY(json_keys(line)) AS keys FROM ${linesSql(source, true)} WHERE trim(line) <> '')`;
  const [found] = await duckdb.rows(
    `SELECT list_sort(list_distinct(flatten(list(keys)))) AS names, bool_or(keys IS NULL OR len(keys) = 0) AS has_others, bool_or(len(keys) <> len(list_distinct(keys))) AS has_twice FROM ${keys}`,
  );
  const names = (found?.['names'] ?? []) as readonly string[];
  // An empty object looks as what is none.
  const isRow = found?.['has_others'] === false ? 'true' : isObject;
  const row = found?.['has_twice'] === true ? lastWins : 'line';
  return {
    ...source,
    names,
    relation(fields, hasPlaces) {
      const wanted = fields.filter(({ name }) => names.includes(name));
      // An object has at least one member to the engine.
      const members = wanted.map(({ name }) => [name, 'JSON']);
      const structure = JSON.stringify(Object.fromEntries(members.length === 0 ? [['none', 'JSON']] : members));
      const place = hasPlaces ? ', row_number() OVER () AS place' : '';
      return {
        from: `(SELECT * FROM (SELECT line AS raw${place}, CASE WHEN ${isRow} THEN json_transform(${row}, ${sqlText(structure)}) END AS o, ${isRow} AS is_object FROM ${linesSql(source, hasPlaces)}) WHERE trim(raw) <> '') AS r`,
        cells: wanted.map((field) => {
          const sql = jsonTextSql(`r.o.${sqlName(field.name)}`, isText(field), findRounding(field));
          return { ...field, kind: 'text', sql, ...(isText(field) ? { toChecks: notTextChecks } : {}) };
        }),
        through: [...placesOf(hasPlaces), 'is_object'],
        checks: [{ reason: 'bad_json', sql: 'NOT is_object' }],
      };
    },
  };
}

/** Stands for a value of JSON that is neither a text nor a number: no text has it. */
const notText = '\u0001\u0001no text\u0001\u0001';

const notTextChecks = (text: string, field: string): Check[] => [
  { reason: 'bad_type', field, sql: `starts_with(${text}, ${sqlText(notText)})` },
];

/**
 * The text of a value of JSON: where a text is wanted, a list is none; else it stays JSON for whoever reads lists.
 * `rounding`: a number of which that is true is none.
 */
function jsonTextSql(value: string, wantsText: boolean, rounding?: ReturnType<typeof findRounding>): string {
  const json = `CAST(${value} AS VARCHAR)`;
  const rounded =
    rounding === undefined ? '' : `WHEN ${rounding(`TRY_CAST(${json} AS DOUBLE)`, json)} THEN ${sqlText(notText)} `;
  const list = wantsText ? ` OR starts_with(${json}, '[')` : '';
  return `CASE WHEN ${value} IS NULL OR ${json} = 'null' THEN NULL
    WHEN starts_with(${json}, '"') THEN nullif(${value} ->> '$', '')
    WHEN starts_with(${json}, '{') OR ${json} IN ('true', 'false')${list} THEN ${sqlText(notText)} ${rounded}ELSE ${json} END`;
}

/** Digits after the point of a decimal type. */
function findScale(type: string): number | undefined {
  const [, scale] = /^DECIMAL\(\d+,(\d+)\)$/.exec(type) ?? [];
  return scale === undefined ? undefined : Number(scale);
}

/** A decimal whose field keeps all its digits after the point. */
function isKeptDecimal(type: string, { use }: FileField): boolean {
  const [has, keeps] = [findScale(type), findScale('field' in use ? use.field.schema['x-column-type'] : '')];
  return has !== undefined && keeps !== undefined && has <= keeps;
}

/** The type of a Parquet file's column: texts without a string annotation, as some writers leave them, are decoded. */
interface ParquetType {
  readonly type: string;
  readonly isBlob: boolean;
}

/** Bytes as UTF-8; what is none is marked by `notText`. */
const decodeSql = (bytes: string): string =>
  `coalesce(TRY(decode(${bytes})), ${sqlText(notText)} || CAST(${bytes} AS VARCHAR))`;

/** The kind of a Parquet file's column, the cell out of it, and what makes that bad whatever its field is. */
function parquetCell(column: string, { type, isBlob }: ParquetType, field: FileField): FileCell {
  const isTime =
    'field' in field.use
      ? field.use.field.schema['x-column-type'] === 'TIMESTAMPTZ'
      : 'own' in field.use && field.use.own === 'tsEvent';
  const isParams = 'own' in field.use && field.use.own.startsWith('params.');
  const toCell = (kind: CellKind, sql: string, isBad?: (cell: string) => string): FileCell => ({
    ...field,
    kind,
    sql,
    ...(isBad === undefined
      ? {}
      : { toChecks: (cell, name) => [{ reason: 'bad_type', field: name, sql: isBad(cell) }] }),
  });
  if (/^U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$/.test(type) || isKeptDecimal(type, field)) return toCell('number', column);
  if (type === 'BOOLEAN') return toCell('number', `CAST(${column} AS TINYINT)`);
  if (isTime && /^(DATE|TIMESTAMP)/.test(type))
    return toCell('number', `epoch_us(CAST(${column} AS TIMESTAMPTZ)) // 1000000`);
  if (type === 'VARCHAR[]' && isParams)
    return toCell(
      'list',
      column,
      isBlob ? (cell) => `${cell}::VARCHAR LIKE '%' || ${sqlText(notText)} || '%'` : undefined,
    );
  const text = `nullif(CAST(${column} AS VARCHAR), '')`;
  // A list or a struct is no text, as in JSON lines.
  if (/\]$|^(?:STRUCT|MAP|UNION)\(/.test(type)) return toCell('text', text, (cell) => `${cell} IS NOT NULL`);
  return toCell('text', text, isBlob ? (cell) => `starts_with(${cell}, ${sqlText(notText)})` : undefined);
}

/** Parquet: by its own types. */
async function openParquet(duckdb: Duckdb, source: SourceFile): Promise<Source | RefusedFile> {
  const read = `read_parquet(${sqlList([source.file])}, file_row_number = true, hive_partitioning = false)`;
  let described: readonly Readonly<Record<string, unknown>>[];
  try {
    described = await duckdb.rows(`DESCRIBE SELECT * EXCLUDE (file_row_number) FROM ${read}`);
  } catch {
    return damagedParquet;
  }
  const types = new Map(
    described.map((row): [string, ParquetType] => {
      const [name, type] = [String(row['column_name']), String(row['column_type'])];
      return [name, { type: type.replace('BLOB', 'VARCHAR'), isBlob: type === 'BLOB' || type === 'BLOB[]' }];
    }),
  );
  const decoded = [...types].flatMap(([name, { type, isBlob }]) => {
    const column = sqlName(name);
    const text =
      type === 'VARCHAR' ? decodeSql(column) : `list_transform(${column}, lambda bytes: ${decodeSql('bytes')})`;
    return isBlob ? [`${text} AS ${column}`] : [];
  });
  const rows = decoded.length === 0 ? read : `(SELECT * REPLACE (${decoded.join(', ')}) FROM ${read})`;
  const raw = [...types.keys()].map((name) => `${sqlText(name)}: q.${sqlName(name)}`).join(', ');
  return {
    ...source,
    names: [...types.keys()],
    relation: (fields, hasPlaces) => ({
      from: hasPlaces
        ? `(SELECT q.*, q.file_row_number + 1 AS place, to_json({${raw}}) AS raw FROM ${rows} AS q) AS r`
        : `${rows} AS r`,
      cells: fields.flatMap((field) => {
        const type = types.get(field.name);
        return type === undefined ? [] : [parquetCell(`r.${sqlName(field.name)}`, type, field)];
      }),
      through: placesOf(hasPlaces),
      checks: [],
    }),
  };
}

/** Opens a file: finds the names of its fields. Errors: those of the engine. */
export function openSource(duckdb: Duckdb, source: SourceFile): Promise<Source | RefusedFile> {
  if (source.format === 'csv') return openCsv(source);
  return source.format === 'ndjson' ? openNdjson(duckdb, source) : openParquet(duckdb, source);
}
