import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { isSystemError } from '../runtime/errors.ts';
import { findJobFile } from './job-file.ts';
import type { ReportState } from './reports.ts';

/** Export requests by their state; `unreadable` counts those whose job.json is damaged. */
export type ReportSummary = Readonly<Partial<Record<ReportState | 'unreadable', number>>>;

/** Counts the requests of a reports folder by state, from their files. Works with the service running or stopped. */
export async function summarizeReports(reportsDir: string): Promise<ReportSummary> {
  const names = await readdir(reportsDir).catch((error: unknown) => {
    if (isSystemError(error, 'ENOENT')) return [];
    throw error;
  });
  const counts: Partial<Record<ReportState | 'unreadable', number>> = {};
  for (const name of names.filter((entry) => /^[1-9]\d{0,14}$/.test(entry))) {
    const state = await findJobFile(path.join(reportsDir, name), Number(name)).then(
      (job) => job?.state,
      () => 'unreadable' as const,
    );
    if (state !== undefined) counts[state] = (counts[state] ?? 0) + 1;
  }
  return counts;
}
