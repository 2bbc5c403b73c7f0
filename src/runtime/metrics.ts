import { AggregatorRegistry, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { addFormerMetrics, type SentMetric } from './former-names.ts';

/** Metrics named `tributary_<stage>_<what>_<unit>[_total]`, with closed label sets; counters start with the process. */
export interface Metrics {
  counter<L extends string = never>(name: string, help: string, labels?: readonly L[]): Counter<L>;
  /** Returns a counter with one label, updated per request: the library's counter would hash labels at each call. */
  tally(name: string, help: string, label: string): (value: string, count: number) => void;
  gauge<L extends string = never>(name: string, help: string, labels?: readonly L[]): Gauge<L>;
  /** Adds a gauge that is computed when the metrics are read. */
  readGauge(name: string, help: string, read: () => number): void;
  /** Calls `look` before each read, to set related gauges. It must be fast: a scrape waits one second for a process. */
  beforeRead(look: () => void | Promise<void>): void;
  histogram<L extends string = never>(
    name: string,
    help: string,
    buckets: number[],
    labels?: readonly L[],
  ): Histogram<L>;
  /** Returns the metrics in a form that can be sent to another process and merged. */
  snapshot(): Promise<unknown[]>;
}

export function createMetrics(): Metrics {
  const registry = new Registry();
  const registers = [registry];
  const looks: (() => void | Promise<void>)[] = [];
  return {
    counter: (name, help, labels) =>
      new Counter({ name: `tributary_${name}`, help, labelNames: labels ?? [], registers }),
    tally(name: string, help: string, label: string) {
      const counts = new Map<string, number>();
      const counter: Counter = new Counter({
        name: `tributary_${name}`,
        help,
        labelNames: [label],
        registers,
        collect() {
          counter.reset();
          for (const [value, count] of counts) counter.inc({ [label]: value }, count);
        },
      });
      return (value, count) => void counts.set(value, (counts.get(value) ?? 0) + count);
    },
    gauge: (name, help, labels) =>
      new Gauge({ name: `tributary_${name}`, help, labelNames: labels ?? [], registers, aggregator: 'sum' }),
    readGauge(name, help, read) {
      const gauge: Gauge = new Gauge({
        name: `tributary_${name}`,
        help,
        registers,
        aggregator: 'sum',
        collect: () => gauge.set(read()),
      });
    },
    histogram: (name, help, buckets, labels) =>
      new Histogram({ name: `tributary_${name}`, help, buckets, labelNames: labels ?? [], registers }),
    beforeRead: (look) => void looks.push(look),
    async snapshot() {
      await Promise.all(looks.map(async (look) => look()));
      return registry.getMetricsAsJSON();
    },
  };
}

/** Merges the snapshots of several processes into one Prometheus page. */
export async function renderMetrics(snapshots: readonly unknown[][]): Promise<{ contentType: string; body: string }> {
  const merged = AggregatorRegistry.aggregate(snapshots.map((metrics) => addFormerMetrics(metrics as SentMetric[])));
  return { contentType: merged.contentType, body: await merged.metrics() };
}
