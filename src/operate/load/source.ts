import { readPlain } from '../../runtime/files/input-file.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList, sqlName, sqlText } from '../../lake/sql/literals.ts';
import type { Check } from './bad-rows.ts';
import { findHeader, type CsvHeader } from './csv-records.ts';
import type { FileField, RefusedFile } from './file-fields.ts';
import { damagedParquet, maxLineBytes, type SourceFile } from './recognize.ts';
import type { FileCell } from './row-parts.ts';
import type { CellKind } from './value-sql.ts';

/** A relation of a file's rows. */
export interface Relation {
  /** For FROM. */
  readonly from: string;
  readonly cells: readonly FileCell[];
  /** Columns that go through as they are. */
  readonly through: readonly string[];
  /** What a row must be at all, on those columns. */
  readonly checks: readonly Check[];
}

/**
 * A file whose fields are known. `strict`: the fastest way to read it, which ends in an error where a line is no row.
 * `lenient`: every row in its order, with `place` (its number, from 1) and `raw` (the row as JSON); lines that are no
 * row are in the engine's table of rejected ones.
 */
export interface Source extends SourceFile {
  readonly names: readonly string[];
  /** Of CSV. */
  readonly header?: CsvHeader;
  strict(fields: readonly FileField[]): Relation;
  lenient(fields: readonly FileField[]): Relation;
}

/** A file of which only the fastest way to read is known. */
export type StrictSource = Pick<Source, 'names' | 'strict'>;

const compression = (gzip: boolean): string => `compression = ${sqlText(gzip ? 'gzip' : 'none')}`;
/** The engine's reader of JSON has a name of its own for none. */
const jsonCompression = (gzip: boolean): string => `compression = ${sqlText(gzip ? 'gzip' : 'uncompressed')}`;
const strictly = (from: string, cells: readonly FileCell[]): Relation => ({ from, cells, through: [], checks: [] });
const inPlace = (from: string, cells: readonly FileCell[]): Relation => ({
  from,
  cells,
  through: ['place', 'raw'],
  checks: [],
});
const orNone = (cell: string): string => `nullif(${cell}, '')`;

function toTextCells(fields: readonly FileField[], toSql: (field: FileField) => string): FileCell[] {
  return fields.map((field) => ({ ...field, kind: 'text', sql: toSql(field) }));
}

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
  // Strictly, lines have the engine's own bound: it makes a piece of work for one thread out of 16 of the longest.
  const read = (more: string): string =>
    `read_csv(${sqlList([source.file])}, columns = {${columns}}, header = true, skip = ${records - 1}, auto_detect = false, delim = ${sqlText(delimiter)}, quote = '"', escape = '"', ${compression(source.gzip)}${more})`;
  const cells = (fields: readonly FileField[]): FileCell[] =>
    // An empty cell has no value to the engine, with quotes or without.
    toTextCells(fields, ({ name }) => `c${names.indexOf(name)}`);
  const raw = `to_json({${names.map((name, index) => `${sqlText(name)}: c${index}`).join(', ')}})`;
  return {
    ...source,
    names,
    header,
    strict: (fields) => strictly(`${read('')} AS r`, cells(fields)),
    lenient: (fields) =>
      inPlace(
        `(SELECT *, ${raw} AS raw, row_number() OVER () AS place FROM ${read(`, max_line_size = ${maxLineBytes}, store_rejects = true, rejects_limit = 0`)}) AS r`,
        cells(fields),
      ),
  };
}

/** Lines have any length that is allowed, and what is no line is put aside. */
const anyLines = `, max_line_size = ${maxLineBytes}, store_rejects = true, rejects_limit = 0`;

/** The lines of a file of JSON lines, each a row of one text; a blank one is NULL. */
const linesSql = ({ file, gzip }: SourceFile, more = anyLines): string =>
  `read_csv(${sqlList([file])}, columns = {line: 'VARCHAR'}, header = false, auto_detect = false, delim = chr(1), quote = '', escape = '', ${compression(gzip)}${more})`;

/** The lines of a file of JSON lines, each an object, or an error. */
const objectsSql = ({ file, gzip }: SourceFile): string =>
  `read_ndjson_objects(${sqlList([file])}, maximum_object_size = ${maxLineBytes}, ${jsonCompression(gzip)})`;

// CASE, since the parts of an AND are tried in any order, and the type of what is no JSON is an error.
const isObject = `(CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END)`;

/**
 * A line whose members are in reverse order where a name is there twice: the engine takes the first, and the last is to
 * count, as in imports.
 */
const lastWins = `(CASE WHEN len(json_keys(line)) = len(list_distinct(json_keys(line))) THEN line ELSE '{' ||
  array_to_string(list_reverse(list_transform(list_zip(json_keys(line), json_extract(line, '$.*')),
    lambda member: CAST(to_json(member[1]) AS VARCHAR) || ':' || CAST(member[2] AS VARCHAR))), ',') || '}' END)`;

/**
 * A text that JSON may have written without quotes; the strict way does not see those. Ranges for the first character,
 * which cost a third of what `starts_with` does; most texts are past the first.
 */
const mayBeUnquoted = (cell: string): string =>
  `(${cell} >= '[' AND (${cell} < '\\' OR (${cell} >= '{' AND ${cell} < '|') OR ${cell} = 'true' OR ${cell} = 'false'))`;

const isText = ({ use }: FileField): boolean =>
  ('field' in use && use.field.schema['x-column-type'] === 'VARCHAR') ||
  ('own' in use && (use.own === 'eventId' || use.own === 'SDKKey'));

/** A field whose column has numbers: an empty text is no value of it (value-sql.ts), and need not be taken out. */
const isNumber = ({ use }: FileField): boolean => 'field' in use && use.field.schema['x-column-type'] !== 'VARCHAR';

/**
 * Amounts of more digits than a double keeps: the engine reads numbers of JSON as such, and would round them in silence.
 * Texts are exact, whatever their length: the lenient way sees which it is. Undefined for other fields.
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

/** So many first lines show how the objects of most files look, and so many looks are compared with. */
const [shapeLines, shapes] = [1000, 4];

/** The names of all objects. Most look as one of the first, which is faster to compare than to collect each name. */
async function listObjectKeys(duckdb: Duckdb, objects: string): Promise<readonly string[]> {
  const first = await duckdb.rows(
    `SELECT keys FROM (SELECT json_keys(json) AS keys FROM ${objects} LIMIT ${shapeLines}) WHERE len(keys) > 0
     GROUP BY keys ORDER BY count(*) DESC LIMIT ${shapes}`,
  );
  const known = first.map((row) => row['keys'] as readonly string[]);
  const others = known.map((keys) => `keys <> ${sqlList(keys)}`).join(' AND ') || 'true';
  const found = await duckdb.rows(
    `SELECT DISTINCT unnest(keys) AS name FROM (SELECT json_keys(json) AS keys FROM ${objects}) WHERE ${others}`,
  );
  return [...new Set([...known.flat(), ...found.map((row) => String(row['name']))])].toSorted();
}

/** The names of all lines that are objects, beside lines that are not. */
async function listLineKeys(duckdb: Duckdb, source: SourceFile): Promise<readonly string[]> {
  const found = await duckdb.rows(
    `SELECT DISTINCT unnest(json_keys(line)) AS name FROM (SELECT CASE WHEN ${isObject} THEN line END AS line FROM ${linesSql(source)}) ORDER BY name`,
  );
  return found.map((row) => String(row['name']));
}

/** The cells of a row of JSON as texts, where `toSql` names the column; what text and number have in common is checked. */
function toStrictCells(fields: readonly FileField[], toSql: (name: string) => string): FileCell[] {
  return toTextCells(fields, (field) => (isNumber(field) ? toSql(field.name) : orNone(toSql(field.name)))).map(
    (cell) => {
      const isRounded = findRounding(cell);
      if (!isText(cell) && isRounded === undefined) return cell;
      return {
        ...cell,
        toChecks: (text, field, value): Check[] => [
          { reason: 'bad_type', field, sql: isRounded?.(value, text) ?? mayBeUnquoted(text) },
        ],
      };
    },
  );
}

/**
 * Opens a file of JSON lines whose objects have all the same names, as far as the first show; undefined for any other
 * file. Read so, a line with other names is an error: to look for the names of all lines first would take an eighth of the
 * time of a load.
 */
export async function openUniform(duckdb: Duckdb, source: SourceFile): Promise<StrictSource | undefined> {
  if (source.format !== 'ndjson') return undefined;
  const first = await duckdb
    .rows(
      `SELECT DISTINCT list_sort(json_keys(json)) AS keys FROM (SELECT json FROM ${objectsSql(source)} LIMIT ${shapeLines})`,
    )
    .catch(() => []);
  const names = first.length === 1 ? (first[0]?.['keys'] as readonly string[]) : [];
  if (names.length === 0) return undefined;
  const structure = JSON.stringify(Object.fromEntries(names.map((name) => [name, 'VARCHAR'])));
  const rows = `(SELECT json_transform_strict(line, ${sqlText(structure)}) AS o FROM ${linesSql(source, '')}) AS r`;
  return {
    names,
    strict: (fields) =>
      strictly(
        rows,
        toStrictCells(fields, (name) => `r.o.${sqlName(name)}`),
      ),
  };
}

/** JSON lines: only the fields that are wanted are read. */
async function openNdjson(duckdb: Duckdb, source: SourceFile): Promise<Source | RefusedFile> {
  const objects = objectsSql(source);
  // Where a line is no JSON the engine refuses the file, and each line is looked at by itself.
  const names = await listObjectKeys(duckdb, objects).catch(() => listLineKeys(duckdb, source));
  const wanted = (fields: readonly FileField[]): FileField[] => fields.filter(({ name }) => names.includes(name));
  return {
    ...source,
    names,
    strict(fields) {
      const columns = wanted(fields).map(({ name }) => `${sqlText(name)}: 'VARCHAR'`);
      // A file has at least one column to the engine.
      const list = columns.length === 0 ? `none: 'VARCHAR'` : columns.join(', ');
      return strictly(
        `read_json(${sqlList([source.file])}, format = 'newline_delimited', maximum_object_size = ${maxLineBytes}, columns = {${list}}, ${jsonCompression(source.gzip)}) AS r`,
        toStrictCells(wanted(fields), (name) => `r.${sqlName(name)}`),
      );
    },
    lenient(fields) {
      // An object has at least one member to the engine.
      const members = wanted(fields).map(({ name }) => [name, 'JSON']);
      const structure = JSON.stringify(Object.fromEntries(members.length === 0 ? [['none', 'JSON']] : members));
      const rows = `(SELECT * FROM (SELECT line AS raw, row_number() OVER () AS place, CASE WHEN ${isObject} THEN json_transform(${lastWins}, ${sqlText(structure)}) END AS o, ${isObject} AS is_object FROM ${linesSql(source)}) WHERE trim(raw) <> '')`;
      const cells = wanted(fields).map((field): FileCell => {
        const sql = jsonTextSql(`r.o.${sqlName(field.name)}`, isText(field), findRounding(field));
        return { ...field, kind: 'text', sql, ...(isText(field) ? { toChecks: notTextChecks } : {}) };
      });
      return {
        from: `${rows} AS r`,
        cells,
        through: ['place', 'raw', 'is_object'],
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
  const text = orNone(`CAST(${column} AS VARCHAR)`);
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
  const cells = (fields: readonly FileField[]): FileCell[] =>
    fields.flatMap((field) => {
      const type = types.get(field.name);
      return type === undefined ? [] : [parquetCell(`r.${sqlName(field.name)}`, type, field)];
    });
  const raw = [...types.keys()].map((name) => `${sqlText(name)}: q.${sqlName(name)}`).join(', ');
  return {
    ...source,
    names: [...types.keys()],
    strict: (fields) => strictly(`${rows} AS r`, cells(fields)),
    lenient: (fields) =>
      inPlace(
        `(SELECT q.*, q.file_row_number + 1 AS place, to_json({${raw}}) AS raw FROM ${rows} AS q) AS r`,
        cells(fields),
      ),
  };
}

/** Opens a file: finds the names of its fields. Errors: those of the engine. */
export function openSource(duckdb: Duckdb, source: SourceFile): Promise<Source | RefusedFile> {
  if (source.format === 'csv') return openCsv(source);
  return source.format === 'ndjson' ? openNdjson(duckdb, source) : openParquet(duckdb, source);
}
