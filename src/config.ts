import { availableParallelism } from 'node:os';
import path from 'node:path';
import { dataFormatPath } from './runtime/files/data-format.ts';
import { AppError } from './runtime/errors.ts';
import { parseServerAddresses } from './runtime/processes/server-addresses.ts';
import { createOutgoingRules } from './runtime/http/outgoing-rules.ts';
import type { Quota } from './runtime/async/rate-limits.ts';
import { findNearest } from './runtime/nearest-name.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

const mebibyte = 1024 * 1024;
const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];
const quotaUnitsMs: Readonly<Record<string, number>> = { s: 1000, min: 60_000, h: 3_600_000 };

/** Reads single variables and collects all problems. */
function createReader(environment: Environment) {
  const problems: string[] = [];
  const names = new Set<string>();
  const read = (name: string): string | undefined => {
    names.add(`TRIBUTARY_${name}`);
    const value = environment[`TRIBUTARY_${name}`];
    return value === undefined || value === '' ? undefined : value;
  };
  // Credentials before the host of an address are secret.
  const problem = (name: string, rule: string): void =>
    void problems.push(`TRIBUTARY_${name} ${rule}, not '${read(name)?.replace(/\/\/.*@/, '//...@')}'`);

  return {
    problems,
    /** All variables that were read. */
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
    /** Reads a word that can be a stream's name, a folder of the broker and a part of a subject. */
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

function readConfig(read: ReturnType<typeof createReader>) {
  const apiPort = read.integer('API_PORT', 8081, 0, 65_535);
  const geoDatabase = read.text('GEO_DB');
  const dataDir = path.resolve(read.text('DATA_DIR') ?? 'data');
  return {
    dataDir,
    host: read.text('HOST') ?? '127.0.0.1',
    s2sPort: read.integer('S2S_PORT', 8080, 0, 65_535),
    apiPort,
    /** Address of metrics and readiness. */
    opsHost: read.text('OPS_HOST') ?? '127.0.0.1',
    /** Host names that requests to that address may use. */
    opsNames: (read.text('OPS_NAMES') ?? '').split(',').map((name) => name.trim()),
    // A service on any free port must not also need a fixed one.
    opsPort: read.integer('OPS_PORT', apiPort === 0 ? 0 : 8082, 0, 65_535),
    /** Time between "not ready" and closing the ports at a stop. */
    drainMs: read.integer('DRAIN_MS', 0, 0, 600_000),
    /** The addresses that clients use, without a trailing slash, if they differ from the service's own. */
    publicS2sUrl: read.url('PUBLIC_S2S_URL', ['http:', 'https:']),
    publicApiUrl: read.url('PUBLIC_API_URL', ['http:', 'https:']),
    /** Comma-separated servers of an external NATS cluster; undefined for the embedded server. */
    natsUrl: read.servers('NATS_URL'),
    /** Name of the stream, unique in its cluster. */
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
    /** Simultaneous export requests of an account. */
    maxExports: read.integer('MAX_EXPORTS', 10, 1, 1000),
    /** Exports that run at once; others wait. */
    exportWorkers: read.integer('EXPORT_WORKERS', 2, 1, 64),
    exportMaxRows: read.integer('EXPORT_MAX_ROWS', 100_000_000, 1),
    /** Bytes of CSV before compression. */
    exportMaxBytes: read.integer('EXPORT_MAX_BYTES', 64 * 1024 * mebibyte, 1),
    exportTimeoutMs: read.integer('EXPORT_TIMEOUT_MS', 3_600_000, 1000),
    singleFileMaxBytes: read.integer('SINGLE_FILE_MAX_BYTES', 10 * mebibyte, 0),
    partMaxBytes: read.integer('PART_MAX_BYTES', 256 * mebibyte, 1024),
    duckdbMemoryMb: read.integer('DUCKDB_MEMORY_MB', 2048, 256),
    diskReserveBytes: read.integer('DISK_RESERVE_BYTES', 256 * mebibyte, 0),
    quotaUser: read.quotas('QUOTA_USER', '10/s,100/min,1000/h'),
    quotaIp: read.quotas('QUOTA_IP', '100/s,1000/min'),
    /** Retention of rejected requests; 0 stores none. */
    refusalsAgeMs: read.integer('REFUSALS_AGE_MS', 86_400_000, 0, 604_800_000),
    /** Stored part of a rejected body: nothing, its structure, or its text. */
    refusalsBodies: read.oneOf('REFUSALS_BODIES', 'redacted', ['off', 'redacted', 'on']),
    /** Networks and names that webhooks may be sent to (runtime/http/outgoing-rules.ts). */
    webhooksAllow: read.outgoing('WEBHOOKS_ALLOW'),
    clockOffsetSeconds: read.integer('CLOCK_OFFSET_SECONDS', 0, -315_360_000, 315_360_000),
    logLevel: read.oneOf('LOG_LEVEL', 'info', logLevels),
    /** Name or number of the group that may read the lake. */
    lakeGroup: read.text('LAKE_GROUP'),
    enriches: read.oneOf('ENRICH', 'on', ['on', 'off']) === 'on',
    /** Absolute path of an MMDB file; undefined for the package's own. */
    geoDatabase: geoDatabase === undefined ? undefined : path.resolve(geoDatabase),
    /** Folder of the operator's pipelines and row schemas. */
    datasetsDir: path.resolve(read.text('DATASETS_DIR') ?? dataPaths(dataDir).datasets),
  };
}

/** The service's settings; docs/operating.md lists the variables. Paths are absolute. */
export type Config = Readonly<ReturnType<typeof readConfig>>;

/**
 * Parses the environment. Unset and empty variables have their defaults. Errors: `config_invalid`, which lists all bad
 * ones.
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
 * Variables with the prefix that are not settings of the service: of the set-up, of clients (src/client), of tests and
 * benchmarks.
 */
const otherVariables =
  /^TRIBUTARY_(CACHE_DIR|PROFILE|IMPORT_URL|EXPORT_URL|APP|TOKEN|USER|SECRET|CHAOS|SAMPLE_EVENTS|(TEST|BENCH)_.*)$/;

/** Finds variables that look like settings but are not, and for each the setting that was probably meant. */
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

/** Selects the settings of one part of the service, which then has no others, such as the broker's password. */
export function pickSettings<Name extends keyof Config>(config: Config, names: readonly Name[]): Pick<Config, Name> {
  return Object.fromEntries(names.map((name) => [name, config[name]])) as Pick<Config, Name>;
}

/** Paths in the data folder, which docs/operating.md describes. */
export function dataPaths(dataDir: string) {
  return {
    format: dataFormatPath(dataDir),
    access: path.join(dataDir, 'access.json'),
    claim: path.join(dataDir, 'stream-claim.json'),
    keys: path.join(dataDir, 'keys'),
    nats: path.join(dataDir, 'nats'),
    lake: path.join(dataDir, 'lake'),
    reports: path.join(dataDir, 'reports'),
    segments: path.join(dataDir, 'segments'),
    titles: path.join(dataDir, 'titles'),
    webhooks: path.join(dataDir, 'webhooks'),
    schedules: path.join(dataDir, 'schedules'),
    /** A cache that finds event ids. */
    eventIndex: path.join(dataDir, 'event-index'),
    refusals: path.join(dataDir, 'refusals'),
    /** The default folder of the operator's pipelines and row schemas. */
    datasets: path.join(dataDir, 'datasets'),
    /** Marks of known records (runtime/store/marked-records.ts). */
    records: path.join(dataDir, 'records'),
    spool: path.join(dataDir, 'spool'),
    run: path.join(dataDir, 'run'),
  } as const;
}
