import type { AnswerOf, CallArguments } from '../shell/client.ts';
import { labelArguments } from '../components/labels.tsx';
import { isKnownZone, secondsOf, todayIn, wallTimeOf } from '../components/zones.ts';
import { comparisons, emptyDraft, type Dictionary, type Draft, type ParamDraft } from './draft.ts';

/** Errors of a draft by part of the form. The service validates the request again. */
export interface DraftErrors {
  readonly period?: string;
  readonly selectors?: string;
}

/** Returns the first and last second of a period, Unix seconds. */
export function momentsOf({ period: { from, to, exact }, timezone }: Draft): {
  readonly from: number;
  readonly to: number;
} {
  return exact ?? { from: secondsOf(timezone, from, 'from'), to: secondsOf(timezone, to, 'to') };
}

function findPeriodProblem(draft: Draft): string | undefined {
  const { period, timezone, others } = draft;
  const { kind, from, to } = period;
  if (others['sinceVersion'] !== undefined) return undefined;
  if (from === '' || to === '') return 'Enter both ends of the period.';
  if (from > to) return 'The period ends before it starts.';
  if (!isKnownZone(timezone))
    return kind === 'days'
      ? undefined
      : 'Your browser does not know this time zone. Choose another one, or enter dates only.';
  const today = todayIn(timezone);
  if (kind === 'days' && to > today) return `The period ends after today, ${today} in ${timezone}.`;
  return kind === 'moments' && momentsOf(draft).to > Date.now() / 1000 ? 'The period ends in the future.' : undefined;
}

export function findDraftErrors(draft: Draft): DraftErrors {
  const period = findPeriodProblem(draft);
  return {
    ...(period === undefined ? {} : { period }),
    ...(draft.selectors.length > 0 ? {} : { selectors: 'Choose at least one column.' }),
  };
}

function periodArguments(draft: Draft): CallArguments {
  const { kind, from, to } = draft.period;
  if (draft.others['sinceVersion'] !== undefined) return {};
  if (kind === 'days') return { dateFrom: from, dateTo: to };
  const moments = momentsOf(draft);
  return { tsFrom: String(moments.from), tsTo: String(moments.to) };
}

/** Escapes ids of persons: they may have commas, which separate the values of a set. */
function toFilterValues(name: string, values: readonly string[], { filters }: Dictionary): readonly string[] {
  const isPerson = filters.some((filter) => filter.name === name && filter.isPerson === true);
  return isPerson ? values.map((value) => value.replaceAll(/[\\,]/g, String.raw`\$&`)) : values;
}

/** Returns the arguments that request the draft's export. */
export function toArguments(draft: Draft, dictionary: Dictionary): CallArguments {
  const { event, selectors, timezone, filters, params, format, compression, isByTime, others } = draft;
  const { dialect, hasParamColumns } = draft;
  const setFilters = Object.entries(filters)
    .filter(([, values]) => values.length > 0)
    .map(([name, values]) => [name, toFilterValues(name, values, dictionary)] as const);
  return {
    event,
    selectors: selectors.join(','),
    ...periodArguments(draft),
    timezone,
    ...Object.fromEntries(setFilters),
    ...Object.fromEntries(
      params
        .map((param) => ({ ...param, values: param.values.filter((value) => value !== '') }))
        .filter(({ name, values }) => name !== '' && values.length > 0)
        .map(({ name, values, comparison = 'params' }) => [`${comparison}[${name}]`, values]),
    ),
    ...(format === 'csv' ? {} : { format }),
    ...(compression === '' ? {} : { compression }),
    ...(isByTime ? { order: 'time' } : {}),
    ...(dialect === '' || format !== 'csv' ? {} : { dialect }),
    ...(hasParamColumns ? { columns: 'params' } : {}),
    ...labelArguments(draft),
    ...others,
  };
}

/** Arguments of an export in the list of exports. */
export type ExportRequestArguments = NonNullable<
  AnswerOf<'/api/raw/v1/export/list.json'>['exports'][number]['arguments']
>;

const asList = (value: string | readonly string[] | undefined): readonly string[] =>
  value === undefined ? [] : typeof value === 'string' ? [value] : value;
const asText = (value: string | readonly string[] | undefined): string => asList(value)[0] ?? '';

/** Returns the period of arguments, as days if it starts and ends with whole ones; undefined without a period. */
export function readPeriod(request: ExportRequestArguments): Draft['period'] | undefined {
  const zone = asText(request['timezone']);
  const [dateFrom, dateTo] = [asText(request['dateFrom']), asText(request['dateTo'])];
  if (dateFrom !== '' && dateTo !== '') return { kind: 'days', from: dateFrom, to: dateTo };
  const [tsFrom, tsTo] = [asText(request['tsFrom']), asText(request['tsTo'])];
  if (tsFrom === '' || tsTo === '' || !isKnownZone(zone)) return undefined;
  const exact = { from: Number(tsFrom), to: Number(tsTo) };
  const [from, to] = [wallTimeOf(zone, exact.from), wallTimeOf(zone, exact.to)];
  const means = (first: string, last: string): boolean =>
    secondsOf(zone, first, 'from') === exact.from && secondsOf(zone, last, 'to') === exact.to;
  const [firstDay, lastDay] = [from.slice(0, 10), to.slice(0, 10)];
  if (means(`${firstDay}T00:00:00`, `${lastDay}T23:59:59`)) return { kind: 'days', from: firstDay, to: lastDay };
  return { kind: 'moments', from, to, ...(means(from, to) ? {} : { exact }) };
}

/** Reports whether the form can edit these values of a parameter. */
const isTyped = (values: string | readonly string[]): boolean =>
  asList(values).every((value) => value !== '' && !value.includes('\n'));

/** Returns the parameter and the comparison of an argument; undefined for other arguments. */
function readParam(argument: string): Pick<ParamDraft, 'name' | 'comparison'> | undefined {
  const [, prefix, name] = /^(params\w*)\[(.+)\]$/s.exec(argument) ?? [];
  const comparison = comparisons.find((each) => each === prefix);
  return comparison === undefined || name === undefined ? undefined : { name, comparison };
}

/** Returns a draft with the arguments of an export. */
export function toDraft(request: ExportRequestArguments, dictionary: Dictionary): Draft {
  const event = asText(request['event']);
  const { filters: known } = dictionary;
  const filters = known.flatMap(({ name }) =>
    request[name] === undefined ? [] : [[name, asList(request[name])] as const],
  );
  const params = Object.entries(request).flatMap(([name, values]) => {
    const param = readParam(name);
    return param === undefined || !isTyped(values) ? [] : [{ ...param, values: asList(values) }];
  });
  const fields =
    'event selectors timezone dateFrom dateTo tsFrom tsTo format compression order dialect columns name deliverTo'.split(
      ' ',
    );
  const others = Object.entries(request).filter(
    ([name, values]) =>
      !fields.includes(name) &&
      !(readParam(name) !== undefined && isTyped(values)) &&
      !known.some((filter) => filter.name === name),
  );
  const period = readPeriod(request);
  return {
    ...emptyDraft(dictionary, event),
    timezone: asText(request['timezone']),
    ...(period === undefined ? {} : { period }),
    selectors: asList(request['selectors']),
    filters: Object.fromEntries(filters),
    params,
    format: asText(request['format']) || 'csv',
    compression: asText(request['compression']),
    isByTime: asText(request['order']) === 'time',
    dialect: asText(request['dialect']),
    hasParamColumns: asText(request['columns']) === 'params',
    name: asText(request['name']),
    deliverTo: asText(request['deliverTo']),
    others: Object.fromEntries(others),
  };
}
