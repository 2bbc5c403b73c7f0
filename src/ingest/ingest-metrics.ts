import { importKinds } from '../datasets/dataset.ts';
import type { EventKind, ImportMethod } from '../datasets/field-schema.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { GroupFigures } from './group-commit.ts';
import { refusalReasons, type RefusalReason } from './refusal.ts';

/** Apps beyond this many share the label `other`, so that the label set stays closed whatever is registered. */
const maxAppLabels = 200;
const latencyBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5];
const groupEventBuckets = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

/** What ingest counts. Events are counted when their request is answered. */
export interface IngestMetrics {
  /** A request with events that were valid; counted before they are published. */
  received(kind: EventKind, events: number): void;
  acknowledged(kind: EventKind, idApp: number, events: number): void;
  refused(reason: RefusalReason): void;
  /** A refused request whose token suited its app. */
  refusedOfApp(idApp: number): void;
  unknownParameters(idApp: number, count: number): void;
  /** From the request's headers to its answer. */
  answered(method: ImportMethod, tookMs: number): void;
  group(figures: GroupFigures): void;
  /** What was counted since the start: events acknowledged, and requests refused by reason. */
  counts(): { readonly events: number; readonly refused: Readonly<Record<string, number>> };
}

/** Gives each app its label. */
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

/** Registers ingest's metrics. */
export function createIngestMetrics(metrics: Metrics): IngestMetrics {
  return withCounts(registerMetrics(metrics));
}

/** Keeps sums beside the metrics, for the service's status. */
function withCounts(metrics: Omit<IngestMetrics, 'counts'>): IngestMetrics {
  let events = 0;
  const refused = new Map<RefusalReason, number>();
  return {
    ...metrics,
    acknowledged(kind, idApp, count) {
      events += count;
      metrics.acknowledged(kind, idApp, count);
    },
    refused(reason) {
      refused.set(reason, (refused.get(reason) ?? 0) + 1);
      metrics.refused(reason);
    },
    counts: () => ({ events, refused: Object.fromEntries(refused) }),
  };
}

function registerMetrics(metrics: Metrics): Omit<IngestMetrics, 'counts'> {
  const received = metrics.tally(
    'ingest_events_received_total',
    'Valid events received, whether acknowledged or not.',
    'kind',
  );
  const acknowledged = metrics.tally(
    'ingest_events_acknowledged_total',
    'Events acknowledged with 200: durable in the stream.',
    'kind',
  );
  const byApp = metrics.tally(
    'ingest_app_events_acknowledged_total',
    `Events acknowledged, by app; apps after the first ${maxAppLabels} count as other.`,
    'id_app',
  );
  const refused = metrics.counter('ingest_requests_refused_total', 'Requests refused, by reason.', ['reason']);
  const refusedByApp = metrics.tally(
    'ingest_app_requests_refused_total',
    `Requests refused whose token suited their app, by app; apps after the first ${maxAppLabels} count as other.`,
    'id_app',
  );
  const unknown = metrics.counter('ingest_unknown_parameters_total', 'Parameters that no schema knows, ignored.');
  const unknownByApp = metrics.tally(
    'ingest_app_unknown_parameters_total',
    `Parameters that no schema knows, by app; apps after the first ${maxAppLabels} count as other.`,
    'id_app',
  );
  const seconds = metrics.histogram(
    'ingest_request_seconds',
    'Time from the headers of an import request to its answer.',
    latencyBuckets,
    ['method'],
  );
  const groupSeconds = metrics.histogram(
    'ingest_publish_seconds',
    'Time from sending a group to its PubAck.',
    latencyBuckets,
  );
  const groupRequests = metrics.histogram(
    'ingest_group_requests',
    'Requests that shared one message.',
    groupEventBuckets,
  );
  const groupBytes = metrics.counter('ingest_published_bytes_total', 'Bytes published to the stream and confirmed.');

  for (const kind of importKinds.keys()) for (const count of [received, acknowledged]) count(kind, 0);
  for (const reason of refusalReasons) refused.inc({ reason }, 0);
  const labelOf = createAppLabels();

  return {
    received,
    acknowledged(kind, idApp, count) {
      acknowledged(kind, count);
      byApp(labelOf(idApp), count);
    },
    refused: (reason) => refused.inc({ reason }),
    refusedOfApp: (idApp) => refusedByApp(labelOf(idApp), 1),
    unknownParameters(idApp, count) {
      unknown.inc(count);
      unknownByApp(labelOf(idApp), count);
    },
    answered: (method, tookMs) => seconds.observe({ method }, tookMs / 1000),
    group({ appends, bytes, tookMs }) {
      groupSeconds.observe(tookMs / 1000);
      groupRequests.observe(appends);
      groupBytes.inc(bytes);
    },
  };
}
