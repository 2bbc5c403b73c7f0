import type { ReportJob, ReportState } from '../reports/reports.ts';
import type { FileVerificationError } from '../reports/verified-files.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import type { Metrics } from '../runtime/metrics.ts';

const secondsBuckets = [0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];

/** Adds the gauges of requests in progress: `running` have a worker, the others are queued. */
export function registerRequestGauges(metrics: Metrics, waiting: () => number, running: () => number): void {
  metrics.readGauge('export_requests_waiting', 'Export requests that wait for a worker.', waiting);
  metrics.readGauge('export_requests_running', 'Export requests that a worker processes.', running);
}

export function createExportMetrics(metrics: Metrics) {
  const ended = metrics.counter('export_requests_total', 'Finished export requests, by final state.', ['state']);
  // Series that start at zero show their first increment in `rate()`.
  for (const state of ['success', 'failed', 'user_failed', 'canceled'] satisfies ReportState[]) ended.inc({ state }, 0);
  const seconds = metrics.histogram(
    'export_request_seconds',
    'Time from the creation of an export request to its end.',
    secondsBuckets,
  );
  const answered = metrics.counter(
    'export_responses_total',
    'Responses of the export area, by method and HTTP status.',
    ['method', 'status'],
  );
  return {
    ended(job: ReportJob, took: number): void {
      ended.inc({ state: job.state });
      seconds.observe(took);
    },
    answered: (method: string, status: number): void => answered.inc({ method, status: String(status) }),
  };
}

/** Maximum number of damaged files listed individually. */
const newestDamages = 10;

/** Describes damage that exports met, damaged report files, and requests that cannot be read. */
export function describeDamage(
  damages: ReadonlySet<string>,
  requests: readonly string[],
  files: readonly FileVerificationError[],
): Problem[] {
  return [
    ...[...damages].slice(-newestDamages).map((damage) => ({
      code: 'export_met_damage' as const,
      subject: damage,
      message: `an export failed on damaged data: ${damage}`,
      action: "Run 'tributary lake check', restore the listed files from a backup, and create the export again.",
    })),
    ...files.slice(-newestDamages).map(({ idReport, detail }) => ({
      code: 'report_file_damaged' as const,
      subject: `${idReport} ${detail}`,
      message: `cannot serve a report file of export request ${idReport}: ${detail}`,
      action: 'Restore the file from a backup, or ask its user to create the export again.',
    })),
    ...requests.slice(0, newestDamages).map((damage) => ({
      code: 'export_request_unreadable' as const,
      subject: damage,
      message: `cannot read an export request: ${damage}`,
      action: 'Follow the hint in the message, then restart the service. All other requests are served.',
    })),
  ];
}
