import type { Compression, ExportSpec } from '../../src/export/jobs/export-spec.ts';

/** A request whose files are made as it says; nothing else of it is looked at. */
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
