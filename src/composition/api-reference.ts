import type { Config } from '../config.ts';
import { describeAccountApi } from '../export/api/account-openapi.ts';
import { describeExportApi } from '../export/api/openapi.ts';
import { describeOperationsApi } from '../export/admin-api/openapi.ts';
import { describeDestinationApi } from '../export/api/destination-openapi.ts';
import { describeWebhookApi } from '../export/api/webhook-openapi.ts';
import { describeScheduleApi } from '../export/schedules/openapi.ts';
import { describeHealth } from '../ops/openapi.ts';
import { describeImport } from '../ingest/openapi.ts';
import { describeDiagnostics } from '../ingest/diagnostics-openapi.ts';
import { findBuild } from '../runtime/files/package-files.ts';
import { assembleOpenApi, type OpenApiServer } from '../runtime/http/openapi.ts';
import { httpAddress } from '../runtime/http/ports.ts';

/** Returns the import area's address, as seen by a client of the export area. */
function describeImportServer({ publicS2sUrl, host, s2sPort }: Config, exportUrl: string): OpenApiServer {
  const description = 'Import';
  if (publicS2sUrl !== undefined) return { url: publicS2sUrl, description };
  if (s2sPort === 0)
    return {
      url: 'http://{s2s}',
      description: 'Import: set TRIBUTARY_PUBLIC_S2S_URL to have its address here.',
      variables: { s2s: { default: 'localhost:8080', description: 'Host and port of the import area.' } },
    };
  // A wildcard address is reachable under the host of the export area.
  const [, askedHost = ''] = /^https?:\/\/\[?([^\]/]*?)\]?(?::\d*)?(?:\/|$)/.exec(exportUrl) ?? [];
  return {
    url: httpAddress(['0.0.0.0', '::'].includes(host) && askedHost !== '' ? askedHost : host, s2sPort),
    description,
  };
}

/** Returns the OpenAPI document of all areas for the address `exportUrl`. */
export function describeApi(config: Config): (exportUrl: string) => object {
  const { version } = findBuild();
  const parts = [
    describeImport(),
    describeDiagnostics(),
    describeExportApi(),
    describeAccountApi(),
    describeWebhookApi(),
    describeDestinationApi(),
    describeScheduleApi(),
    describeOperationsApi(),
    describeHealth(),
  ];
  return (exportUrl) =>
    assembleOpenApi(
      version,
      { import: describeImportServer(config, exportUrl), export: { url: exportUrl, description: 'Export' } },
      parts,
    );
}
