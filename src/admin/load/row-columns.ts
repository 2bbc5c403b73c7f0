import { isKeyOf } from '../../runtime/files/checksummed-json.ts';
import { listCountries } from '../../datasets/dictionaries.ts';
import type { RowField } from '../../datasets/row-fields.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import type { FileField, OwnField, RowCheck } from './file-fields.ts';
import { listSql, valueSql, type CellKind } from './value-sql.ts';

/** The fields of a country, in order of precedence, and their parts of a country code. */
const countryFields = { idCountry: 'id', idCountryISOAlpha2: 'alpha2', idCountryISONumeric: 'numeric' } as const;

/** SQL of the country fields of a row, filled from the one that it has. */
export interface CountrySql {
  readonly join: string;
  /** SELECT list of the values that `columns` need. */
  readonly selected: string;
  readonly columns: readonly { readonly column: string; readonly stored: string }[];
}

const countryNames = Object.keys(countryFields).filter((name) => isKeyOf(countryFields, name));

/** SQL of all countries by each of their codes; `said` is the name of the field and the code. */
function countriesSql(): string {
  const rows = listCountries().flatMap((country) => {
    const codes = countryNames.map((name) => country[countryFields[name]]);
    const values = codes.map((code) => (code === undefined ? 'NULL' : typeof code === 'string' ? sqlText(code) : code));
    return codes.flatMap((code, index) =>
      code === undefined ? [] : [`(${sqlText(`${countryNames[index]} ${code}`)}, ${values.join(', ')})`],
    );
  });
  return `(VALUES ${rows.join(', ')}) AS country (said, ${countryNames.join(', ')})`;
}

/** Fills the country fields from the one that a row has; its own values win. Undefined without such a field. */
function planCountry(
  fields: readonly RowField[],
  valueOf: (column: string) => string | undefined,
): CountrySql | undefined {
  const columns = countryNames.flatMap((name) => {
    const column = fields.find((field) => field.name === name)?.schema['x-column'];
    return column === undefined ? [] : [{ name, column, value: valueOf(column) }];
  });
  const countryTexts = columns.flatMap(({ name, value }) =>
    value === undefined ? [] : [`${sqlText(`${name} `)} || ${value}`],
  );
  if (countryTexts.length === 0) return undefined;
  return {
    join: `LEFT JOIN ${countriesSql()} ON country.said = coalesce(${countryTexts.join(', ')})`,
    selected: countryNames.map((name) => `country.${name} AS country_${name}`).join(', '),
    columns: columns.map(({ name, column, value }) => ({
      column,
      stored: value === undefined ? `country_${name}` : `coalesce(${value}, country_${name})`,
    })),
  };
}

/**
 * Maps the fields of a file to the columns of a row: values, checks and stored parts. Pure. Names: `t0` is the cell of
 * the first field, `q0` its cast, `v0` its value.
 */

export interface FileCell extends FileField {
  readonly sql: string;
  readonly kind: CellKind;
  /** More checks, on the columns of the cell and of its value. */
  readonly toChecks?: (cell: string, name: string, value: string) => readonly RowCheck[];
}

export interface RowColumn {
  readonly column: string;
  readonly stored: string;
  readonly text: string;
}

export interface RowColumns {
  /** Casts of cells, `... AS q0`; `values` read them. */
  readonly casts: readonly string[];
  /** `... AS v0`. */
  readonly values: readonly string[];
  readonly columns: readonly RowColumn[];
  readonly checks: readonly RowCheck[];
  /** Not part of the identity. */
  readonly country: CountrySql | undefined;
  /** Value columns of the fields without a column. */
  readonly own: Readonly<Partial<Record<OwnField, string>>>;
}

const ownSchemas = {
  tsEvent: { description: '', type: 'integer', minimum: 0, 'x-column': 'event_time', 'x-column-type': 'TIMESTAMPTZ' },
  idApp: { description: '', type: 'integer', minimum: 1, 'x-column': 'id_app', 'x-column-type': 'BIGINT' },
  eventId: { description: '', minLength: 1, maxLength: 255, 'x-column': 'event_id', 'x-column-type': 'VARCHAR' },
} as const;

function ownValueSql(
  own: OwnField,
  cell: string,
  cast: string,
  kind: CellKind,
): Pick<ReturnType<typeof valueSql>, 'cast' | 'value' | 'toChecks'> {
  switch (own) {
    case 'params.name':
    case 'params.value':
      return {
        value: kind === 'list' ? cell : listSql(cell),
        toChecks: (list, value) => [
          { reason: 'bad_list', field: own, sql: `(${list} IS NOT NULL AND ${value} IS NULL)` },
        ],
      };
    case 'SDKKey':
      return { value: `CAST(${cell} AS VARCHAR)`, toChecks: () => [] };
    default:
      return valueSql(own, ownSchemas[own], cell, cast, kind);
  }
}

/** Builds the map of parameters: distinct names, each with a value. NULL if a row has none. */
function paramsOf(names: string, values: string): { readonly part: RowColumn; readonly check: RowCheck } {
  const isOdd = [
    `coalesce(len(${names}), 0) <> coalesce(len(${values}), 0)`,
    `len(list_distinct(${names})) <> len(${names})`,
    `len(list_filter(${names}, lambda name: name IS NULL OR name = '')) > 0`,
    `len(list_filter(${values}, lambda item: item IS NULL)) > 0`,
  ];
  const ifAny = (sql: string): string => `CASE WHEN len(${names}) > 0 THEN ${sql} END`;
  return {
    part: {
      column: 'custom_event_params',
      stored: ifAny(`MAP(${names}, ${values})`),
      text: ifAny(`CAST(to_json(${names}) AS VARCHAR) || CAST(to_json(${values}) AS VARCHAR)`),
    },
    check: { reason: 'bad_list', field: 'params.value', sql: `(${isOdd.join(' OR ')})` },
  };
}

interface Valued {
  readonly name: string;
  readonly column: string;
  readonly value: string;
  readonly stored: string;
  readonly fallback: number | undefined;
}

const toValued = ({ name, schema }: RowField, value: string, stored: string): Valued => ({
  name,
  column: schema['x-column'],
  value,
  stored,
  fallback: schema.default,
});

/** Merges fields that share a column: they must be equal, or all but one empty. */
function mergeColumns(valued: readonly Valued[]) {
  const byColumn = new Map<string, Valued[]>();
  for (const one of valued) byColumn.set(one.column, [...(byColumn.get(one.column) ?? []), one]);
  const rowChecks: RowCheck[] = [];
  const rowColumns = [...byColumn].map(([column, all]): RowColumn => {
    const [first, ...others] = all;
    for (const other of others)
      rowChecks.push({ reason: 'conflict', field: other.name, sql: `${first?.value ?? 'NULL'} <> ${other.value}` });
    const fallback = all.find((one) => one.fallback !== undefined)?.fallback;
    const pick = (values: readonly string[]): string =>
      values.length === 1 && fallback === undefined
        ? values.join('')
        : `coalesce(${[...values, ...(fallback === undefined ? [] : [String(fallback)])].join(', ')})`;
    return {
      column,
      stored: pick(all.map((one) => one.stored)),
      text: `CAST(${pick(all.map((one) => one.value))} AS VARCHAR)`,
    };
  });
  return { parts: rowColumns, checks: rowChecks };
}

/** Builds the SQL that turns the cells of a file into the columns of a table, and its checks. */
export function planRowColumns(dataset: Dataset, cells: readonly FileCell[]): RowColumns {
  const rowChecks: RowCheck[] = [];
  const casts: string[] = [];
  const values: string[] = [];
  const valued: Valued[] = [];
  const own: Partial<Record<OwnField, string>> = {};
  cells.forEach(({ use, kind, toChecks }, index) => {
    const [cell, cast, value] = [`t${index}`, `q${index}`, `v${index}`];
    const name = 'field' in use ? use.field.name : 'own' in use ? use.own : use.foreign;
    rowChecks.push(...(toChecks?.(cell, name, value) ?? []));
    const add = ({ cast: castSql, value: sql, toChecks: check }: ReturnType<typeof ownValueSql>): void => {
      if (castSql !== undefined) casts.push(`${castSql} AS ${cast}`);
      values.push(`${sql} AS ${value}`);
      rowChecks.push(...check(cell, value));
    };
    if ('foreign' in use) rowChecks.push({ reason: 'foreign_field', field: name, sql: `${cell} IS NOT NULL` });
    else if ('own' in use) {
      add(ownValueSql(use.own, cell, cast, kind));
      own[use.own] = value;
    } else {
      const found = valueSql(name, use.field.schema, cell, cast, kind);
      add(found);
      valued.push(toValued(use.field, value, found.toStored(value)));
    }
  });
  // A default applies to every row, also if the file lacks the field.
  const present = new Set(valued.map(({ column }) => column));
  for (const field of dataset.fields)
    if (field.schema.default !== undefined && !present.has(field.schema['x-column']))
      valued.push(toValued(field, `CAST(NULL AS ${field.schema['x-column-type']})`, 'NULL'));
  const merged = mergeColumns(valued);
  const [names, items] = [own['params.name'], own['params.value']];
  const params = names === undefined || items === undefined ? undefined : paramsOf(names, items);
  const storedOf = (column: string) => merged.parts.find((rowColumn) => rowColumn.column === column)?.stored;
  return {
    casts,
    values,
    country: planCountry(dataset.fields, storedOf),
    columns: [...(params === undefined ? [] : [params.part]), ...merged.parts],
    checks: [...rowChecks, ...merged.checks, ...(params === undefined ? [] : [params.check])],
    own,
  };
}
