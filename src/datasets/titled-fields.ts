import { selectors, type Selector } from './dictionaries.ts';

/** A field of ids that titles can be loaded for: `idCampaign`, whose titles the selector `idCampaignTitle` shows. */
export interface TitledField {
  readonly name: string;
  /** Its ids are whole numbers, otherwise texts. */
  readonly isNumber: boolean;
}

/** What a selector is the title of, and whether a dictionary has the titles; undefined for other selectors. */
function findTitled({ source }: Selector): { readonly name: string; readonly isInDictionary: boolean } | undefined {
  if (!('column' in source) || source.titleOf === undefined) return undefined;
  return { name: source.titleOf, isInDictionary: source.dictionary !== undefined };
}

const titled = [...selectors.values()].flatMap((selector) => findTitled(selector) ?? []);

/** Every field that titles can be loaded for, by its name, in the order of the selectors. */
export const titledFields: ReadonlyMap<string, TitledField> = new Map(
  titled
    .filter(({ isInDictionary }) => !isInDictionary)
    .map(({ name }) => [name, { name, isNumber: selectors.get(name)?.type === 'integer' }]),
);

/** Where the titles of the other fields of ids come from. */
const elsewhere: ReadonlyMap<string, string> = new Map([
  ...titled
    .filter(({ isInDictionary }) => isInDictionary)
    .map(({ name }) => [name, 'a dictionary of the API'] as const),
  ...['idApp', 'idPlatform'].map((name) => [name, "the app's registration"] as const),
]);

/** Where the titles of a field come from that none can be loaded for; undefined for those that can, and for no field. */
export function findTitlesElsewhere(name: string): string | undefined {
  return elsewhere.get(name);
}

/**
 * The fields whose loaded titles a selector may show, the first that has one first: that of its own id, and for an
 * attributed one that of the thing itself, since `idCampaignAttr` 66 is the campaign 66. None for other selectors.
 */
export function listTitleFields(selector: string): readonly TitledField[] {
  const known = selectors.get(selector);
  const name = known === undefined ? undefined : findTitled(known)?.name;
  if (name === undefined) return [];
  return [...new Set([name, name.replace(/(?:Prev)?Attr$/, '')])].flatMap((field) => titledFields.get(field) ?? []);
}
