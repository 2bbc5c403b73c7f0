import type { Compression } from '../../src/datasets/file-formats.ts';
import type { ExportSpec } from '../../src/export/jobs/export-spec.ts';

/** Returns a request for one column of all custom events, with files of this compression. */
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
