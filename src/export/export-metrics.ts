import type { ReportJob } from '../reports/reports.ts';
import type { Metrics } from '../runtime/metrics.ts';

const secondsBuckets = [0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];

/** What the stage counts. */
export interface ExportMetrics {
  readonly ended: (job: ReportJob, seconds: number) => void;
  readonly answered: (method: string, status: number) => void;
}

/** Creates the metrics of the stage. */
export function createExportMetrics(metrics: Metrics): ExportMetrics {
  const ended = metrics.counter('export_requests_total', 'Export requests that ended, by their state.', ['state']);
  const seconds = metrics.histogram(
    'export_request_seconds',
    'Time from the creation of an export request to its end.',
    secondsBuckets,
  );
  const answered = metrics.counter('export_answers_total', 'Answers of the export area, by method and HTTP status.', [
    'method',
    'status',
  ]);
  return {
    ended(job, took) {
      ended.inc({ state: job.state });
      seconds.observe(took);
    },
    answered: (method, status) => answered.inc({ method, status: String(status) }),
  };
}
