import { defined } from '../runtime/files/checksummed-json.ts';
import type { ExportArguments } from '../client/export-area.ts';
import { getExport } from '../datasets/dataset.ts';
import { findTimezone } from '../datasets/dictionaries.ts';
import {
  compressions,
  csvDialects,
  defaultFormat,
  endingOf,
  findForm,
  formatNames,
  getFormat,
  type FileForm,
} from '../datasets/file-formats.ts';
import { commonFields } from '../datasets/row-fields.ts';
import { personFields } from '../datasets/subject.ts';
import type { OptionValues } from './command.ts';
import { flag, many, oneOf, parsed, positive, failUsage, text } from './option-specs.ts';

export const day = (about: string) =>
  parsed(about, 'DAY', (value, what) =>
    /^(\d{4}-\d{2}-\d{2}|today|yesterday)$/.test(value)
      ? value
      : failUsage(`${what} must be a day as YYYY-MM-DD, today or yesterday, not '${value}'`),
  );

const ownOptions: Readonly<Record<string, string>> = {
  selectors: '--selectors',
  timezone: '--timezone',
  sinceVersion: '--since-version',
  asOf: '--as-of',
  columns: '--columns',
  dialect: '--dialect',
  name: '--name',
  format: '--format',
  compression: '--compression',
};

function parseOther(value: string, what: string): readonly [string, string] {
  const at = value.indexOf('=');
  const name = at < 1 ? failUsage(`${what} must be NAME=VALUE, not '${value}'`) : value.slice(0, at);
  if (name === 'event') failUsage(`${what} cannot set event: pass it as the first argument`);
  const option = Object.hasOwn(ownOptions, name) ? ownOptions[name] : undefined;
  return option === undefined ? [name, value.slice(at + 1)] : failUsage(`${what} cannot set ${name}: use ${option}`);
}

function parsePerson(value: string, what: string): readonly [string, string] {
  const [name = '', ...rest] = value.split('=');
  if (rest.length === 0) failUsage(`${what} must be NAME=ID, not '${value}'`);
  if (!personFields.includes(name))
    failUsage(`${what} must name one of ${personFields.join(', ')}, not '${name}'; use --where for other parameters`);
  // A set of the API is split at commas.
  return [name, rest.join('=').replaceAll(/[\\,]/g, String.raw`\$&`)];
}

/** Options of an export request; `--where` takes the other parameters of the API. */
export const requestOptions = {
  from: day('first day: YYYY-MM-DD, today or yesterday (yesterday; any day with --since-version)'),
  to: day('last day (today; yesterday without --from)'),
  all: flag('all rows, regardless of day'),
  timezone: text("time zone of the days (this machine's)", 'ZONE'),
  selectors: text('fields, comma-separated, in the order of the columns (depends on the event)', 'A,B'),
  app: many(positive('app id (all apps of the account)', 'ID')),
  name: text('name of the export in lists', 'TEXT'),
  eventName: many(text('name of a custom event (all)', 'NAME')),
  person: many(
    parsed('id of a person or device, such as customUserId=u-1; several of a name match any', 'NAME=ID', parsePerson),
  ),
  where: many(
    parsed(
      'any other parameter of the API, such as idCountry=188, params[level]=3 or order=time',
      'NAME=VALUE',
      parseOther,
    ),
  ),
  sinceVersion: text('only rows after this cursor: nextSinceVersion of the previous export', 'CURSOR'),
  asOf: text('data as of this cursor', 'CURSOR'),
  format: oneOf(formatNames, `file format (by the name of the output, else ${defaultFormat})`),
  columns: oneOf(['params'], 'params: also a column per parameter of custom events'),
  dialect: oneOf(csvDialects, 'CSV for spreadsheets'),
  compression: oneOf(compressions, 'compression of the files (by the name of the output)'),
};

export type GivenRequest = OptionValues<typeof requestOptions>;

function usualSelectors(event: string, format: string, hasParamColumns: boolean): readonly string[] {
  const { dataset, event: spec } = getExport(event);
  const common = new Set(commonFields.map(({ name }) => name));
  const own = dataset.isLoadable ? dataset.fields.map(({ name }) => name).filter((name) => !common.has(name)) : [];
  const derived = { first: [], days: ['countEvent'], sessions: ['duration', 'countEvent'] } as const;
  return [
    'eventId',
    format === 'xlsx' ? 'dateTimeEvent' : 'tsEvent',
    'idApp',
    'customUserId',
    ...('derive' in spec ? derived[spec.derive] : []),
    ...('kind' in spec && spec.kind === 'custom_event' ? ['eventName'] : []),
    ...('kind' in spec && spec.kind === 'custom_event' && !hasParamColumns ? ['params.name', 'params.value'] : []),
    ...own,
  ];
}

function dayBefore(days: number, timeZone: string, nowMs: number): string {
  const parts = new Intl.DateTimeFormat('en-CA', { timeZone, year: 'numeric', month: '2-digit', day: '2-digit' });
  const [year = 0, month = 1, date = 1] = parts.format(nowMs).split('-').map(Number);
  return new Date(Date.UTC(year, month - 1, date - days)).toISOString().slice(0, 10);
}

export function toExportDay(value: string, timezone: string, nowMs: number): string {
  if (value === 'today') return dayBefore(0, timezone, nowMs);
  return value === 'yesterday' ? dayBefore(1, timezone, nowMs) : value;
}

/** Arguments of a request, and its days and time zone for notes. */
interface ExportRequest {
  readonly parameters: ExportArguments;
  readonly form: FileForm;
  readonly days: { readonly from: string; readonly to: string } | undefined;
  readonly timezone: string;
}

/** Returns the days of a request. `--all` of a derived event needs days; of other events it has none. */
function findDays(event: string, options: GivenRequest, timezone: string, nowMs: number): ExportRequest['days'] {
  const { from, to, sinceVersion, where, all } = options;
  if (all && (from ?? to ?? sinceVersion) !== undefined) failUsage('--all excludes --from, --to and --since-version');
  if (all)
    return 'derive' in getExport(event).event ? { from: '1970-01-01', to: dayBefore(0, timezone, nowMs) } : undefined;
  const hasOwnTime = where.some(([name]) => ['dateFrom', 'dateTo', 'tsFrom', 'tsTo'].includes(name));
  if (from === undefined && (hasOwnTime || sinceVersion !== undefined)) {
    return to === undefined ? undefined : failUsage('--to needs --from');
  }
  const first = toExportDay(from ?? 'yesterday', timezone, nowMs);
  return { from: first, to: toExportDay(to ?? (from === undefined ? 'yesterday' : 'today'), timezone, nowMs) };
}

/** Builds the arguments of a request with the defaults of the command line. Error: `usage`. */
export function toRequest(
  event: string,
  options: GivenRequest,
  output: string | undefined,
  nowMs: number,
): ExportRequest {
  const { app, eventName, name, person, where, selectors, sinceVersion, asOf } = options;
  const machineZone = findTimezone(new Intl.DateTimeFormat().resolvedOptions().timeZone) ?? 'UTC';
  const timezone = options.timezone === undefined ? machineZone : findTimezone(options.timezone);
  if (timezone === undefined)
    return failUsage(`--timezone must be a time zone such as Europe/Berlin, not '${options.timezone ?? ''}'`);
  const named = output === undefined ? undefined : findForm(output);
  const format = options.format ?? named?.format ?? defaultFormat;
  if (named !== undefined && named.format !== format)
    failUsage(`--format ${format} conflicts with the file name ${output ?? ''}`);
  // The client unpacks gzip, but not zstd.
  const isZstd = (packing: string | undefined): boolean => packing === 'zstd' && getFormat(format).kind === 'text';
  const { compression: requestedCompression = named?.compression } = options;
  if (named !== undefined && isZstd(requestedCompression) !== isZstd(named.compression))
    failUsage(`--compression ${requestedCompression ?? ''} conflicts with the file name ${output ?? ''}`);
  // Parquet is compressed already; text is uncompressed unless the file name has an extension of a compressed file.
  const compression =
    options.compression ?? (named === undefined || named.compression === 'none' ? undefined : named.compression);
  const days = findDays(event, options, timezone, nowMs);
  // The erasure list has its own columns.
  const isList = selectors === undefined && where.some(([argument]) => argument === 'erasures');
  const optional = defined({
    dateFrom: days?.from,
    dateTo: days?.to,
    sinceVersion: options.all && days === undefined ? '0' : sinceVersion,
    asOf,
    columns: options.columns,
    dialect: options.dialect,
    compression,
    name,
  });
  const parameters: ExportArguments = [
    ['event', event],
    ...(isList
      ? []
      : [['selectors', selectors ?? usualSelectors(event, format, options.columns === 'params').join(',')] as const]),
    ['timezone', timezone],
    ['format', format],
    ...Object.entries(optional),
    ...app.map((id) => ['idApp', String(id)] as const),
    ...eventName.map((one) => ['eventName', one ?? ''] as const),
    ...person.map(([field, id]) => [field, id] as const),
    ...where,
  ];
  return { parameters, form: { format, compression: options.compression ?? 'none' }, days, timezone };
}

/** Returns the default file of an export, in the working folder. */
export function defaultOutput(event: string, id: string, { form, days }: ExportRequest): string {
  const of = days === undefined ? `export-${id}` : days.from === days.to ? days.from : `${days.from}-to-${days.to}`;
  return `${event}-${of}${endingOf(form)}`;
}
