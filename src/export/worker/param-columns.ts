import { typedSql, typeFamilies, typeOfSql, type ParameterType } from '../../lake/catalogue/parameter-types.ts';
import { fileFormats } from '../../datasets/file-formats.ts';
import { nameEach } from '../../lake/catalogue/views-sql.ts';
import { paramColumnLimit, type ExportSpec } from '../jobs/export-spec.ts';
import type { BoundValue, ExportStatement } from './export-query.ts';
import { hasDecimalComma, spreadsheetCell } from './spreadsheet-cells.ts';
import { LimitError } from './watch-statement.ts';

/**
 * One column per parameter of the rows of a request (`columns=params`). The columns are found in the rows themselves,
 * so that they depend on the request and the version of the lake alone, and no parameter is left out. Types are those
 * of the catalogue, but of all values: a parameter with another value is text, as are decimals with long integers.
 */
export interface ParamColumn {
  readonly param: string;
  /** Name of the column, unique ignoring case. */
  readonly name: string;
  readonly type: Exclude<ParameterType, 'empty'>;
}

/** Names of the selectors of all parameters, which a column cannot have. */
const takenNames = ['params.name', 'params.value'];

/** An integer that a DOUBLE may round. */
const tooLongSql = `regexp_full_match(entry.value, '-?[0-9]{16,}')`;

/** Reports whether the types of parameters matter for a request. CSV has the texts as they were imported. */
const needsParamTypes = ({ format = 'csv', dialect }: ExportSpec): boolean =>
  format !== 'csv' || hasDecimalComma(dialect);

/**
 * Builds the statement that lists the parameters of rows: `param`, `types`, of which each value has one, and `isTooLong`
 * if a column of decimals would round an integer.
 */
export function listParamsStatement(
  from: string,
  values: ExportStatement['values'],
  request: ExportSpec,
): ExportStatement {
  const { format = 'csv' } = request;
  const types = needsParamTypes(request) ? `list(DISTINCT ${typeOfSql('entry.value')})` : "['text']";
  const isTooLong = fileFormats[format].cells === 'typed' ? `bool_or(${tooLongSql})` : 'false';
  return {
    sql: `SELECT entry.key AS param, ${types} AS types, ${isTooLong} AS "isTooLong"
      FROM (SELECT unnest(map_entries(events.custom_event_params)) AS entry ${from})
      GROUP BY entry.key LIMIT ${paramColumnLimit + 1}`,
    values,
  };
}

/** Returns the narrowest type of all values. */
function commonType(types: readonly string[]): ParamColumn['type'] {
  const filled = types.filter((type) => type !== 'empty');
  const family = typeFamilies.find((members) => filled.every((type) => members.some((member) => member === type)));
  return family?.toReversed().find((type) => filled.includes(type)) ?? 'text';
}

/** Names the columns of the parameters that `listParamsStatement` found. Error: `LimitError` if there are too many. */
export function toParamColumns(rows: readonly Readonly<Record<string, unknown>>[]): readonly ParamColumn[] {
  if (rows.length > paramColumnLimit)
    throw new LimitError(
      `The rows have more than ${paramColumnLimit} parameters, each of which columns=params would make a column. Name fewer events with eventName, or use the selectors params.name and params.value`,
    );
  const types = new Map(
    rows.map(({ param, types: found, isTooLong }) => {
      const type = commonType(Array.isArray(found) ? found.map(String) : []);
      return [String(param), type === 'decimal' && isTooLong === true ? 'text' : type] as const;
    }),
  );
  return nameEach([...types.keys()], (param) => `params.${param}`, takenNames).map(([param, name]) => ({
    param,
    name,
    type: types.get(param) ?? 'text',
  }));
}

/** The cells that expressions are built for. */
interface ParamCells {
  readonly request: ExportSpec;
  readonly values: Record<string, BoundValue>;
  readonly cells: 'text' | 'typed';
}

/** Builds the value of a column in the first step of a result; adds the name of its parameter to `values`. */
export function paramExpression(
  { param, type }: ParamColumn,
  index: number,
  { request, values, cells }: ParamCells,
): string {
  const name = `param_${index}`;
  values[name] = param;
  const value = `map_extract(events.custom_event_params, $${name})[1]`;
  const { dialect, format } = request;
  // JSON has no dates: they stay as they were imported.
  const isAsImported = type === 'text' || (format === 'jsonl' && (type === 'date' || type === 'time'));
  if (cells === 'typed') return isAsImported ? value : typedSql(value, type);
  // The text of an integer or a decimal has at most one full stop.
  return dialect === undefined ? value : spreadsheetCell(value, type === 'decimal' ? 'decimal' : 'text', dialect);
}
