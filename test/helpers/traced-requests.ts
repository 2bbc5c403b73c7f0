import { expect } from 'vitest';
import { basic } from './export-area.ts';
import { createExportClient, exportQuery } from './export-client.ts';
import { startWithUser, waitForRows, type ServiceWithUser } from './service-access.ts';

/** The trace of a client's request, and the span that the client has started for it. */
export interface TracedIds {
  readonly trace: string;
  readonly clientSpan: string;
}

/** Starts a service that sends its traces to a collector, and samples only what its clients sample. */
export function startTraced(
  dataDir: string,
  endpoint: string,
  protocol: 'http/json' | 'http/protobuf',
): Promise<ServiceWithUser> {
  const settings = {
    TRIBUTARY_QUOTA_USER: '10000/s',
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
    OTEL_EXPORTER_OTLP_PROTOCOL: protocol,
    OTEL_TRACES_SAMPLER: 'parentbased_always_off',
    OTEL_BSP_SCHEDULE_DELAY: '100',
    OTEL_SERVICE_NAME: 'events',
  };
  return startWithUser({ dataDir, settings });
}

const clientSpan = '00f067aa0ba902b7';
const contextOf = ({ trace, clientSpan: span }: TracedIds, flags: '00' | '01'): string =>
  `00-${trace}-${span}-${flags}`;

async function sendEvent({ service, token }: ServiceWithUser, customUserId: string, traceparent: string) {
  const response = await fetch(`${service.s2s}/v1/customEvent/?idApp=1`, {
    method: 'POST',
    headers: { authorization: token, traceparent },
    body: JSON.stringify({ customUserId, customEventName: 'level' }),
  });
  expect(response.status).toBe(200);
}

/**
 * Sends an event of a sampled trace and one of a trace that is not sampled, waits until the lake has both, and exports
 * them in another sampled trace.
 */
export async function traceEverything(started: ServiceWithUser) {
  const { service, user } = started;
  const traced = {
    import: { trace: '4bf92f3577b34da6a3ce929d0e0e4736', clientSpan },
    export: { trace: '0af7651916cd43dd8448eb211c80319c', clientSpan: 'b7ad6b7169203331' },
  };
  await sendEvent(started, 'sampled user', contextOf(traced.import, '01'));
  await sendEvent(started, 'other user', contextOf({ trace: 'd'.repeat(32), clientSpan }, '00'));
  await waitForRows(service, 2);
  const created = await fetch(`${service.api}/api/raw/v1/export/create.json`, {
    method: 'POST',
    headers: { authorization: basic(user), traceparent: contextOf(traced.export, '01') },
    body: exportQuery('customUserId'),
  });
  const { data } = (await created.json()) as { readonly data: { readonly idRawExport: string } };
  const client = createExportClient(service, user);
  expect((await client.waitForEnd(data.idRawExport)).status).toBe('Success!');
  return traced;
}
