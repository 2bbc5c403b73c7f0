import { availableParallelism } from 'node:os';
import path from 'node:path';
import { dataFormatPath } from './runtime/files/data-format.ts';
import { AppError } from './runtime/errors.ts';
import { parseServerAddresses } from './runtime/processes/server-addresses.ts';
import { createOutgoingRules } from './runtime/http/outgoing-rules.ts';
import type { Quota } from './runtime/http/quota.ts';
import { findNearest } from './runtime/nearest-name.ts';

/** The service's settings, resolved once; units stand last in each name. docs/operating.md lists the variables. */
export interface Config {
  /** Absolute path of the data folder. */
  readonly dataDir: string;
  readonly host: string;
  readonly s2sPort: number;
  readonly apiPort: number;
  /** The operator's address: metrics, and what is wrong. */
  readonly opsHost: string;
  /** Host names that requests to the operator's address may name. */
  readonly opsNames: readonly string[];
  /** Time between "not ready" and closing the ports when the service is stopped, ms. */
  readonly drainMs: number;
  readonly opsPort: number;
  /** The address clients see, without a trailing slash, when a proxy stands before the service. */
  readonly publicS2sUrl: string | undefined;
  readonly publicApiUrl: string | undefined;
  /** The servers of an external NATS cluster, with commas between; undefined: the service runs its own server. */
  readonly natsUrl: string | undefined;
  /** Name of the stream, one for each service that shares a cluster. */
  readonly streamName: string;
  readonly ingestWorkers: number;
  readonly streamMaxBytes: number;
  readonly flushAgeMs: number;
  readonly flushMaxBytes: number;
  readonly flushMaxRows: number;
  readonly sealAgeMs: number;
  readonly sealMaxBytes: number;
  readonly retentionMs: number;
  readonly linkTtlSeconds: number;
  /** Simultaneous export requests of an account. */
  readonly maxExports: number;
  /** Exports that run at once; the others wait. */
  readonly exportWorkers: number;
  readonly exportMaxRows: number;
  /** Bytes of CSV, before compression. */
  readonly exportMaxBytes: number;
  readonly exportTimeoutMs: number;
  readonly singleFileMaxBytes: number;
  readonly partMaxBytes: number;
  readonly duckdbMemoryMb: number;
  readonly diskReserveBytes: number;
  readonly quotaUser: readonly Quota[];
  readonly quotaIp: readonly Quota[];
  /** How long refusals are kept for their app's owner; 0: none is. */
  readonly refusalsAgeMs: number;
  /** What is kept of the bodies of refused requests: nothing, their shape, or their text. */
  readonly refusalsBodies: 'off' | 'redacted' | 'on';
  /** Networks and names that webhooks may be sent to; see runtime/http/outgoing-rules.ts. */
  readonly webhooksAllow: readonly string[];
  readonly clockOffsetSeconds: number;
  readonly logLevel: string;
  /** The group that may read the lake, by name or number; undefined: its owner alone. */
  readonly lakeGroup: string | undefined;
  /** Events are stored with what their addresses and User-Agents say. */
  readonly enriches: boolean;
  /** Absolute path of the MMDB file that places come from; undefined: the package's own. */
  readonly geoDatabase: string | undefined;
  /** Absolute path of the operator's own pipelines and row schemas. */
  readonly datasetsDir: string;
}

export type Environment = Readonly<Record<string, string | undefined>>;

const mebibyte = 1024 * 1024;
const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];
const quotaUnitsMs: Readonly<Record<string, number>> = { s: 1000, min: 60_000, h: 3_600_000 };

/** Reads one variable at a time and remembers every problem, so that all are named at once. */
function createReader(environment: Environment) {
  const problems: string[] = [];
  const names = new Set<string>();
  const read = (name: string): string | undefined => {
    names.add(`TRIBUTARY_${name}`);
    const value = environment[`TRIBUTARY_${name}`];
    return value === undefined || value === '' ? undefined : value;
  };
  // What stands before the host of an address is a secret.
  const problem = (name: string, rule: string): void =>
    void problems.push(`TRIBUTARY_${name} ${rule}, not '${read(name)?.replace(/\/\/.*@/, '//...@')}'`);

  return {
    problems,
    /** The variables that were asked for. */
    names,
    text: (name: string): string | undefined => read(name),
    integer(name: string, fallback: number, min: number, max: number = Number.MAX_SAFE_INTEGER): number {
      const text = read(name);
      if (text === undefined) return fallback;
      const value = /^-?\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
      if (value >= min && value <= max) return value;
      problem(name, `must be a whole number from ${min} to ${max}`);
      return fallback;
    },
    oneOf<Word extends string>(name: string, fallback: Word, allowed: readonly Word[]): Word {
      const text = read(name) ?? fallback;
      const found = allowed.find((word) => word === text);
      if (found === undefined) problem(name, `must be one of ${allowed.join(', ')}`);
      return found ?? fallback;
    },
    url(name: string, protocols: readonly string[]): string | undefined {
      const text = read(name);
      if (text === undefined) return undefined;
      const url = URL.canParse(text) ? new URL(text) : undefined;
      if (url === undefined || !protocols.includes(url.protocol)) {
        problem(
          name,
          `must be an address that starts with ${protocols.map((protocol) => `${protocol}//`).join(' or ')}`,
        );
      }
      return text.replace(/\/+$/, '');
    },
    servers(name: string): string | undefined {
      const text = read(name);
      if (text === undefined) return undefined;
      const servers = parseServerAddresses(text);
      if ('problem' in servers) problem(name, servers.problem);
      return text;
    },
    /** A word that is a stream's name, a folder of the broker's and a part of a subject. */
    name(name: string, fallback: string): string {
      const text = read(name) ?? fallback;
      if (!/^[A-Za-z0-9_-]{1,64}$/.test(text)) problem(name, 'must be 1 to 64 letters, digits, _ or -');
      return text;
    },
    outgoing(name: string): readonly string[] {
      const entries = (read(name) ?? '').split(',').filter((entry) => entry.trim() !== '');
      const rules = createOutgoingRules(entries);
      if (typeof rules === 'string') problem(name, `must be networks and names, and '${rules}' is neither`);
      return entries;
    },
    quotas(name: string, fallback: string): readonly Quota[] {
      const text = read(name) ?? fallback;
      if (text === 'off') return [];
      const quotas = text.split(',').map((part) => /^([1-9]\d{0,8})\/(s|min|h)$/.exec(part.trim()));
      if (quotas.some((quota) => quota === null))
        problem(name, "must be limits such as '10/s,100/min,1000/h', or 'off'");
      return quotas.flatMap((quota) =>
        quota === null ? [] : [{ limit: Number(quota[1]), windowMs: quotaUnitsMs[quota[2] ?? ''] ?? 0 }],
      );
    },
  };
}

function readConfig(read: ReturnType<typeof createReader>): Config {
  const apiPort = read.integer('API_PORT', 8081, 0, 65_535);
  const geoDatabase = read.text('GEO_DB');
  const dataDir = path.resolve(read.text('DATA_DIR') ?? 'data');
  return {
    dataDir,
    host: read.text('HOST') ?? '127.0.0.1',
    s2sPort: read.integer('S2S_PORT', 8080, 0, 65_535),
    apiPort,
    opsHost: read.text('OPS_HOST') ?? '127.0.0.1',
    opsNames: (read.text('OPS_NAMES') ?? '').split(',').map((name) => name.trim()),
    // Who asks for any free port does not want a fixed one beside it.
    opsPort: read.integer('OPS_PORT', apiPort === 0 ? 0 : 8082, 0, 65_535),
    drainMs: read.integer('DRAIN_MS', 0, 0, 600_000),
    publicS2sUrl: read.url('PUBLIC_S2S_URL', ['http:', 'https:']),
    publicApiUrl: read.url('PUBLIC_API_URL', ['http:', 'https:']),
    natsUrl: read.servers('NATS_URL'),
    streamName: read.name('STREAM', 'TRIBUTARY_EVENTS'),
    ingestWorkers: read.integer(
      'INGEST_WORKERS',
      Math.max(1, Math.min(4, Math.floor(availableParallelism() / 2))),
      1,
      64,
    ),
    streamMaxBytes: read.integer('STREAM_MAX_BYTES', 8192 * mebibyte, mebibyte),
    flushAgeMs: read.integer('FLUSH_AGE_MS', 5000, 10, 3_600_000),
    flushMaxBytes: read.integer('FLUSH_MAX_BYTES', 128 * mebibyte, mebibyte),
    flushMaxRows: read.integer('FLUSH_MAX_ROWS', 250_000, 1),
    sealAgeMs: read.integer('SEAL_AGE_MS', 3_600_000, 10),
    sealMaxBytes: read.integer('SEAL_MAX_BYTES', 128 * mebibyte, 1),
    retentionMs: read.integer('RETENTION_MS', 86_400_000, 1000),
    linkTtlSeconds: read.integer('LINK_TTL_SECONDS', 86_400, 1, 604_800),
    maxExports: read.integer('MAX_EXPORTS', 10, 1, 1000),
    exportWorkers: read.integer('EXPORT_WORKERS', 2, 1, 64),
    exportMaxRows: read.integer('EXPORT_MAX_ROWS', 100_000_000, 1),
    exportMaxBytes: read.integer('EXPORT_MAX_BYTES', 64 * 1024 * mebibyte, 1),
    exportTimeoutMs: read.integer('EXPORT_TIMEOUT_MS', 3_600_000, 1000),
    singleFileMaxBytes: read.integer('SINGLE_FILE_MAX_BYTES', 10 * mebibyte, 0),
    partMaxBytes: read.integer('PART_MAX_BYTES', 256 * mebibyte, 1024),
    duckdbMemoryMb: read.integer('DUCKDB_MEMORY_MB', 2048, 256),
    diskReserveBytes: read.integer('DISK_RESERVE_BYTES', 256 * mebibyte, 0),
    quotaUser: read.quotas('QUOTA_USER', '10/s,100/min,1000/h'),
    quotaIp: read.quotas('QUOTA_IP', '100/s,1000/min'),
    refusalsAgeMs: read.integer('REFUSALS_AGE_MS', 86_400_000, 0, 604_800_000),
    refusalsBodies: read.oneOf('REFUSALS_BODIES', 'redacted', ['off', 'redacted', 'on']),
    webhooksAllow: read.outgoing('WEBHOOKS_ALLOW'),
    clockOffsetSeconds: read.integer('CLOCK_OFFSET_SECONDS', 0, -315_360_000, 315_360_000),
    logLevel: read.oneOf('LOG_LEVEL', 'info', logLevels),
    lakeGroup: read.text('LAKE_GROUP'),
    enriches: read.oneOf('ENRICH', 'on', ['on', 'off']) === 'on',
    geoDatabase: geoDatabase === undefined ? undefined : path.resolve(geoDatabase),
    datasetsDir: path.resolve(read.text('DATASETS_DIR') ?? dataPaths(dataDir).datasets),
  };
}

/**
 * Turns the environment into a frozen Config. Unset and empty variables take their defaults; every bad one is named in
 * a single `config_invalid` error.
 */
export function parseConfig(environment: Environment): Config {
  const read = createReader(environment);
  const config = readConfig(read);
  if (read.problems.length > 0) {
    throw new AppError('config_invalid', `bad settings: ${read.problems.join('; ')}`, {
      hint: 'The table of settings is in docs/operating.md.',
    });
  }
  return Object.freeze(config);
}

/**
 * Variables of our prefix that are no settings of the service: the set-up's, those of its callers (src/client), and those
 * of its tests and benchmarks.
 */
const otherVariables =
  /^TRIBUTARY_(CACHE_DIR|PROFILE|IMPORT_URL|EXPORT_URL|APP|TOKEN|USER|SECRET|CHAOS|SAMPLE_EVENTS|(TEST|BENCH)_.*)$/;

/**
 * Finds variables that look like settings and are none, each with the setting that was probably meant: a typing error
 * must not pass in silence.
 */
export function findUnknownSettings(
  environment: Environment,
): readonly { readonly variable: string; readonly probably: string | undefined }[] {
  const read = createReader({});
  readConfig(read);
  const known = [...read.names];
  const unknown = Object.keys(environment).filter(
    (name) => name.startsWith('TRIBUTARY_') && !read.names.has(name) && !otherVariables.test(name),
  );
  return unknown.map((variable) => ({ variable, probably: findNearest(variable, known) }));
}

/** Takes the settings that one part of the service needs: it gets no others, such as the broker's password. */
export function pickSettings<Name extends keyof Config>(config: Config, names: readonly Name[]): Pick<Config, Name> {
  return Object.fromEntries(names.map((name) => [name, config[name]])) as Pick<Config, Name>;
}

/** The paths below the data folder; docs/operating.md says what is in each. */
export function dataPaths(dataDir: string) {
  return {
    format: dataFormatPath(dataDir),
    access: path.join(dataDir, 'access.json'),
    /** The claim on the stream. */
    claim: path.join(dataDir, 'stream-claim.json'),
    keys: path.join(dataDir, 'keys'),
    nats: path.join(dataDir, 'nats'),
    lake: path.join(dataDir, 'lake'),
    reports: path.join(dataDir, 'reports'),
    segments: path.join(dataDir, 'segments'),
    titles: path.join(dataDir, 'titles'),
    webhooks: path.join(dataDir, 'webhooks'),
    schedules: path.join(dataDir, 'schedules'),
    /** What event ids are found by: a cache, made anew where it is gone. */
    eventIndex: path.join(dataDir, 'event-index'),
    refusals: path.join(dataDir, 'refusals'),
    /** The operator's own pipelines and row schemas, unless TRIBUTARY_DATASETS_DIR names another folder. */
    datasets: path.join(dataDir, 'datasets'),
    /** Marks of the records that are known (runtime/store/marked-records.ts). */
    records: path.join(dataDir, 'records'),
    spool: path.join(dataDir, 'spool'),
    run: path.join(dataDir, 'run'),
  } as const;
}
