import { AggregatorRegistry, Counter, Gauge, Histogram, Registry } from 'prom-client';

/**
 * Metrics of one process. Names are `tributary_<stage>_<what>_<unit>[_total]`; label sets are closed. Values live in
 * the process and start again at zero with it: the lake's own log, not a counter, is the truth about events.
 */
export interface Metrics {
  counter<L extends string = never>(name: string, help: string, labels?: readonly L[]): Counter<L>;
  /**
   * A counter for what happens with each request: gives the function that counts by the value of its only label. An
   * entry of a map, which becomes the library's counter when the metrics are read: that would hash labels each time.
   */
  tally(name: string, help: string, label: string): (value: string, count: number) => void;
  gauge<L extends string = never>(name: string, help: string, labels?: readonly L[]): Gauge<L>;
  /** A gauge whose value is read whenever the metrics are. */
  readGauge(name: string, help: string, read: () => number): void;
  /**
   * Calls `look` whenever the metrics are about to be read, to set gauges that belong together. It handles its own
   * errors, and is quick: a scrape waits a second for a process.
   */
  beforeRead(look: () => void | Promise<void>): void;
  histogram<L extends string = never>(
    name: string,
    help: string,
    buckets: number[],
    labels?: readonly L[],
  ): Histogram<L>;
  /** A plain value that can cross a process boundary and be merged with those of other processes. */
  snapshot(): Promise<unknown[]>;
}

/** Creates an empty set of metrics. */
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

/** Merges the snapshots of several processes into one Prometheus text page. */
export async function renderMetrics(snapshots: readonly unknown[][]): Promise<{ contentType: string; body: string }> {
  const merged = AggregatorRegistry.aggregate(snapshots as object[]);
  return { contentType: merged.contentType, body: await merged.metrics() };
}
