import { compressions, isFileFormat, type Compression, type FileFormat } from '../../datasets/file-formats.ts';
import { parseCursor } from '../../lake/log/change-feed.ts';
import { isRecord } from '../../runtime/files/checksummed-json.ts';
import {
  isFlag,
  isInteger,
  isText,
  listOf,
  oneOf,
  optional,
  shapeOf,
  type ShapeCheck,
} from '../../runtime/store/shape.ts';

/** A half-open span of Unix seconds; an absent bound is open. */
export interface SecondsSpan {
  readonly fromSeconds?: number;
  readonly beforeSeconds?: number;
}

/** Comparisons of a parameter other than with a set of values. */
const paramOperators = ['not', 'contains', 'greater', 'less', 'set'] as const;
export type ParamOperator = (typeof paramOperators)[number];

/** A filter on a parameter of custom events, which must have one of the values, or compare with them otherwise. */
export interface ParamFilter {
  readonly name: string;
  readonly values: readonly string[];
  readonly operator?: ParamOperator;
}

/** A valid request as in job.json. Days are instants, aliases their event, numbers their shortest decimal form. */
export interface ExportSpec {
  readonly event: string;
  /** Names of selectors in the order of the columns, each once. */
  readonly selectors: readonly string[];
  readonly timezone: string;
  readonly eventTime: SecondsSpan;
  readonly availableAt: SecondsSpan;
  /** A cursor: only rows that became available after it. */
  readonly sinceVersion?: string;
  /** The cursor of the version to read; absent: the newest. */
  readonly asOf?: string;
  /** First and last local date, if clocks that go back over midnight put moments of other dates into the span. */
  readonly localDates?: { readonly from: string; readonly to: string };
  readonly idApp?: readonly string[];
  readonly SDKKey?: readonly string[];
  readonly idAccount?: readonly string[];
  readonly idProject?: readonly string[];
  readonly eventName?: readonly string[];
  readonly eventNameInvert: boolean;
  readonly params?: readonly ParamFilter[];
  readonly idSegment?: string;
  /** Absent: csv. */
  readonly format?: FileFormat;
  /** Absent: the default of the format; of text by its size. */
  readonly compression?: Compression;
  /** `time`: by event time, then by id; absent: the cheapest order. */
  readonly order?: 'time';
  /** Accepted values by field. */
  readonly filters: Readonly<Record<string, readonly string[]>>;
}

const isPlace: ShapeCheck = (value) => typeof value === 'string' && parseCursor(value) !== undefined;
const isTextList = listOf(isText);
/** Checks that every member of an object has a check and passes it. */
const exactly =
  (checks: Readonly<Record<string, ShapeCheck>>): ShapeCheck =>
  (value) =>
    isRecord(value) &&
    Object.keys(value).every((name) => Object.hasOwn(checks, name)) &&
    Object.entries(checks).every(([name, shapeCheck]) => shapeCheck(value[name]));
const isSpan = exactly({ fromSeconds: optional(isInteger), beforeSeconds: optional(isInteger) });

const members: Readonly<Record<keyof ExportSpec, ShapeCheck>> = {
  event: isText,
  selectors: isTextList,
  timezone: isText,
  eventTime: isSpan,
  availableAt: isSpan,
  sinceVersion: optional(isPlace),
  asOf: optional(isPlace),
  localDates: optional(shapeOf<{ readonly from: string; readonly to: string }>({ from: isText, to: isText })),
  idApp: optional(isTextList),
  SDKKey: optional(isTextList),
  idAccount: optional(isTextList),
  idProject: optional(isTextList),
  eventName: optional(isTextList),
  eventNameInvert: isFlag,
  params: optional(listOf(exactly({ name: isText, values: isTextList, operator: optional(oneOf(paramOperators)) }))),
  idSegment: optional(isText),
  format: optional((value) => typeof value === 'string' && isFileFormat(value)),
  compression: optional(oneOf(compressions)),
  order: optional(oneOf(['time'])),
  filters: (value) => isRecord(value) && Object.values(value).every(isTextList),
};

const isExportSpec = shapeOf<ExportSpec>(members);

/** Parses the request of a job.json; undefined if it has unknown members: an unknown filter must not select more. */
export function parseExportSpec(value: unknown): ExportSpec | undefined {
  if (!isRecord(value)) return undefined;
  const { unknowable, ...others } = value;
  // The name of the filters in earlier versions.
  const renamed: Readonly<Record<string, unknown>> =
    unknowable === undefined ? others : { ...others, filters: unknowable };
  return isExportSpec(renamed) && Object.keys(renamed).every((name) => Object.hasOwn(members, name))
    ? renamed
    : undefined;
}

export interface ExportApp {
  readonly idApp: number;
  readonly sdkKey: string;
  readonly title: string;
  readonly platform: string;
  readonly idAccount: number;
  readonly idProject: number | undefined;
}

/**
 * Selects the apps of an account that idApp or SDKKey names, within idAccount and idProject. Ids of other accounts
 * select nothing. The time is linear in apps and values.
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
