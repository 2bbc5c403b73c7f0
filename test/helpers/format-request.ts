import type { Compression } from '../../src/datasets/file-formats.ts';
import type { ExportSpec } from '../../src/export/jobs/export-spec.ts';

/** A request for one column of all custom events, its files as `compression` says. */
export function formatRequest(compression?: Compression): ExportSpec {
  return {
    event: 'customEvents',
    selectors: ['eventId'],
    timezone: 'UTC',
    eventTime: {},
    availableAt: {},
    eventNameInvert: false,
    filters: {},
    ...(compression === undefined ? {} : { compression }),
  };
}
