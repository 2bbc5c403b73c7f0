import { readPackageJson } from '../runtime/files/package-files.ts';

/** A country, by its ISO 3166 code. */
export interface Country {
  /** Two capital letters. `AN` and `XK` are in use and stand outside ISO 3166: they have no number. */
  readonly alpha2: string;
  readonly numeric?: number;
  /** The country's id in the dictionary `countries`; absent where the dictionary does not have it. */
  readonly id?: number;
}

interface CountryCodesFile {
  /** The codes of the dictionary's countries. */
  readonly byId: Readonly<Record<string, { readonly alpha2: string; readonly numeric: number }>>;
  /** Countries of the dictionary that ISO 3166 does not have. */
  readonly idsWithoutCode: readonly string[];
  /** Countries of ISO 3166 that the dictionary does not have, and their numbers. */
  readonly codesWithoutId: Readonly<Record<string, number>>;
  /** Codes that address databases use, and that neither ISO 3166 nor the dictionary has. */
  readonly codesOutsideIso: readonly string[];
}

/** The codes as their file has them. */
export const countryCodes = readPackageJson('schemas/dictionaries/country-codes.json') as CountryCodesFile;

const countriesByCode: ReadonlyMap<string, Country> = new Map(
  [
    ...Object.entries(countryCodes.byId).map(([id, code]): Country => ({ ...code, id: Number(id) })),
    ...Object.entries(countryCodes.codesWithoutId).map(([alpha2, numeric]): Country => ({ alpha2, numeric })),
    ...countryCodes.codesOutsideIso.map((alpha2): Country => ({ alpha2 })),
  ].map((country) => [country.alpha2, country]),
);

/** The country of a two-letter code in capitals; undefined when no country has it. */
export function findCountry(alpha2: string): Country | undefined {
  return countriesByCode.get(alpha2);
}

/** Lists all countries. */
export function listCountries(): readonly Country[] {
  return [...countriesByCode.values()];
}
