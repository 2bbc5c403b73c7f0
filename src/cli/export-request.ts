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
import { flag, many, oneOf, parsed, positive, present, refuse, text } from './words.ts';

export const day = (about: string) =>
  parsed(about, 'DAY', (value, what) =>
    /^(\d{4}-\d{2}-\d{2}|today|yesterday)$/.test(value)
      ? value
      : refuse(`${what} must be a day as YYYY-MM-DD, today or yesterday, not '${value}'`),
  );

const ownOptions: Readonly<Record<string, string>> = {
  selectors: '--selectors',
  timezone: '--timezone',
  sinceVersion: '--since-version',
  asOf: '--as-of',
  format: '--format',
  compression: '--compression',
};

function parseOther(value: string, what: string): readonly [string, string] {
  const at = value.indexOf('=');
  const name = at < 1 ? refuse(`${what} must be NAME=VALUE, not '${value}'`) : value.slice(0, at);
  if (name === 'event') refuse(`${what} takes no event: it is the word behind export`);
  const option = Object.hasOwn(ownOptions, name) ? ownOptions[name] : undefined;
  return option === undefined ? [name, value.slice(at + 1)] : refuse(`${what} takes no ${name}: give it by ${option}`);
}

/** Options of an export request; `--where` takes the other parameters of the API. */
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

function dayBefore(days: number, timeZone: string, nowMs: number): string {
  const parts = new Intl.DateTimeFormat('en-CA', { timeZone, year: 'numeric', month: '2-digit', day: '2-digit' });
  const [year = 0, month = 1, date = 1] = parts.format(nowMs).split('-').map(Number);
  return new Date(Date.UTC(year, month - 1, date - days)).toISOString().slice(0, 10);
}

export function toDay(value: string, timezone: string, nowMs: number): string {
  if (value === 'today') return dayBefore(0, timezone, nowMs);
  return value === 'yesterday' ? dayBefore(1, timezone, nowMs) : value;
}

/** Arguments of a request, and for the person its days and zone. */
interface ExportRequest {
  readonly parameters: ExportArguments;
  readonly form: FileForm;
  readonly days: { readonly from: string; readonly to: string } | undefined;
  readonly timezone: string;
}

/** Returns the days of a request. `--all` of a derived event needs days; of other events it has none. */
function findDays(event: string, given: GivenRequest, timezone: string, nowMs: number): ExportRequest['days'] {
  const { from, to, sinceVersion, where, all } = given;
  if (all && (from ?? to ?? sinceVersion) !== undefined) refuse('--all excludes --from, --to and --since-version');
  if (all)
    return 'derive' in getExport(event).event ? { from: '1970-01-01', to: dayBefore(0, timezone, nowMs) } : undefined;
  const hasOwnTime = where.some(([name]) => ['dateFrom', 'dateTo', 'tsFrom', 'tsTo'].includes(name));
  if (from === undefined && (hasOwnTime || sinceVersion !== undefined)) {
    return to === undefined ? undefined : refuse('--to is given without --from');
  }
  const first = toDay(from ?? 'yesterday', timezone, nowMs);
  return { from: first, to: toDay(to ?? (from === undefined ? 'yesterday' : 'today'), timezone, nowMs) };
}

/** Builds the arguments of a request with the defaults of the command line. Error: `usage`. */
export function toRequest(
  event: string,
  given: GivenRequest,
  output: string | undefined,
  nowMs: number,
): ExportRequest {
  const { app, eventName, where, selectors, sinceVersion, asOf } = given;
  const machineZone = findTimezone(new Intl.DateTimeFormat().resolvedOptions().timeZone) ?? 'UTC';
  const timezone = given.timezone === undefined ? machineZone : findTimezone(given.timezone);
  if (timezone === undefined)
    return refuse(`--timezone must be a zone such as Europe/Berlin, not '${given.timezone ?? ''}'`);
  const named = output === undefined ? undefined : findForm(output);
  const format = given.format ?? named?.format ?? defaultFormat;
  if (named !== undefined && named.format !== format)
    refuse(`--format ${format} does not suit the name ${output ?? ''}`);
  // The client unpacks gzip, but not zstd.
  const isZstd = (packing: string | undefined): boolean => packing === 'zstd' && getFormat(format).kind === 'text';
  const { compression: asked = named?.compression } = given;
  if (named !== undefined && isZstd(asked) !== isZstd(named.compression))
    refuse(`--compression ${asked ?? ''} does not suit the name ${output ?? ''}`);
  // Parquet compresses itself; text is unpacked here unless the file's name is that of a compressed file.
  const compression =
    given.compression ?? (named === undefined || named.compression === 'none' ? undefined : named.compression);
  const days = findDays(event, given, timezone, nowMs);
  const optional = present({
    dateFrom: days?.from,
    dateTo: days?.to,
    sinceVersion: given.all && days === undefined ? '0' : sinceVersion,
    asOf,
    compression,
  });
  const parameters: ExportArguments = [
    ['event', event],
    ['selectors', selectors ?? usualSelectors(event).join(',')],
    ['timezone', timezone],
    ['format', format],
    ...Object.entries(optional),
    ...app.map((id) => ['idApp', String(id)] as const),
    ...eventName.map((name) => ['eventName', name ?? ''] as const),
    ...where,
  ];
  return { parameters, form: { format, compression: given.compression ?? 'none' }, days, timezone };
}

/** Returns the default file of an export, in the working folder. */
export function defaultOutput(event: string, id: string, { form, days }: ExportRequest): string {
  const of = days === undefined ? `export-${id}` : days.from === days.to ? days.from : `${days.from}-to-${days.to}`;
  return `${event}-${of}${endingOf(form)}`;
}
