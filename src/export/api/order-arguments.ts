import type { ExportSpec } from '../jobs/export-spec.ts';
import { paramsName } from './parameters.ts';

/** Arguments of a create call, by their names; those that take many values as lists. */
export type OrderArguments = Readonly<Record<string, string | readonly string[]>>;

/** The arguments of a span: its first and its last second. */
function describeSpan([from, to]: readonly [string, string], span: ExportSpec['eventTime']): OrderArguments {
  const { fromSeconds, beforeSeconds } = span;
  return {
    ...(fromSeconds === undefined ? {} : { [from]: String(fromSeconds) }),
    ...(beforeSeconds === undefined ? {} : { [to]: String(beforeSeconds - 1) }),
  };
}

/**
 * The arguments by which a request can be ordered again: days as the seconds that they were, or as the days themselves
 * where clocks that went back made the two differ.
 */
export function describeOrder(spec: ExportSpec): OrderArguments {
  const { eventTime, availableAt, localDates, params = [], filters, eventNameInvert, ...others } = spec;
  const { event, selectors, timezone, sinceVersion, asOf, idSegment, format, compression, order } = others;
  const { idApp, SDKKey, idAccount, idProject, eventName } = others;
  const single = { event, timezone, sinceVersion, asOf, idSegment, format, compression, order };
  const many = { selectors, idApp, SDKKey, idAccount, idProject, eventName, ...filters };
  return {
    ...Object.fromEntries(Object.entries(single).filter((entry): entry is [string, string] => entry[1] !== undefined)),
    ...Object.fromEntries(
      Object.entries(many).filter((entry): entry is [string, readonly string[]] => entry[1] !== undefined),
    ),
    ...(localDates === undefined
      ? describeSpan(['tsFrom', 'tsTo'], eventTime)
      : { dateFrom: localDates.from, dateTo: localDates.to }),
    ...describeSpan(['availabilityTsFrom', 'availabilityTsTo'], availableAt),
    ...(eventNameInvert ? { eventNameInvert: '1' } : {}),
    ...Object.fromEntries(params.map(({ name, values }) => [paramsName.replace('NAME', () => name), values])),
  };
}
