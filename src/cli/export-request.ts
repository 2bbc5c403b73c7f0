import type { ExportArguments } from '../client/export-area.ts';
import { getExport } from '../datasets/dataset.ts';
import { findTimezone } from '../datasets/dictionaries.ts';
import {
  compressions,
  defaultFormat,
  endingOf,
  findForm,
  formatNames,
  getFormat,
  type FileForm,
} from '../datasets/file-formats.ts';
import { commonFields } from '../datasets/row-fields.ts';
import type { OptionValues } from './command.ts';
import { flag, many, oneOf, parsed, positive, refuse, text } from './words.ts';

/** Reads `NAME=VALUE`. */
function parsePair(value: string, what: string): readonly [string, string] {
  const at = value.indexOf('=');
  return at < 1 ? refuse(`${what} must be NAME=VALUE, not '${value}'`) : [value.slice(0, at), value.slice(at + 1)];
}

export const day = (about: string) =>
  parsed(about, 'DAY', (value, what) =>
    /^(\d{4}-\d{2}-\d{2}|today|yesterday)$/.test(value)
      ? value
      : refuse(`${what} must be a day as YYYY-MM-DD, today or yesterday, not '${value}'`),
  );

/** Parameters of the API that have an option of their own, which has its own rules. */
const ownOptions: Readonly<Record<string, string>> = {
  selectors: '--selectors',
  timezone: '--timezone',
  sinceVersion: '--since-version',
  asOf: '--as-of',
  format: '--format',
  compression: '--compression',
};

/** Reads a parameter of the API that has no option. */
function parseOther(value: string, what: string): readonly [string, string] {
  const pair = parsePair(value, what);
  const option = Object.hasOwn(ownOptions, pair[0]) ? ownOptions[pair[0]] : undefined;
  if (pair[0] === 'event') refuse(`${what} takes no event: it is the word behind export`);
  return option === undefined ? pair : refuse(`${what} takes no ${pair[0]}: give it by ${option}`);
}

/** What an export is to have, as options; the other parameters of the API are given by `--where`. */
export const requestOptions = {
  from: day('the first day: YYYY-MM-DD, today or yesterday (yesterday, or with --since-version everything)'),
  to: day('the last day (that of --from yesterday, else today)'),
  all: flag('every row that there is, whatever its day'),
  timezone: text("in which days are meant (this machine's)", 'ZONE'),
  selectors: text(
    'the fields, with commas between them: the columns in their order (the usual ones of the event)',
    'A,B',
  ),
  app: many(positive('rows of this app; all of the account otherwise', 'ID')),
  eventName: many(text('custom events of this name', 'NAME')),
  where: many(
    parsed(
      'any other parameter of the API, such as idCountry=188, params[level]=3 or order=time',
      'NAME=VALUE',
      parseOther,
    ),
  ),
  sinceVersion: text('only what came after this place: nextSinceVersion of the export before', 'PLACE'),
  asOf: text('the data as they were at this place', 'PLACE'),
  format: oneOf(formatNames, `the kind of file (that of the output, ${defaultFormat})`),
  compression: oneOf(compressions, 'of the files (that of the output)'),
};

export type GivenRequest = OptionValues<typeof requestOptions>;

/** The fields that an analyst expects of an event where none are named. */
function usualSelectors(event: string): readonly string[] {
  const { dataset, event: spec } = getExport(event);
  const common = new Set(commonFields.map(({ name }) => name));
  const own = dataset.isLoadable ? dataset.fields.map(({ name }) => name).filter((name) => !common.has(name)) : [];
  const derived = { first: [], days: ['countEvent'], sessions: ['duration', 'countEvent'] } as const;
  return [
    'eventId',
    'tsEvent',
    'idApp',
    'customUserId',
    ...('derive' in spec ? derived[spec.derive] : []),
    ...('kind' in spec && spec.kind === 'custom_event' ? ['eventName', 'params.name', 'params.value'] : []),
    ...own,
  ];
}

/** The zone of this machine, where the API knows it. */
function ownZone(): string {
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  return findTimezone(timeZone) ?? 'UTC';
}

/** A day in a zone, as YYYY-MM-DD: so many before today. */
function dayBefore(days: number, timeZone: string, nowMs: number): string {
  const parts = new Intl.DateTimeFormat('en-CA', { timeZone, year: 'numeric', month: '2-digit', day: '2-digit' });
  const [year = 0, month = 1, date = 1] = parts.format(nowMs).split('-').map(Number);
  return new Date(Date.UTC(year, month - 1, date - days)).toISOString().slice(0, 10);
}

const isDerived = (event: string): boolean => 'derive' in getExport(event).event;

export function toDay(value: string, timezone: string, nowMs: number): string {
  if (value === 'today') return dayBefore(0, timezone, nowMs);
  return value === 'yesterday' ? dayBefore(1, timezone, nowMs) : value;
}

/** What is asked of the service: its arguments, and the days and the zone among them for a person. */
interface ExportRequest {
  readonly parameters: ExportArguments;
  readonly form: FileForm;
  readonly days: { readonly from: string; readonly to: string } | undefined;
  readonly timezone: string;
}

/** The days of an export of all: where rows are derived from those of all time, they are the way to ask for it. */
function findDays(event: string, given: GivenRequest, timezone: string, nowMs: number): ExportRequest['days'] {
  const { from, to, sinceVersion, where, all } = given;
  if (all && (from ?? to ?? sinceVersion) !== undefined) refuse('--all excludes --from, --to and --since-version');
  if (all) return isDerived(event) ? { from: '1970-01-01', to: dayBefore(0, timezone, nowMs) } : undefined;
  const hasOwnTime = where.some(([name]) => ['dateFrom', 'dateTo', 'tsFrom', 'tsTo'].includes(name));
  if (from === undefined && (hasOwnTime || sinceVersion !== undefined)) {
    return to === undefined ? undefined : refuse('--to is given without --from');
  }
  const first = toDay(from ?? 'yesterday', timezone, nowMs);
  return { from: first, to: toDay(to ?? (from === undefined ? 'yesterday' : 'today'), timezone, nowMs) };
}

/** Makes the arguments of an export: what is not given is as an analyst expects it. Error: `usage`. */
export function toRequest(
  event: string,
  given: GivenRequest,
  output: string | undefined,
  nowMs: number,
): ExportRequest {
  const { app, eventName, where, selectors, sinceVersion, asOf } = given;
  const timezone = findTimezone(given.timezone ?? ownZone());
  if (timezone === undefined)
    return refuse(`--timezone must be a zone such as Europe/Berlin, not '${given.timezone ?? ''}'`);
  const named = output === undefined ? undefined : findForm(output);
  const format = given.format ?? named?.format ?? defaultFormat;
  if (named !== undefined && named.format !== format)
    refuse(`--format ${format} does not suit the name ${output ?? ''}`);
  // Nothing here packs or unpacks zstd; what is gzip is unpacked where the name says so.
  const isZstd = (packing: string | undefined): boolean => packing === 'zstd' && getFormat(format).kind === 'text';
  const { compression: asked = named?.compression } = given;
  if (named !== undefined && isZstd(asked) !== isZstd(named.compression))
    refuse(`--compression ${asked ?? ''} does not suit the name ${output ?? ''}`);
  // Parquet has its own; text is unpacked here where the name does not say that it is packed.
  const compression =
    given.compression ?? (named === undefined || named.compression === 'none' ? undefined : named.compression);
  const days = findDays(event, given, timezone, nowMs);
  const optional: readonly (readonly [string, string | undefined])[] = [
    ['dateFrom', days?.from],
    ['dateTo', days?.to],
    ['sinceVersion', given.all && days === undefined ? '0' : sinceVersion],
    ['asOf', asOf],
    ['compression', compression],
  ];
  const parameters: ExportArguments = [
    ['event', event],
    ['selectors', selectors ?? usualSelectors(event).join(',')],
    ['timezone', timezone],
    ['format', format],
    ...optional.flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const])),
    ...app.map((id) => ['idApp', String(id)] as const),
    ...eventName.map((name) => ['eventName', name ?? ''] as const),
    ...where,
  ];
  return { parameters, form: { format, compression: given.compression ?? 'none' }, days, timezone };
}

/** The file of an export that names none, in the working folder. */
export function defaultOutput(event: string, id: string, { form, days }: ExportRequest): string {
  const of = days === undefined ? `export-${id}` : days.from === days.to ? days.from : `${days.from}-to-${days.to}`;
  return `${event}-${of}${endingOf(form)}`;
}
