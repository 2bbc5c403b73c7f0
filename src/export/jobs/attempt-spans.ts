import type { ReportJob } from '../../reports/reports.ts';
import type { Span, SpanAttributes, Tracing } from '../../runtime/tracing/tracing.ts';
import type { WorkerPhase } from './worker-messages.ts';

/** The phases of an attempt: the start of its worker, the worker's own, then the upload of its files and its record. */
type AttemptPhase = 'start' | WorkerPhase | 'store';

/** The spans of an attempt: one of the attempt, and a child per phase. */
export interface AttemptSpans {
  /** Begins a phase, and ends the last one. */
  readonly begin: (phase: AttemptPhase) => void;
  /** Ends all. `error` marks the attempt as failed. */
  readonly end: (attributes: SpanAttributes, error?: string) => void;
}

/** Starts the spans of an attempt; undefined unless the call that created its request is traced. */
export function startAttemptSpans(
  tracing: Tracing | undefined,
  { id, event, attempts, traceparent }: ReportJob,
): AttemptSpans | undefined {
  const span = traceparent === undefined ? undefined : tracing?.startAfter(traceparent, 'export attempt');
  if (span === undefined) return undefined;
  span.set({ 'tributary.export.id': id, 'tributary.export.event': event, 'tributary.export.attempt': attempts });
  let current: Span = span.startChild('start' satisfies AttemptPhase);
  return {
    begin(phase) {
      current.end();
      current = span.startChild(phase);
    },
    end(attributes, error) {
      current.end({}, error);
      span.end(attributes, error);
    },
  };
}
