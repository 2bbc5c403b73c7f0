import { importKinds } from '../datasets/dataset.ts';
import type { EventKind, ImportMethod } from '../datasets/field-schema.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { CommitGroupStats } from './group-commit.ts';
import { refusalReasons, type RefusalReason } from './refusal.ts';

/** Limits the labels: further apps share the label `other`. */
const maxAppLabels = 200;
const latencyBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5];
const groupEventBuckets = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

function createAppLabels(): (idApp: number) => string {
  const labels = new Map<number, string>();
  return (idApp) => {
    const known = labels.get(idApp);
    if (known !== undefined) return known;
    if (labels.size >= maxAppLabels) return 'other';
    labels.set(idApp, String(idApp));
    return String(idApp);
  };
}

/** Adds the gauges of requests in progress and of clients of the live view. */
export function followIngest(metrics: Metrics, waitingBytes: () => number, listeners: () => number): void {
  metrics.readGauge('ingest_waiting_bytes', 'Bytes that wait for an acknowledgement of the broker.', waitingBytes);
  metrics.readGauge('ingest_live_listeners', 'Clients that receive live events.', listeners);
}

const appHelp = (what: string): string =>
  `${what}, by app. The first ${maxAppLabels} apps have a label, the others share "other".`;

/** Registers the metrics of published groups, and keeps sums. */
function createGroupMetrics(metrics: Metrics) {
  const groupSeconds = metrics.histogram(
    'ingest_publish_seconds',
    "Time from publishing a group of requests to the broker's acknowledgement.",
    latencyBuckets,
  );
  const grouped = metrics.histogram(
    'ingest_group_requests',
    'Requests in one message of the stream.',
    groupEventBuckets,
  );
  const groupBytes = metrics.counter(
    'ingest_published_bytes_total',
    'Bytes of event lines published to the stream and acknowledged by the broker, before compression.',
  );
  const groupStoredBytes = metrics.counter(
    'ingest_stored_bytes_total',
    'Bytes of the acknowledged messages as the stream stores them, without headers: fewer if they are compressed.',
  );
  const published = { bytes: 0, storedBytes: 0 };
  return {
    published: () => ({ ...published }),
    observe({ appends, bytes, storedBytes, tookMs }: CommitGroupStats): void {
      groupSeconds.observe(tookMs / 1000);
      grouped.observe(appends);
      groupBytes.inc(bytes);
      groupStoredBytes.inc(storedBytes);
      published.bytes += bytes;
      published.storedBytes += storedBytes;
    },
  };
}

export type IngestMetrics = ReturnType<typeof createIngestMetrics>;

/** Registers ingest's metrics, and keeps sums for the service's status. */
export function createIngestMetrics(metrics: Metrics) {
  const labelOf = createAppLabels();
  const received = metrics.tally('ingest_events_received_total', 'Valid events received, acknowledged or not.', 'kind');
  const acknowledged = metrics.tally(
    'ingest_events_acknowledged_total',
    'Events acknowledged with 200, which are durable in the stream.',
    'kind',
  );
  const byApp = metrics.tally('ingest_app_events_acknowledged_total', appHelp('Events acknowledged'), 'id_app');
  const refused = metrics.counter('ingest_requests_refused_total', 'Rejected requests, by reason.', ['reason']);
  const refusedByApp = metrics.tally(
    'ingest_app_requests_refused_total',
    appHelp('Rejected requests with a valid token of the app'),
    'id_app',
  );
  const unknown = metrics.counter('ingest_unknown_parameters_total', 'Unknown parameters, which are ignored.');
  const unknownByApp = metrics.tally('ingest_app_unknown_parameters_total', appHelp('Unknown parameters'), 'id_app');
  const seconds = metrics.histogram(
    'ingest_request_seconds',
    'Time from the headers of an import request to its response.',
    latencyBuckets,
    ['method'],
  );
  const groups = createGroupMetrics(metrics);
  for (const kind of importKinds.keys()) for (const count of [received, acknowledged]) count(kind, 0);
  for (const reason of refusalReasons) refused.inc({ reason }, 0);
  let events = 0;
  const refusals = new Map<RefusalReason, number>();

  return {
    /** Counts valid events, before they are published. */
    received: (kind: EventKind, count: number): void => received(kind, count),
    acknowledged(kind: EventKind, idApp: number, count: number): void {
      events += count;
      acknowledged(kind, count);
      byApp(labelOf(idApp), count);
    },
    refused(reason: RefusalReason): void {
      refusals.set(reason, (refusals.get(reason) ?? 0) + 1);
      refused.inc({ reason });
    },
    /** Counts a refused request whose token matched its app. */
    refusedOfApp: (idApp: number): void => refusedByApp(labelOf(idApp), 1),
    unknownParameters(idApp: number, count: number): void {
      unknown.inc(count);
      unknownByApp(labelOf(idApp), count);
    },
    /** Observes the time from a request's headers to its response. */
    answered: (method: ImportMethod, tookMs: number): void => seconds.observe({ method }, tookMs / 1000),
    group: (figures: CommitGroupStats): void => groups.observe(figures),
    /** Returns the counts since the start: events and bytes acknowledged, and requests refused by reason. */
    counts: () => ({ events, published: groups.published(), refused: Object.fromEntries(refusals) }),
  };
}
