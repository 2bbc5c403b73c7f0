import { defineCommand, type ParsedOptions } from './command.ts';
import { failUsage, flag, parsed, positive, required, withDefault, type OptionSpec } from './option-specs.ts';

/**
 * The calculator of machines, requests and cost. Formulas, and where each figure was measured: docs/sizing.md, which a
 * test compares with this file.
 */

const gib = 1024 ** 3;
const [daySeconds, monthDays] = [86_400, 30.4];

/** Measured figures of docs/benchmarks.md; events have `eventBytes` of JSON. */
const measured = {
  eventBytes: 560,
  /** CPU of an import, µs: of a request, and of each event in it. */
  requestUs: 44,
  eventUs: 5.9,
  brokerUs: 4.7,
  /** CPU of the compactor with sealing, µs per event. */
  compactUs: 17.1,
  /** Bytes of an event in the lake, sealed, and in the stream. */
  lakeBytes: 31.4,
  streamBytes: 754,
  /** How many times compression makes the messages of a cluster's stream smaller. */
  compression: 7,
  /** Memory of an idle service, of the compactor, and of a key of the last day. */
  idleBytes: 0.2 * gib,
  compactorBytes: 2.3 * gib,
  keyBytes: 16,
  /** The highest rate that a benchmark of the whole service held, events/s. */
  steadyEvents: 50_000,
} as const;

/** Requests to a bucket: of idle hosts per second, and of a flush. Writes include lists, reads include HEAD. */
const bucketRequests = {
  idle: {
    ingest: { writes: 0.6, reads: 5.3 },
    compact: { writes: 3.1, reads: 5.3 },
    export: { writes: 1.5, reads: 11.4 },
  },
  flush: { writes: 5.1, reads: 8.9 },
} as const;

/** Defaults of the settings that the result depends on. */
const settings = {
  flushSeconds: 5,
  flushBytes: 128 * 1024 ** 2,
  exportWorkers: 2,
  /** DuckDB's memory in a process, and what the process takes more. */
  workerBytes: 2.5 * gib,
  streamBytes: 8 * gib,
  cacheBytes: 32 * gib,
} as const;

const perMonthOf = (price: string) => `price of ${price} a month`;

function decimal(about: string, fallback: number): OptionSpec<number> {
  const read = parsed(about, 'N', (value, what) => {
    const number = /^\d{1,9}(?:\.\d{1,6})?$/.test(value) ? Number(value) : Number.NaN;
    return Number.isFinite(number) ? number : failUsage(`${what} must be a number such as 0.08, not '${value}'`);
  });
  return withDefault(read, fallback);
}

const options = {
  eventsPerDay: required(positive('mean number of events a day')),
  bytes: withDefault(positive('mean size of an event as JSON, bytes'), measured.eventBytes),
  batch: withDefault(positive('events of a request'), 17),
  keys: flag('requests have an Idempotency-Key'),
  peak: decimal('highest rate, as a multiple of the mean', 4),
  days: withDefault(positive('days that events are kept'), 365),
  priceVcpu: decimal(perMonthOf('a vCPU'), 20),
  priceMemory: decimal(perMonthOf('a GiB of memory'), 2.5),
  priceDisk: decimal(perMonthOf('a GiB of disk'), 0.08),
  priceBucket: decimal(perMonthOf('a GiB in the bucket'), 0.023),
  priceWrites: decimal('price of a million writes and lists in the bucket', 5),
  priceReads: decimal('price of a million reads in the bucket', 0.4),
} as const;

export type SizeOptions = Omit<ParsedOptions<typeof options>, 'data' | 'json'>;

/** Rounds to three digits. */
const round = (value: number): number => Number(value.toPrecision(3));

/** Returns the next size of a machine: a power of two, at least 2. */
const sizeUp = (value: number): number => 2 ** Math.max(1, Math.ceil(Math.log2(value)));

/** Most vCPU of a host of a cluster; a higher load gets more hosts. */
const maxHostVcpu = 8;

interface Hosts {
  readonly hosts: number;
  readonly vcpu: number;
  readonly memoryGiB: number;
  readonly diskGiB: number;
}

function costOf(machines: readonly Hosts[], { priceVcpu, priceMemory, priceDisk }: SizeOptions): number {
  return machines.reduce(
    (sum, { hosts, vcpu, memoryGiB, diskGiB }) =>
      sum + hosts * (vcpu * priceVcpu + memoryGiB * priceMemory + diskGiB * priceDisk),
    0,
  );
}

/** Rates and CPU at the peak. CPU grows with the size of an event, from that of the benchmarks on. */
function loadOf({ eventsPerDay, bytes, batch, keys, peak }: SizeOptions) {
  const eventsPerSecond = (eventsPerDay / daySeconds) * peak;
  const scale = Math.max(1, bytes / measured.eventBytes);
  const cores = (us: number): number => (eventsPerSecond * us * scale) / 1e6;
  return {
    eventsPerSecond,
    cores: {
      ingest: cores(measured.requestUs / batch + measured.eventUs),
      broker: cores(measured.brokerUs),
      compact: cores(measured.compactUs),
    },
    lakeGiB: (perDay: number): number => (perDay * measured.lakeBytes * (bytes / measured.eventBytes)) / gib,
    streamBytesPerSecond: eventsPerSecond * measured.streamBytes * (bytes / measured.eventBytes),
    keysBytes: keys ? (eventsPerDay / batch) * measured.keyBytes : 0,
  };
}

type Load = ReturnType<typeof loadOf>;

/** Half of the CPU is left to exports and the system. */
const headroom = 2;

const workersBytes = settings.exportWorkers * settings.workerBytes;

function sizeOneMachine(load: Load, given: SizeOptions) {
  const { cores } = load;
  const memoryBytes = measured.idleBytes + measured.compactorBytes + load.keysBytes + workersBytes;
  const lakeGiB = load.lakeGiB(given.eventsPerDay * given.days);
  // Replaced files stay for a day.
  const diskGiB = lakeGiB + load.lakeGiB(given.eventsPerDay) + settings.streamBytes / gib;
  const machine = {
    hosts: 1,
    vcpu: sizeUp(headroom * (cores.ingest + cores.broker + cores.compact)),
    memoryGiB: sizeUp(memoryBytes / gib),
    diskGiB: Math.ceil(diskGiB),
  };
  const backupGiB = Math.ceil(lakeGiB);
  const cost = costOf([machine], given) + backupGiB * given.priceDisk;
  const { vcpu, memoryGiB } = machine;
  return {
    vcpu,
    memoryGiB,
    diskGiB: machine.diskGiB,
    backupGiB,
    secondsUntilStreamIsFull: Math.round(settings.streamBytes / load.streamBytesPerSecond),
    ...costs(cost, given),
  };
}

const costs = (costPerMonth: number, { eventsPerDay }: SizeOptions) => ({
  costPerMonth: Math.round(costPerMonth),
  costPerMillionEvents: round(costPerMonth / ((eventsPerDay * monthDays) / 1e6)),
});

/** Returns hosts that carry a load also if one of them is lost. */
function hostsFor(cores: number, memoryBytes: number, diskBytes: number, fewest = 2): Hosts {
  const needed = Math.ceil((headroom * cores) / maxHostVcpu);
  const vcpu = Math.min(maxHostVcpu, sizeUp(headroom * cores));
  return {
    hosts: Math.max(fewest, needed + 1),
    vcpu,
    memoryGiB: sizeUp(memoryBytes / gib),
    diskGiB: Math.ceil(diskBytes / gib),
  };
}

/** Requests to the bucket a month, if events arrive all the time. */
function requestsOf(
  load: Load,
  { peak }: SizeOptions,
  hosts: Readonly<Record<'ingest' | 'compact' | 'export', Hosts>>,
) {
  const monthSeconds = monthDays * daySeconds;
  const flushes =
    monthSeconds * Math.max(1 / settings.flushSeconds, load.streamBytesPerSecond / peak / settings.flushBytes);
  const count = (kind: 'writes' | 'reads'): number => {
    const idle = (['ingest', 'compact', 'export'] as const).reduce(
      (sum, role) => sum + hosts[role].hosts * bucketRequests.idle[role][kind],
      0,
    );
    return idle * monthSeconds + flushes * bucketRequests.flush[kind];
  };
  return { writes: count('writes'), reads: count('reads') };
}

function sizeCluster(load: Load, given: SizeOptions) {
  const { cores } = load;
  const perCopy = settings.streamBytes / measured.compression;
  const hosts = {
    nats: { ...hostsFor(cores.broker, 4 * gib, Math.max(perCopy, 10 * gib)), hosts: 3 },
    ingest: hostsFor(cores.ingest, 2 * gib, 10 * gib),
    // One works, the other one is on standby.
    compact: {
      ...hostsFor(cores.compact, measured.compactorBytes + load.keysBytes + gib, settings.cacheBytes),
      hosts: 2,
    },
    export: hostsFor(1, measured.idleBytes + workersBytes, settings.cacheBytes),
  };
  const bucketGiB = Math.ceil(load.lakeGiB(given.eventsPerDay * (given.days + 1)));
  const { writes, reads } = requestsOf(load, given, hosts);
  const cost =
    costOf(Object.values(hosts), given) +
    bucketGiB * given.priceBucket +
    (writes * given.priceWrites + reads * given.priceReads) / 1e6;
  const sum = (amount: (one: Hosts) => number): number =>
    Object.values(hosts).reduce((total, one) => total + one.hosts * amount(one), 0);
  const millionEvents = (given.eventsPerDay * monthDays) / 1e6;
  return {
    hosts,
    vcpu: sum(({ vcpu }) => vcpu),
    memoryGiB: sum(({ memoryGiB }) => memoryGiB),
    diskGiB: sum(({ diskGiB }) => diskGiB),
    bucketGiB,
    writesPerMonth: round(writes),
    readsPerMonth: round(reads),
    requestsPerMillionEvents: round((writes + reads) / millionEvents),
    secondsUntilStreamIsFull: Math.round((settings.streamBytes * measured.compression) / load.streamBytesPerSecond),
    ...costs(cost, given),
  };
}

/** Returns machines, requests and costs for a number of events. */
export function calculateSize(given: SizeOptions) {
  const load = loadOf(given);
  const isMeasured = load.eventsPerSecond <= measured.steadyEvents && load.cores.compact * headroom <= maxHostVcpu;
  return {
    peakEventsPerSecond: Math.round(load.eventsPerSecond),
    isMeasured,
    oneMachine: sizeOneMachine(load, given),
    cluster: sizeCluster(load, given),
  };
}

export const sizeCommand = defineCommand({
  name: 'size',
  summary: 'calculate machines, requests to a bucket and cost for a number of events',
  isWithoutData: true,
  options,
  details: [
    'Calculates one machine and a cluster from measured figures and default settings: docs/sizing.md has the formulas.',
    'Prices have no currency; the defaults are about those of large providers in USD.',
  ],
  examples: ['size --events-per-day 10000000', 'size --events-per-day 100000000 --bytes 900 --batch 1 --price-vcpu 12'],
  async run(given, { printMessage }) {
    if (given.peak < 1) failUsage('--peak must be at least 1');
    const size = calculateSize(given);
    if (!size.isMeasured)
      printMessage(
        `The peak exceeds the ${measured.steadyEvents.toLocaleString('en-US')} events/s that were measured with one compactor. Measure your own load first.`,
      );
    return await Promise.resolve(size);
  },
});
