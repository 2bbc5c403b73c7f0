import { isKeyOf, membersOf } from '../../runtime/files/checksummed-json.ts';
import type { CatalogueDates, CurrentCatalogue } from '../../lake/catalogue/current-catalogue.ts';
import { isReportBasis, isReportFile, type ReportVersion, type ReportFile } from '../../reports/reports.ts';
import type { RecordedFile } from '../../runtime/store/file-records.ts';
import { isInteger, isText, listOf, oneOf, optional, shapeOf, type ShapeCheck } from '../../runtime/store/shape.ts';
import type { SegmentKind } from '../../segments/segment-store.ts';
import type { ExportApp, ExportSpec } from './export-spec.ts';

/** The segment of a request: a file with the column `id`. */
export interface PlanSegment extends RecordedFile {
  readonly kind: SegmentKind;
}

/** The loaded titles: a file with the columns `field`, `id` and `title`. */
export interface PlanTitles extends RecordedFile {
  readonly counts: Readonly<Record<string, number>>;
}

export interface WorkerLimits {
  readonly maxRows: number;
  /** Bytes of a result before compression. */
  readonly maxBytes: number;
  /** A text of at most this size is one plain file; 0: never. */
  readonly singleFileMaxBytes: number;
  readonly partMaxBytes: number;
  readonly memoryMb: number;
  readonly threads: number;
}

/** The rows that a worker reads. A worker has no settings and no other state of the service. */
export interface ReadPlan {
  readonly request: ExportSpec;
  /** The apps whose rows the caller may read. */
  readonly apps: readonly ExportApp[];
  /** Lists, which may be replaced or removed while an export reads them. */
  readonly segment?: PlanSegment;
  readonly titles?: PlanTitles;
  /** Folder of the event's table, which may not exist yet. */
  readonly tableDir: string;
  readonly limits: WorkerLimits;
  readonly retentionMs: number;
  /** Start of the work by the service's clock, Unix ms. */
  readonly begunMs: number;
}

export interface WorkerPlan extends ReadPlan {
  /** The attempt's empty folder, for the files of the result alone. */
  readonly folder: string;
  readonly stem: string;
}

export type DryRunKind = 'estimate' | 'preview' | 'daily';

/** The plan of an estimate, a preview or a count of rows by date, which writes nothing. */
export interface DryRunPlan extends ReadPlan {
  readonly look: DryRunKind;
}

export type DateSpan = CatalogueDates;

/**
 * A query about the data of apps: events by day and kind, all events by app and kind, fill rates of fields, parameters
 * of custom events.
 */
export type DataQuery =
  | { readonly ask: 'activity' }
  | { readonly ask: 'volume'; readonly dates: DateSpan }
  | { readonly ask: 'fields'; readonly dates: DateSpan; readonly kind: string }
  | {
      readonly ask: 'catalogue';
      readonly dates?: DateSpan;
      readonly customEventName?: string;
      readonly days: number;
    };

export interface DataPlan {
  readonly question: DataQuery;
  readonly apps: readonly ExportApp[];
  readonly lakeDir: string;
  readonly limits: Pick<WorkerLimits, 'memoryMb' | 'threads'>;
}

/** Bounds of a number; null: unbounded. */
export interface EstimateRange {
  readonly atLeast: number;
  readonly expected: number | null;
  readonly atMost: number | null;
}

export interface OverLimit {
  readonly limit: 'rows' | 'bytes';
  readonly allowed: number;
  readonly isCertain: boolean;
  readonly action: string;
}

export interface Estimate {
  readonly rows: EstimateRange;
  /** As the limit counts them: text before compression, the file of other formats. */
  readonly bytes: EstimateRange;
  readonly parts: { readonly atLeast: number; readonly atMost: number | null };
  /** Duration without the time in the queue, s. */
  readonly seconds: number;
  readonly overLimits: readonly OverLimit[];
  readonly basis: ReportVersion;
}

/** The first rows of an export, their cells as in CSV before quoting; null: an empty cell. */
export interface Preview {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly (string | null)[])[];
  readonly isTruncated: boolean;
  readonly basis: ReportVersion;
}

/** Rows of an export by date in its time zone, oldest first; dates without rows are absent. */
export interface DailyRows {
  readonly days: readonly { readonly date: string; readonly rows: number }[];
  readonly basis: ReportVersion;
}

/** Events of one kind on one UTC date. The kind of rows of other datasets is the name of their table. */
export interface DayCount {
  readonly date: string;
  readonly kind: string;
  readonly events: number;
}

/** Exact counts of one version of the lake, by date, then by kind; zero counts are absent. */
interface Volume {
  readonly version: number;
  readonly days: readonly DayCount[];
}

/** Days of an app's sparkline. */
export const activityDays = 30;

/** All events of an app. Dates are UTC. */
export interface AppActivity {
  readonly idApp: number;
  readonly events: number;
  readonly firstDate: string;
  readonly lastDate: string;
  /** Events of each of the `activityDays` days up to the last date. */
  readonly days: readonly number[];
  /** Most frequent first. */
  readonly kinds: readonly { readonly kind: string; readonly events: number; readonly lastDate: string }[];
}

/** The activity of apps with events, most events first. */
export interface Activity {
  readonly apps: readonly AppActivity[];
  /** Whether all events are counted. */
  readonly isComplete: boolean;
  /** All events from this date are counted; absent if the count is complete. */
  readonly countedFrom?: string;
}

/** The number of counted events that have a value of a field other than its default. */
interface FieldFill {
  readonly name: string;
  readonly column: string;
  readonly type: string;
  readonly description: string;
  readonly nonNullEvents: number;
  readonly default?: number;
}

/** Fill rates of the fields of a kind, counted exactly in a bounded number of the newest events. */
export interface Fields {
  readonly version: number;
  readonly kind: string;
  readonly sampledEvents: number;
  /** UTC dates of the first and the last counted event; absent if there is none. */
  readonly dateFrom?: string;
  readonly dateTo?: string;
  readonly isComplete: boolean;
  readonly fields: readonly FieldFill[];
}

type Failed<Reason extends string> = { readonly kind: 'failed'; readonly reason: Reason; readonly error: string };

/** The outcome of an attempt. `user`: a limit is exceeded. `disk`: no space left. `damage`: a lake file is damaged. */
export type WorkerOutcome =
  | {
      readonly kind: 'done';
      readonly files: readonly ReportFile[];
      readonly columns?: readonly string[];
      readonly basis: ReportVersion;
      readonly filesRead: number;
    }
  | Failed<'user' | 'disk' | 'damage' | 'error'>;

/** The phases of an export: pin the version and the lists, prepare and count, copy rows, finish the files. */
const workerPhases = ['read', 'query', 'write', 'files'] as const;
export type WorkerPhase = (typeof workerPhases)[number];

type WorkerMessage =
  | { readonly kind: 'progress'; readonly percent: number }
  | { readonly kind: 'phase'; readonly phase: WorkerPhase }
  | WorkerOutcome;

/** The outcome of a dry run. `user`: the request is at fault, with the reason for its user. */
export type DryRunOutcome =
  | { readonly kind: 'estimate'; readonly estimate: Estimate }
  | { readonly kind: 'preview'; readonly preview: Preview }
  | { readonly kind: 'daily'; readonly daily: DailyRows }
  | Failed<'user' | 'damage' | 'error'>;

export type DataOutcome =
  | { readonly kind: 'activity'; readonly activity: Activity }
  | { readonly kind: 'volume'; readonly volume: Volume }
  | { readonly kind: 'fields'; readonly fields: Fields }
  | { readonly kind: 'catalogue'; readonly catalogue: CurrentCatalogue }
  | Failed<'damage' | 'error'>;

const isList: ShapeCheck = (value) => Array.isArray(value);
const having = (members: Readonly<Record<string, ShapeCheck>>): ShapeCheck =>
  shapeOf<Readonly<Record<string, unknown>>>(members);
const failedWith = (...reasons: readonly string[]): ShapeCheck => having({ reason: oneOf(reasons), error: isText });

function isMessage<T extends { readonly kind: string }>(
  value: unknown,
  checks: Readonly<Record<T['kind'], ShapeCheck>>,
): value is T {
  const { kind } = membersOf(value);
  return typeof kind === 'string' && isKeyOf(checks, kind) && checks[kind](value);
}

const workerMessages = {
  progress: having({ percent: (percent) => Number.isFinite(percent) }),
  phase: having({ phase: oneOf(workerPhases) }),
  done: having({
    files: listOf(isReportFile),
    columns: optional(listOf(isText)),
    basis: isReportBasis,
    filesRead: isInteger,
  }),
  failed: failedWith('user', 'disk', 'damage', 'error'),
};
const dryRunOutcomes = {
  estimate: having({ estimate: having({ basis: isReportBasis }) }),
  preview: having({ preview: having({ basis: isReportBasis }) }),
  daily: having({ daily: having({ days: isList, basis: isReportBasis }) }),
  failed: failedWith('user', 'damage', 'error'),
};
const dataOutcomes = {
  activity: having({ activity: having({ apps: isList }) }),
  volume: having({ volume: having({ days: isList }) }),
  fields: having({ fields: having({ fields: isList }) }),
  catalogue: having({ catalogue: having({ customEvents: isList }) }),
  failed: failedWith('damage', 'error'),
};

/** Each parses a message of a worker; undefined for other values. */
export const parseWorkerMessage = (value: unknown): WorkerMessage | undefined =>
  isMessage<WorkerMessage>(value, workerMessages) ? value : undefined;
export const parseDryRunOutcome = (value: unknown): DryRunOutcome | undefined =>
  isMessage<DryRunOutcome>(value, dryRunOutcomes) ? value : undefined;
export const parseDataOutcome = (value: unknown): DataOutcome | undefined =>
  isMessage<DataOutcome>(value, dataOutcomes) ? value : undefined;
