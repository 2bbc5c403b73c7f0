import { findDictionary, findTitle, rowFields } from '../../datasets/dictionaries.ts';
import type { ExportApp } from '../jobs/export-spec.ts';
import { parametersByName, versionParameters } from './parameters.ts';

/** Named values of a list; the others are counted. */
const namedValues = 3;

/** Arguments that the summary leaves out, or renders in its own place. */
const notFilters = new Set<string>(
  [
    'event',
    'selectors',
    'name',
    'deliverTo',
    'timezone',
    'sinceVersion',
    'format',
    'compression',
    'order',
    'columns',
    'dialect',
    'eventNameInvert',
  ].concat(versionParameters),
);

/** The comparison of a parameter with values, by argument. */
const comparisons: Readonly<Record<string, string>> = {
  params: 'is',
  paramsNot: 'is not',
  paramsContain: 'contains',
  paramsGreater: 'is greater than',
  paramsLess: 'is less than',
};

/** Splits a name at its capitals: `customEvents` becomes `custom events`, and `idCountry` becomes `country`. */
function toWords(name: string): string {
  return name
    .replace(/^i[ds](?=[A-Z])/, '')
    .replaceAll(/(?<=[a-z0-9])(?=[A-Z])/g, ' ')
    .replaceAll(/\b[A-Z](?=[a-z])/g, (letter) => letter.toLowerCase());
}

function joinList(values: readonly string[], last: 'and' | 'or'): string {
  const more = values.length - namedValues;
  const named = more > 1 ? [...values.slice(0, namedValues), `${more} more`] : values;
  const end = named.at(-1) ?? '';
  return named.length < 2 ? end : `${named.slice(0, -1).join(', ')} ${last} ${end}`;
}

/** Returns the values of a parameter, also if a comma joins them. */
function valuesOf(name: string, values: readonly string[]): readonly string[] {
  return parametersByName.get(name)?.shape === 'set' ? values.flatMap((value) => value.split(',')) : values;
}

const isApp = (name: string): boolean => name === 'idApp' || name === 'SDKKey';

function titleOf(name: string, value: string, apps: readonly ExportApp[]): string {
  if (isApp(name)) {
    const app = apps.find(({ idApp, sdkKey }) => (name === 'idApp' ? String(idApp) : sdkKey) === value);
    return app?.title || value;
  }
  const field = rowFields.get(name);
  const dictionary = field === undefined ? undefined : findDictionary(field);
  return (dictionary === undefined ? undefined : findTitle(dictionary, value)) ?? value;
}

/** Describes a filter; `is`: the word for a filter on a field. */
function describeFilter(name: string, values: readonly string[], is: string, apps: readonly ExportApp[]): string {
  const [, comparison = '', parameter] = /^(params\w*)\[(.+?)\]/s.exec(name) ?? [];
  if (comparison === 'paramsSet') return `${parameter} is ${values[0] === '0' ? 'not ' : ''}set`;
  const label = parameter ?? (isApp(name) ? 'app' : toWords(name));
  const titles = values.map((value) => titleOf(name, value, apps));
  return `${label} ${comparisons[comparison] ?? is} ${joinList(titles, 'or')}`;
}

/**
 * Describes the filters and columns of an export in one line, without its period. `given`: its arguments, as a create
 * call has them; `apps`: those of its account.
 */
export function summarizeExport(
  given: Iterable<readonly [name: string, values: string | readonly string[]]>,
  apps: readonly ExportApp[],
): string {
  const all = new Map([...given].map(([name, values]) => [name, valuesOf(name, [values].flat())]));
  const event = toWords(all.get('event')?.[0] ?? 'events');
  const filters = [...all]
    .filter(([name]) => !notFilters.has(name))
    .map(([name, values]) => {
      const isNot = name === 'eventName' && all.get('eventNameInvert')?.[0] === '1';
      return describeFilter(name, values, isNot ? 'is not' : 'is', apps);
    });
  const columns = joinList(all.get('selectors') ?? [], 'and') + (all.has('columns') ? ', and one per parameter' : '');
  const form = [all.get('format')?.[0] ?? 'csv', all.get('dialect')?.[0], all.get('compression')?.[0]].filter(
    (one) => one !== undefined,
  );
  const where = filters.length === 0 ? '' : ` where ${filters.join(', and ')}`;
  return `${event.charAt(0).toUpperCase()}${event.slice(1)}${where}; columns ${columns}; ${form.join(', ')}`;
}
