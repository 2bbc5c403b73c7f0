import { isReportBasis, type ReportBasis } from '../../reports/reports.ts';
import type { ReadPlan } from './worker-messages.ts';

/** What is asked of an export before it is ordered: what it will be, or its first rows. */
export type LookKind = 'estimate' | 'preview';

/** Everything a worker is given that looks at an export and writes nothing. */
export interface LookPlan extends ReadPlan {
  readonly look: LookKind;
}

/** A number by its bounds; null where nothing bounds it. */
export interface Bounds {
  readonly atLeast: number;
  readonly expected: number | null;
  readonly atMost: number | null;
}

/** A limit that a result may be over. */
export interface OverLimit {
  readonly limit: 'rows' | 'bytes';
  readonly allowed: number;
  /** It is over the limit; otherwise nobody knows yet. */
  readonly isCertain: boolean;
  readonly todo: string;
}

/** What an export will be. */
export interface Estimate {
  readonly rows: Bounds;
  /** As the limit counts them: of CSV and JSON lines the text before compression, of other files the file. */
  readonly bytes: Bounds;
  readonly parts: { readonly atLeast: number; readonly atMost: number | null };
  /** How long it will run, once it runs. */
  readonly seconds: number;
  readonly overLimits: readonly OverLimit[];
  /** The version that it was read from. */
  readonly basis: ReportBasis;
}

/** The first rows of an export, their cells as a CSV of it has them before quoting; null: an empty cell. */
export interface Preview {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly (string | null)[])[];
  /** The result has more rows than these. */
  readonly isCut: boolean;
  readonly basis: ReportBasis;
}

/** How a worker's look ended; `user`: by the request itself, in words for its user. */
export type LookOutcome =
  | { readonly kind: 'estimate'; readonly estimate: Estimate }
  | { readonly kind: 'preview'; readonly preview: Preview }
  | { readonly kind: 'failed'; readonly reason: 'user' | 'damage' | 'error'; readonly error: string };

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;

/** Reads a worker's message; undefined for anything else. */
export function parseLookOutcome(value: unknown): LookOutcome | undefined {
  if (!isObject(value)) return undefined;
  const { kind } = value;
  const answer = kind === 'estimate' || kind === 'preview' ? value[kind] : undefined;
  const isGood =
    kind === 'failed'
      ? ['user', 'damage', 'error'].includes(String(value['reason'])) && typeof value['error'] === 'string'
      : isObject(answer) && isReportBasis(answer['basis']);
  return isGood ? (value as unknown as LookOutcome) : undefined;
}

/** Says whether a worker's plan is for a look, and not for an attempt. */
export function isLookPlan(plan: ReadPlan): plan is LookPlan {
  return 'look' in plan;
}
