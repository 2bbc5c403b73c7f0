import { pause } from '../runtime/async/retry.ts';
import { AppError } from '../runtime/errors.ts';
import { isInProgress, type ExportArea, type ExportReport } from './export-area.ts';

/**
 * The pauses between two looks: short at first, since most exports take seconds; then within the quota of an hour, which
 * has others' calls as well, milliseconds.
 */
const firstPauseMs = 300;
const longestPauseMs = 6000;
const growth = 1.15;

export interface WaitOptions {
  readonly signal: AbortSignal;
  /** Called after each look. */
  readonly onProgress: (report: ExportReport) => void;
}

/**
 * Waits until a request has ended, and returns it finished. Errors: `service_refused` when it failed or was canceled;
 * `stopping` when the signal ends the wait: the request goes on; those of the area.
 */
export async function waitForExport(area: ExportArea, id: string, options: WaitOptions): Promise<ExportReport> {
  let pauseMs = firstPauseMs;
  for (;;) {
    const report = await area.get(id);
    options.onProgress(report);
    if (report.files !== undefined) return report;
    if (!isInProgress(report))
      throw new AppError('service_refused', `export ${id} has ended: ${report.error ?? report.status}`, {
        hint: 'Order it anew, with other arguments where these were refused.',
      });
    await pause(pauseMs, options.signal);
    if (options.signal.aborted)
      throw new AppError('stopping', `export ${id} goes on without being waited for`, {
        hint: `'tributary export download ${id}' waits for it and fetches it.`,
      });
    pauseMs = Math.min(pauseMs * growth, longestPauseMs);
  }
}
