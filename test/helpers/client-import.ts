import { createHttpClient } from '../../src/client/http-client.ts';
import { createImportArea, type ImportArea } from '../../src/client/import-area.ts';
import { importFile } from '../../src/client/import-file.ts';
import type { ImportOutcome } from '../../src/client/run-import.ts';
import type { ImportOptions } from '../../src/client/import-state.ts';
import { importOptions } from './import-model.ts';
import type { ServiceWithApp } from './service-access.ts';

/** Returns a caller of a service's import area. */
export function areaOf({ service, token }: ServiceWithApp, idApp = 1): ImportArea {
  return createImportArea(createHttpClient({ connections: 8 }), { url: service.s2s, idApp, token });
}

/** Imports a file as the command does, with changes of a test. */
export function importHere(
  access: ServiceWithApp,
  file: string,
  options: Partial<ImportOptions> & { readonly onProgress?: () => void; readonly area?: ImportArea } = {},
): Promise<ImportOutcome> {
  const { onProgress = () => undefined, area = areaOf(access), ...others } = options;
  return importFile(
    file,
    area,
    importOptions({
      format: file.includes('.csv') ? 'csv' : 'ndjson',
      parallel: 4,
      nowMs: () => Date.now(),
      ...others,
    }),
    { onProgress, onWait: () => undefined },
  );
}

/** Returns lines of custom events, each with a different ordinal. */
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
