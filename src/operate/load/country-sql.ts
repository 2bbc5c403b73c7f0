import { listCountries } from '../../datasets/country-codes.ts';
import type { RowField } from '../../datasets/row-fields.ts';
import { sqlText } from '../../lake/sql/literals.ts';

/** The fields that say which country a row is of, in the order in which they are asked, and their parts of a code. */
const countryFields = { idCountry: 'id', idCountryISOAlpha2: 'alpha2', idCountryISONumeric: 'numeric' } as const;
type CountryField = keyof typeof countryFields;

/** What a row that names a country by one of its fields has in the others. */
export interface CountrySql {
  /** Joins the country of a row, `country`. */
  readonly join: string;
  /** The columns of it that `columns` need, for SELECT. */
  readonly selected: string;
  readonly columns: readonly { readonly column: string; readonly stored: string }[];
}

const names = Object.keys(countryFields) as CountryField[];

/** The countries by each of their codes, which `said` has with the name of its field. */
function countriesSql(): string {
  const rows = listCountries().flatMap((country) => {
    const codes = names.map((name) => country[countryFields[name]]);
    const values = codes.map((code) => (code === undefined ? 'NULL' : typeof code === 'string' ? sqlText(code) : code));
    return codes.flatMap((code, index) =>
      code === undefined ? [] : [`(${sqlText(`${names[index]} ${code}`)}, ${values.join(', ')})`],
    );
  });
  return `(VALUES ${rows.join(', ')}) AS country (said, ${names.join(', ')})`;
}

/**
 * Fills the fields of a country of which a row has one. `valueOf` gives the value of a column that the file has. What
 * the row says wins. Undefined for a file without such a field.
 */
export function planCountry(
  fields: readonly RowField[],
  valueOf: (column: string) => string | undefined,
): CountrySql | undefined {
  const columns = names.flatMap((name) => {
    const column = fields.find((field) => field.name === name)?.schema['x-column'];
    return column === undefined ? [] : [{ name, column, value: valueOf(column) }];
  });
  const said = columns.flatMap(({ name, value }) =>
    value === undefined ? [] : [`${sqlText(`${name} `)} || ${value}`],
  );
  if (said.length === 0) return undefined;
  return {
    join: `LEFT JOIN ${countriesSql()} ON country.said = coalesce(${said.join(', ')})`,
    selected: names.map((name) => `country.${name} AS country_${name}`).join(', '),
    columns: columns.map(({ name, column, value }) => ({
      column,
      stored: value === undefined ? `country_${name}` : `coalesce(${value}, country_${name})`,
    })),
  };
}
