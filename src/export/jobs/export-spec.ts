import { compressions, isFileFormat, type Compression, type FileFormat } from '../../datasets/file-formats.ts';
import { parsePlace } from '../../lake/log/change-feed.ts';

/**
 * A half-open span of Unix seconds: from `fromSeconds` (inclusive) up to `beforeSeconds` (exclusive); an absent bound
 * is open.
 */
export interface SecondsSpan {
  readonly fromSeconds?: number;
  readonly beforeSeconds?: number;
}

/** A filter on a parameter of custom events: it must be there and have one of the values. */
export interface ParamFilter {
  readonly name: string;
  readonly values: readonly string[];
}

/**
 * A valid export request: what job.json keeps and the worker runs. Days have become instants, aliases their event,
 * numbers their shortest decimal spelling; what is absent was not asked for.
 */
export interface ExportSpec {
  /** Name of the event, never an alias. */
  readonly event: string;
  /** Names of selectors, in the order of the columns, each once. */
  readonly selectors: readonly string[];
  readonly timezone: string;
  readonly eventTime: SecondsSpan;
  readonly availableAt: SecondsSpan;
  /** Only rows that came after this version of the table: a place, as `parsePlace` reads it. */
  readonly sinceVersion?: string;
  /** The version of the table to read, a place too; absent: the newest. */
  readonly asOf?: string;
  /**
   * First and last local date in the zone, `YYYY-MM-DD`: only where clocks that go back over midnight make the span of
   * those days hold moments of other days too.
   */
  readonly localDates?: { readonly from: string; readonly to: string };
  readonly idApp?: readonly string[];
  readonly SDKKey?: readonly string[];
  readonly idAccount?: readonly string[];
  readonly idProject?: readonly string[];
  readonly eventName?: readonly string[];
  /** The listed event names are the ones left out. */
  readonly eventNameInvert: boolean;
  /** Every filter must hold. */
  readonly params?: readonly ParamFilter[];
  /** A segment of the account that asks. */
  readonly idSegment?: string;
  /** Absent: csv. */
  readonly format?: FileFormat;
  /** Absent: as the format is by itself; CSV and JSON lines by their size. */
  readonly compression?: Compression;
  /** `time`: rows in the order of the event's time, then of its id. Absent: in the order that takes least work. */
  readonly order?: 'time';
  /** Filters on fields of rows, by the field's name: the values that pass. */
  readonly filters: Readonly<Record<string, readonly string[]>>;
}

const isText = (value: unknown): value is string => typeof value === 'string';
const isPlace = (value: unknown): boolean => isText(value) && parsePlace(value) !== undefined;
const isTextList = (value: unknown): boolean => Array.isArray(value) && value.every(isText);

function isParamFilter(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const { name, values, ...others } = value as Readonly<Record<string, unknown>>;
  return isText(name) && isTextList(values) && Object.keys(others).length === 0;
}

function isSpan(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return Object.entries(value).every(
    ([name, seconds]) => ['fromSeconds', 'beforeSeconds'].includes(name) && Number.isSafeInteger(seconds),
  );
}

/** What each member of a spec must be; those that may be absent pass as undefined. */
const members: Readonly<Record<keyof ExportSpec, (value: unknown) => boolean>> = {
  event: isText,
  selectors: isTextList,
  timezone: isText,
  eventTime: isSpan,
  availableAt: isSpan,
  sinceVersion: (value) => value === undefined || isPlace(value),
  asOf: (value) => value === undefined || isPlace(value),
  localDates: (value) =>
    value === undefined ||
    (typeof value === 'object' &&
      value !== null &&
      ['from', 'to'].every((name) => isText((value as Record<string, unknown>)[name]))),
  idApp: (value) => value === undefined || isTextList(value),
  SDKKey: (value) => value === undefined || isTextList(value),
  idAccount: (value) => value === undefined || isTextList(value),
  idProject: (value) => value === undefined || isTextList(value),
  eventName: (value) => value === undefined || isTextList(value),
  eventNameInvert: (value) => typeof value === 'boolean',
  params: (value) => value === undefined || (Array.isArray(value) && value.every(isParamFilter)),
  idSegment: (value) => value === undefined || isText(value),
  format: (value) => value === undefined || (isText(value) && isFileFormat(value)),
  compression: (value) => value === undefined || compressions.some((compression) => compression === value),
  order: (value) => value === undefined || value === 'time',
  filters: (value) => typeof value === 'object' && value !== null && Object.values(value).every(isTextList),
};

/**
 * Reads what job.json keeps of a request. Undefined when it is not a spec as this version writes them: a filter that is
 * not understood must not select more.
 */
export function parseExportSpec(value: unknown): ExportSpec | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const { unknowable, ...others } = value as Readonly<Record<string, unknown>>;
  // What earlier versions called the filters.
  const given: Readonly<Record<string, unknown>> =
    unknowable === undefined ? others : { ...others, filters: unknowable };
  const isKnown = Object.keys(given).every((name) => Object.hasOwn(members, name));
  return isKnown && Object.entries(members).every(([name, isGood]) => isGood(given[name]))
    ? (given as unknown as ExportSpec)
    : undefined;
}

/** An app as an export sees it. */
export interface ExportApp {
  readonly idApp: number;
  readonly sdkKey: string;
  readonly title: string;
  readonly platform: string;
  readonly idAccount: number;
  readonly idProject: number | undefined;
}

/**
 * The apps whose rows a request may have: of the account's own, those that idApp or SDKKey names (one of the two is
 * enough), within idAccount and idProject. Apps of other accounts are no candidates, so foreign ids select nothing.
 * Takes time by the number of apps and that of values, not by their product.
 */
export function selectApps(
  { idApp, SDKKey, idAccount, idProject }: ExportSpec,
  accountApps: readonly ExportApp[],
): ExportApp[] {
  const [apps, keys, accounts, projects] = [idApp, SDKKey, idAccount, idProject].map((values) =>
    values === undefined ? undefined : new Set(values),
  );
  const isNamed = (app: ExportApp): boolean =>
    (apps === undefined && keys === undefined) ||
    apps?.has(String(app.idApp)) === true ||
    keys?.has(app.sdkKey) === true;
  const isWithin = (app: ExportApp): boolean =>
    (accounts === undefined || accounts.has(String(app.idAccount))) &&
    (projects === undefined || (app.idProject !== undefined && projects.has(String(app.idProject))));
  return accountApps.filter((app) => isNamed(app) && isWithin(app));
}
