import { createHttpClient } from '../../src/client/http-client.ts';
import { createImportArea, type ImportArea } from '../../src/client/import-area.ts';
import { importFile } from '../../src/client/import-file.ts';
import type { ImportOutcome } from '../../src/client/run-import.ts';
import type { ImportOptions } from '../../src/client/import-state.ts';
import type { ServiceWithApp } from './service-access.ts';

/** A caller of the import area of a service. */
export function areaOf({ service, token }: ServiceWithApp, idApp = 1): ImportArea {
  return createImportArea(createHttpClient({ connections: 8 }), { url: service.s2s, idApp, token });
}

/** Imports a file as the command does, with what a test changes of it. */
export function importHere(
  access: ServiceWithApp,
  file: string,
  options: Partial<ImportOptions> & { readonly onProgress?: () => void; readonly area?: ImportArea } = {},
): Promise<ImportOutcome> {
  const { onProgress = () => undefined, area = areaOf(access), ...others } = options;
  return importFile(
    file,
    area,
    {
      idApp: 1,
      event: 'customEvent',
      format: file.includes('.csv') ? 'csv' : 'ndjson',
      map: {},
      parallel: 4,
      patienceMs: 60_000,
      again: false,
      nowMs: () => Date.now(),
      signal: new AbortController().signal,
      ...others,
    },
    { onProgress, onWait: () => undefined },
  );
}

/** Lines of custom events, each with an ordinal of its own. */
export function eventLines(count: number, prefix = 'u'): string[] {
  return Array.from({ length: count }, (_, index) =>
    JSON.stringify({
      eventTimestamp: 1_780_000_000 + index,
      customUserId: `${prefix}-${index}`,
      customEventName: 'imported',
      customEventParams: { ordinal: String(index) },
    }),
  );
}
