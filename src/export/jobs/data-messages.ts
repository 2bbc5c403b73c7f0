import type { CatalogueDates, CurrentCatalogue } from '../../lake/catalogue/current-catalogue.ts';
import type { ExportApp } from './export-spec.ts';
import type { WorkerLimits } from './worker-messages.ts';

export type DateSpan = CatalogueDates;

/**
 * What is asked of the data of some apps: how many events of each kind each day has, how full the fields of a kind are, or
 * what the custom events of one app have in their parameters.
 */
export type DataQuestion =
  | { readonly ask: 'volume'; readonly dates: DateSpan }
  | { readonly ask: 'fields'; readonly dates: DateSpan; readonly kind: string }
  | {
      readonly ask: 'catalogue';
      readonly dates?: DateSpan;
      readonly customEventName?: string;
      /** Dates of each event, the newest. */
      readonly days: number;
    };

/** Everything a worker is given that answers a question; it writes nothing. */
export interface DataPlan {
  readonly question: DataQuestion;
  /** The apps whose rows the caller may have, as far as they are asked for. */
  readonly apps: readonly ExportApp[];
  readonly lakeDir: string;
  readonly limits: Pick<WorkerLimits, 'memoryMb' | 'threads'>;
}

/** Events of one kind on one UTC date. Rows of a dataset beside the events count under the name of its table. */
export interface DayCount {
  readonly date: string;
  readonly kind: string;
  readonly events: number;
}

/** Exact counts of one version of the lake; a day without events has no line. */
export interface Volume {
  /** Version of the table of events. */
  readonly version: number;
  /** By date, then by kind. */
  readonly days: readonly DayCount[];
}

/**
 * A field, and how many of the events that were looked at have a value of it. The lake does not tell a default from the
 * same value that was sent: of a field with a default, those that have another one.
 */
export interface FieldFill {
  readonly name: string;
  /** The column of the lake. */
  readonly column: string;
  readonly type: string;
  readonly description: string;
  readonly filled: number;
  readonly default?: number;
}

/** How full the fields of a kind are, counted exactly in the newest events up to a bound. */
export interface Fields {
  readonly version: number;
  readonly kind: string;
  /** Events that were looked at. */
  readonly looked: number;
  /** The UTC dates of the first and the last of them; absent without any. */
  readonly dateFrom?: string;
  readonly dateTo?: string;
  /** Every event of the dates that were asked for was looked at. */
  readonly isWhole: boolean;
  readonly fields: readonly FieldFill[];
}

/** How a worker's answer ended. */
export type DataOutcome =
  | { readonly kind: 'volume'; readonly volume: Volume }
  | { readonly kind: 'fields'; readonly fields: Fields }
  | { readonly kind: 'catalogue'; readonly catalogue: CurrentCatalogue }
  | { readonly kind: 'failed'; readonly reason: 'damage' | 'error'; readonly error: string };

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;

/** The list that an answer of each kind has. */
const lists: Readonly<Record<string, string>> = { volume: 'days', fields: 'fields', catalogue: 'customEvents' };

/** Reads a worker's message; undefined for anything else. */
export function parseDataOutcome(value: unknown): DataOutcome | undefined {
  if (!isObject(value)) return undefined;
  const { kind } = value;
  const list = typeof kind === 'string' && Object.hasOwn(lists, kind) ? lists[kind] : undefined;
  const answer = list === undefined ? undefined : value[String(kind)];
  const isGood =
    kind === 'failed'
      ? ['damage', 'error'].includes(String(value['reason'])) && typeof value['error'] === 'string'
      : list !== undefined && isObject(answer) && Array.isArray(answer[list]);
  return isGood ? (value as unknown as DataOutcome) : undefined;
}

/** Says whether a worker's plan is a question after data. */
export function isDataPlan(plan: object): plan is DataPlan {
  return 'question' in plan;
}
