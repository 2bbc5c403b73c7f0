import { readPlain } from '../../runtime/files/input-file.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList, sqlName, sqlText } from '../../lake/sql/literals.ts';
import { findHeader, type CsvHeader } from './csv-records.ts';
import type { FileField, RejectedFile, RowCheck } from './file-fields.ts';
import { damagedParquet, maxLineBytes, type SourceFile } from './recognize.ts';
import type { FileCell } from './row-columns.ts';
import type { Relation } from './row-sql.ts';
import type { CellKind } from './value-sql.ts';

export interface LoadSource extends SourceFile {
  readonly names: readonly string[];
  readonly header?: CsvHeader;
  /**
   * Its rows. With places: rows in order, with `place` (from 1) and `raw` (the row as JSON); rejected lines are in the
   * engine's table. Without, which is faster, a rejected line is an error.
   */
  relation(fields: readonly FileField[], hasPlaces: boolean): Relation;
}

/** Accepts lines of any allowed length, and records rejected lines. */
const anyLines = `, max_line_size = ${maxLineBytes}, store_rejects = true, rejects_limit = 0`;
const placesOf = (hasPlaces: boolean): string[] => (hasPlaces ? ['place', 'raw'] : []);
const compressionSql = ({ gzip }: SourceFile): string => `compression = ${sqlText(gzip ? 'gzip' : 'none')}`;

async function openCsv(source: SourceFile): Promise<LoadSource | RejectedFile> {
  const header = await findHeader(readPlain(source.file, source.gzip));
  if (header === undefined)
    return {
      reason: 'bad_header',
      detail:
        'the first line of a CSV file must be a header: distinct names of fields, separated by commas, semicolons or tabs.',
    };
  const { names, delimiter, records } = header;
  const columns = names.map((_, index) => `c${index}: 'VARCHAR'`).join(', ');
  // Without places, the engine's own line limit holds: it derives from it the size of a thread's work.
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
      // The engine reads an empty cell as NULL, quoted or not.
      cells: fields.map((field) => ({ ...field, kind: 'text', sql: `c${names.indexOf(field.name)}` })),
      through: placesOf(hasPlaces),
      checks: [],
    }),
  };
}

const linesSql = (source: SourceFile, hasPlaces: boolean): string =>
  `read_csv(${sqlList([source.file])}, columns = {line: 'VARCHAR'}, header = false, auto_detect = false, delim = chr(1), quote = '', escape = '', ${compressionSql(source)}${hasPlaces ? anyLines : ''})`;

// A CASE, because AND may evaluate the type of text that is not JSON, which is an error.
const isObject = `(CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END)`;

/** Reverses the members of a line with a repeated name: the engine takes the first, imports the last. */
const lastWins = `(CASE WHEN len(json_keys(line)) = len(list_distinct(json_keys(line))) THEN line ELSE '{' ||
  array_to_string(list_reverse(list_transform(list_zip(json_keys(line), json_extract(line, '$.*')),
    lambda member: CAST(to_json(member[1]) AS VARCHAR) || ':' || CAST(member[2] AS VARCHAR))), ',') || '}' END)`;

const isText = ({ use }: FileField): boolean =>
  ('field' in use && use.field.schema['x-column-type'] === 'VARCHAR') ||
  ('own' in use && (use.own === 'eventId' || use.own === 'SDKKey'));

/** Returns a condition for numbers of more digits than a double keeps, which the engine would round silently. */
function findRounding({ use }: FileField): ((number: string, text: string) => string) | undefined {
  const scale = 'field' in use ? findScale(use.field.schema['x-column-type']) : undefined;
  if (scale === undefined || scale === 0) return undefined;
  return (number, text) => {
    const digits = `regexp_replace(${text}, '\\.0$|[-.]', '', 'g')`;
    return `(abs(${number}) >= ${10 ** (doubleDigits - scale)} AND strlen(${digits}) > ${doubleDigits})`;
  };
}

const doubleDigits = 15;

async function openNdjson(duckdb: Duckdb, source: SourceFile): Promise<LoadSource> {
  const keys = `(SELECT DISTINCT TRY(json_keys(line)) AS keys FROM ${linesSql(source, true)} WHERE trim(line) <> '')`;
  const [found] = await duckdb.rows(
    `SELECT list_sort(list_distinct(flatten(list(keys)))) AS names, bool_or(keys IS NULL OR len(keys) = 0) AS has_others, bool_or(len(keys) <> len(list_distinct(keys))) AS has_twice FROM ${keys}`,
  );
  const names = (found?.['names'] ?? []) as readonly string[];
  // An empty object looks like a line that is not an object.
  const isRow = found?.['has_others'] === false ? 'true' : isObject;
  const row = found?.['has_twice'] === true ? lastWins : 'line';
  return {
    ...source,
    names,
    relation(fields, hasPlaces) {
      const wanted = fields.filter(({ name }) => names.includes(name));
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

/** Marks a JSON value that is neither text nor number; no text contains it. */
const notText = '\u0001\u0001no text\u0001\u0001';

const notTextChecks = (text: string, field: string): RowCheck[] => [
  { reason: 'bad_type', field, sql: `starts_with(${text}, ${sqlText(notText)})` },
];

/** SQL of the text of a JSON value. `wantsText` excludes lists. A number that meets `rounding` is invalid. */
function jsonTextSql(value: string, wantsText: boolean, rounding?: ReturnType<typeof findRounding>): string {
  const json = `CAST(${value} AS VARCHAR)`;
  const rounded =
    rounding === undefined ? '' : `WHEN ${rounding(`TRY_CAST(${json} AS DOUBLE)`, json)} THEN ${sqlText(notText)} `;
  const list = wantsText ? ` OR starts_with(${json}, '[')` : '';
  return `CASE WHEN ${value} IS NULL OR ${json} = 'null' THEN NULL
    WHEN starts_with(${json}, '"') THEN nullif(${value} ->> '$', '')
    WHEN starts_with(${json}, '{') OR ${json} IN ('true', 'false')${list} THEN ${sqlText(notText)} ${rounded}ELSE ${json} END`;
}

function findScale(type: string): number | undefined {
  const [, scale] = /^DECIMAL\(\d+,(\d+)\)$/.exec(type) ?? [];
  return scale === undefined ? undefined : Number(scale);
}

function isKeptDecimal(type: string, { use }: FileField): boolean {
  const [has, keeps] = [findScale(type), findScale('field' in use ? use.field.schema['x-column-type'] : '')];
  return has !== undefined && keeps !== undefined && has <= keeps;
}

/** Type of a Parquet column. Texts without a string annotation are decoded. */
interface ParquetType {
  readonly type: string;
  readonly isBlob: boolean;
}

/** SQL that decodes UTF-8; invalid bytes are marked by `notText`. */
const decodeSql = (bytes: string): string =>
  `coalesce(TRY(decode(${bytes})), ${sqlText(notText)} || CAST(${bytes} AS VARCHAR))`;

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
  // A list or a struct is not a text, as in JSON lines.
  if (/\]$|^(?:STRUCT|MAP|UNION)\(/.test(type)) return toCell('text', text, (cell) => `${cell} IS NOT NULL`);
  return toCell('text', text, isBlob ? (cell) => `starts_with(${cell}, ${sqlText(notText)})` : undefined);
}

async function openParquet(duckdb: Duckdb, source: SourceFile): Promise<LoadSource | RejectedFile> {
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

export function openSource(duckdb: Duckdb, source: SourceFile): Promise<LoadSource | RejectedFile> {
  if (source.format === 'csv') return openCsv(source);
  return source.format === 'ndjson' ? openNdjson(duckdb, source) : openParquet(duckdb, source);
}
