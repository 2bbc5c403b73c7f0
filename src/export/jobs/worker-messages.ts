import { isReportBasis, isReportFile, type ReportBasis, type ReportFile } from '../../reports/reports.ts';
import type { SegmentKind } from '../../segments/segment-store.ts';
import type { ExportApp, ExportSpec } from './export-spec.ts';

/** A file of another store that an export reads. It may be replaced or removed meanwhile. */
export interface PlanFile {
  /** Absolute path. */
  readonly file: string;
  readonly sizeBytes: number;
  /** Hash of its bytes, hex. */
  readonly sha256: string;
}

/** The segment of a request: a file with the column `id`. */
export interface PlanSegment extends PlanFile {
  readonly kind: SegmentKind;
}

/** The loaded titles: a file with the columns `field`, `id` and `title`. */
export interface PlanTitles extends PlanFile {
  /** How many titles each field has, by the field's name. */
  readonly counts: Readonly<Record<string, number>>;
}

/** What rows a worker reads, and within which limits: it reads no settings and no other state of the service. */
export interface ReadPlan {
  readonly request: ExportSpec;
  /** The apps whose rows the caller may have. */
  readonly apps: readonly ExportApp[];
  /** Present where the request names one. */
  readonly segment?: PlanSegment;
  /** Absent where none were loaded. */
  readonly titles?: PlanTitles;
  /** Folder of the table that has the event's rows; it may not be there yet. */
  readonly tableDir: string;
  readonly limits: WorkerLimits;
  /** How long replaced files of the lake stay for their readers, milliseconds. */
  readonly retentionMs: number;
  /** When the work began, by the service's clock, Unix milliseconds. */
  readonly begunMs: number;
}

/** Everything an attempt at an export is given. */
export interface WorkerPlan extends ReadPlan {
  /** The attempt's own folder, empty: the files of the result are left in it, and nothing else. */
  readonly folder: string;
  /** Beginning of each file name. */
  readonly stem: string;
}

export interface WorkerLimits {
  readonly maxRows: number;
  /** Bytes of CSV, before compression. */
  readonly maxBytes: number;
  /** A CSV up to this size is one plain file; 0: never. */
  readonly singleFileMaxBytes: number;
  readonly partMaxBytes: number;
  readonly memoryMb: number;
  readonly threads: number;
}

/**
 * How a worker's run ended. `user`: the request asks for more than the limits allow. `disk`: no space was left.
 * `damage`: a file of the lake is not what was written.
 */
export type WorkerOutcome =
  | {
      readonly kind: 'done';
      readonly files: readonly ReportFile[];
      readonly basis: ReportBasis;
      readonly filesRead: number;
    }
  | { readonly kind: 'failed'; readonly reason: 'user' | 'disk' | 'damage' | 'error'; readonly error: string };

/** What a worker sends its parent. */
export type WorkerMessage = { readonly kind: 'progress'; readonly percent: number } | WorkerOutcome;

const failures = ['user', 'disk', 'damage', 'error'];

/** Reads a worker's message; undefined for anything else. */
export function parseWorkerMessage(value: unknown): WorkerMessage | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const message = value as Readonly<Record<string, unknown>>;
  const isGood = {
    progress: () => Number.isFinite(message['percent']),
    done: () =>
      Array.isArray(message['files']) &&
      message['files'].every(isReportFile) &&
      isReportBasis(message['basis']) &&
      Number.isInteger(message['filesRead']),
    failed: () => failures.includes(String(message['reason'])) && typeof message['error'] === 'string',
  }[String(message['kind'])];
  return isGood?.() === true ? (message as unknown as WorkerMessage) : undefined;
}
