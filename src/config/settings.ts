/** Settings: one declaration each, for the parser (src/config.ts) and docs/reference/settings.md. */
import { availableParallelism } from 'node:os';
import {
  address,
  bucketUrl,
  egressRules,
  integer,
  natsServers,
  oneOf,
  pathSetting,
  quotas,
  setting,
  word,
} from './setting-kinds.ts';
import { oidcSettings } from './oidc-settings.ts';

const mebibyte = 1024 * 1024;
const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

/** All settings of the service, in the order of the page. */
export const settings = {
  dataDir: pathSetting('DATA_DIR', {
    fallback: undefined,
    usual: './data',
    about: 'Data folder, on a local file system with hard links.',
  }),
  storageUrl: bucketUrl('STORAGE_URL', {
    usual: 'the data folder',
    about: 'Place in an S3 bucket of the lake, the reports and the state (`lake`, `reports` and `state` below it).',
    notes:
      "With it, the data folder has only work files and copies, and may be lost. Credentials are found as AWS's own tools find them. `AWS_REGION` is the region.",
  }),
  lakeUrl: bucketUrl('LAKE_URL', {
    usual: '`lake` below `TRIBUTARY_STORAGE_URL`',
    about: 'Place of the lake. Data engineers and other engines read it.',
  }),
  reportsUrl: bucketUrl('REPORTS_URL', {
    usual: '`reports` below `TRIBUTARY_STORAGE_URL`',
    about: 'Place of the export requests and their files.',
  }),
  stateUrl: bucketUrl('STATE_URL', {
    usual: '`state` below `TRIBUTARY_STORAGE_URL`',
    about: 'Place of apps, users, keys, schedules, webhooks, segments and titles. It has secrets: close it to readers.',
  }),
  s3Endpoint: address('S3_ENDPOINT', {
    usual: 'AWS',
    about: 'Address of an S3-compatible server.',
  }),
  s3PathStyle: oneOf('S3_PATH_STYLE', ['on', 'off'], {
    fallback: 'off',
    about:
      'Whether requests name the bucket in the path instead of the host name. Most servers other than AWS need it.',
  }),
  cacheMaxBytes: integer('CACHE_MAX_BYTES', {
    fallback: 0,
    usual: '32 GiB, at most half of the disk',
    min: 0,
    unit: 'bytes',
    about: 'Maximum size of the local copies of data files in a bucket. Copies in use may exceed it.',
  }),
  downloads: oneOf('DOWNLOADS', ['stream', 'redirect'], {
    fallback: 'stream',
    about: 'How report files in a bucket are downloaded: through the service, or by redirects to the bucket.',
    notes:
      '`redirect` needs reports in a bucket that clients can reach: [Downloads from the bucket](../several-hosts.md#downloads-from-the-bucket).',
  }),
  leaseMs: integer('LEASE_MS', {
    fallback: 15_000,
    min: 3000,
    max: 600_000,
    unit: 'ms',
    about: 'Time after which another host continues the work of a host that is silent. Only with a bucket.',
  }),
  host: word('HOST', {
    fallback: '127.0.0.1',
    values: 'address or name',
    about: 'Address of the import and the export port.',
    notes: 'The service listens on the first IPv4 address of a name, or on its first address if it has none.',
  }),
  s2sPort: integer('S2S_PORT', { fallback: 8080, min: 0, max: 65_535, about: 'Import port. 0: any free port.' }),
  apiPort: integer('API_PORT', { fallback: 8081, min: 0, max: 65_535, about: 'Export port. 0: any free port.' }),
  opsPort: integer('OPS_PORT', {
    // A service on any free port must not also need a fixed one.
    fallback: -1,
    usual: '8082',
    min: 0,
    max: 65_535,
    about: "Operator's port: metrics and readiness. 0: any free port, also the default if the export port is 0.",
    notes: 'It shows apps and disks without a password. Keep it on loopback or on a private network.',
  }),
  opsHost: word('OPS_HOST', {
    fallback: '127.0.0.1',
    values: 'address or name',
    about: "Address of the operator's port.",
  }),
  opsNames: setting<readonly string[]>({
    name: 'OPS_NAMES',
    values: 'names, separated by commas',
    about: "Host names that requests to the operator's port may use.",
    notes:
      "Requests that name another host get 403, so that no web page reads the metrics by DNS rebinding. Addresses, `localhost`, the machine's name and `TRIBUTARY_OPS_HOST` are always allowed.",
    fallback: [''],
    parse: (given) => given.split(',').map((name) => name.trim()),
  }),
  drainMs: integer('DRAIN_MS', {
    fallback: 0,
    min: 0,
    max: 600_000,
    unit: 'ms',
    about: 'Time between SIGTERM and closing the ports.',
    notes:
      'During this time `/readyz` returns 503 and requests are processed. Then kept connections get the same time again: each closes after its next response. Set it to the time in which your load balancer notices, and above its idle timeout.',
  }),
  publicS2sUrl: address('PUBLIC_S2S_URL', {
    about: 'Import address that clients see. Set it if clients use a proxy or TLS.',
    notes: '`/openapi.json` shows it.',
  }),
  publicApiUrl: address('PUBLIC_API_URL', {
    about: 'Export address that clients see. Set it if clients use a proxy or TLS.',
    notes:
      'Links, AuthHMAC signatures and `/openapi.json` use it. If it is unset, links use the `Host` header of each caller, over plain HTTP.',
  }),
  natsUrl: natsServers('NATS_URL', {
    usual: "the service's own server",
    about: 'External NATS cluster: `nats://user:password@host:4222`, `tls://...` or `nats://token@...`.',
    notes: 'Several addresses, as in `nats://user:password@a,b,c`, are the servers of one cluster.',
  }),
  natsCredentialsFile: pathSetting('NATS_CREDENTIALS_FILE', {
    fallback: undefined,
    about: "Credentials file of the service's user, as `nsc generate creds` writes it.",
    notes: 'It is read at each connection.',
  }),
  natsCaFile: pathSetting('NATS_CA_FILE', {
    fallback: undefined,
    about: 'PEM file of the certificate authorities of the cluster. Unset: those of Node.js.',
  }),
  natsCertFile: pathSetting('NATS_CERT_FILE', {
    fallback: undefined,
    about: 'PEM file of the client certificate for the cluster.',
  }),
  natsKeyFile: pathSetting('NATS_KEY_FILE', { fallback: undefined, about: 'PEM file of the key of that certificate.' }),
  natsSystemUrl: natsServers('NATS_SYSTEM_URL', {
    about: 'Addresses of the same cluster with a user of its system account.',
    notes:
      'With it, the service checks every minute that each server fsyncs before it acknowledges (`sync_interval: always`).',
  }),
  streamReplicas: integer('STREAM_REPLICAS', {
    fallback: 0,
    usual: 'as many as the cluster has servers, at most 3',
    min: 0,
    max: 5,
    about: 'Copies of the stream in a cluster. A start raises the number of an existing stream and never lowers it.',
  }),
  streamName: setting({
    name: 'STREAM',
    values: '1 to 64 letters, digits, _ or -',
    about: 'Name of the stream on the broker. Services that share a cluster need different names.',
    fallback: 'TRIBUTARY_EVENTS',
    // It is also a folder of the broker and a part of a subject.
    parse(given, refuse) {
      if (!/^[A-Za-z0-9_-]{1,64}$/.test(given)) refuse('must be 1 to 64 letters, digits, _ or -');
      return given;
    },
  }),
  ingestWorkers: integer('INGEST_WORKERS', {
    fallback: Math.max(1, Math.min(4, Math.floor(availableParallelism() / 2))),
    usual: 'half the cores, 1 to 4',
    min: 1,
    max: 64,
    about: 'Import processes, which share the port.',
  }),
  streamCompression: oneOf('STREAM_COMPRESSION', ['auto', 'on', 'off'], {
    fallback: 'auto',
    about: 'Whether messages of the stream are compressed (brotli). `auto`: if the stream has more than one copy.',
    notes:
      'A stream may have compressed and other messages. Versions before 0.4 cannot read compressed ones: set `off`, and let the stream drain, before a downgrade.',
  }),
  streamMaxBytes: integer('STREAM_MAX_BYTES', {
    fallback: 8192 * mebibyte,
    min: mebibyte,
    unit: 'bytes',
    about: 'Maximum size of the stream. Imports beyond it get 500 with `Retry-After`.',
  }),
  flushAgeMs: integer('FLUSH_AGE_MS', {
    fallback: 5000,
    min: 10,
    max: 3_600_000,
    unit: 'ms',
    about: 'Longest time until an event is written to the lake.',
  }),
  flushMaxBytes: integer('FLUSH_MAX_BYTES', {
    fallback: 128 * mebibyte,
    min: mebibyte,
    unit: 'bytes',
    about: 'Waiting bytes, before compression, that start a flush early.',
    notes: 'The limit is at most a sixteenth of `TRIBUTARY_DUCKDB_MEMORY_MB`.',
  }),
  flushMaxRows: integer('FLUSH_MAX_ROWS', {
    fallback: 250_000,
    min: 1,
    about: 'Waiting rows that start a flush early.',
  }),
  sealAgeMs: integer('SEAL_AGE_MS', {
    fallback: 3_600_000,
    min: 10,
    unit: 'ms',
    about: 'Age at which young rows of today and yesterday are sealed.',
    notes: 'Rows of other dates are sealed at 24 times this age, but within a day unless this age is longer.',
  }),
  sealMaxBytes: integer('SEAL_MAX_BYTES', {
    fallback: 128 * mebibyte,
    min: 1,
    unit: 'bytes',
    about: 'Size of a kind and date that is sealed early, and the maximum size of a sealed file.',
  }),
  mergeAfterMs: setting<number | undefined>({
    name: 'MERGE_AFTER_MS',
    values: 'at least 0, or off',
    unit: 'ms',
    about: 'Time after the end of a day (UTC) at which its sealed files are merged.',
    notes: 'Late rows are merged when they have a quarter of the bytes of their day. `off`: days are not merged.',
    fallback: 172_800_000,
    parse(given, refuse) {
      if (given === 'off') return undefined;
      if (!/^\d{1,16}$/.test(given)) refuse("must be a whole number of at least 0, or 'off'");
      return Number(given);
    },
  }),
  mergeFileBytes: integer('MERGE_FILE_BYTES', {
    fallback: 128 * mebibyte,
    min: 16 * mebibyte,
    max: 512 * mebibyte,
    unit: 'bytes',
    about: 'Size of the files of a merged day, which are cut between apps.',
  }),
  keepDays: setting<number | undefined>({
    name: 'KEEP_DAYS',
    values: '1 to 36500',
    about: 'Days for which rows are kept before today, by the date of the event (UTC).',
    usual: 'unset: without a limit',
    notes: 'Apps can have other limits: `tributary app keep`.',
    fallback: undefined,
    parse(given, refuse) {
      const days = /^\d{1,5}$/.test(given) ? Number(given) : 0;
      if (days < 1 || days > 36_500) refuse('must be a whole number from 1 to 36500');
      return days;
    },
  }),
  retentionMs: integer('RETENTION_MS', {
    fallback: 86_400_000,
    min: 1000,
    unit: 'ms',
    about: 'Retention of replaced files, old log entries and erased events, for running queries and `asOf` exports.',
    notes: 'A shorter value also ends versions whose `timestampKeptUntil` is later.',
  }),
  linkTtlSeconds: integer('LINK_TTL_SECONDS', {
    fallback: 86_400,
    min: 1,
    max: 604_800,
    unit: 's',
    about: 'Lifetime of download links.',
  }),
  maxExports: integer('MAX_EXPORTS', {
    fallback: 10,
    min: 1,
    max: 1000,
    about: 'Simultaneous export requests of an account. `user set --max-exports` limits a single user further.',
  }),
  exportWorkers: integer('EXPORT_WORKERS', {
    fallback: 2,
    min: 1,
    max: 64,
    about: 'Exports that run at the same time. The others wait.',
  }),
  exportMaxRows: integer('EXPORT_MAX_ROWS', { fallback: 100_000_000, min: 1, about: 'Maximum rows of an export.' }),
  exportMaxBytes: integer('EXPORT_MAX_BYTES', {
    fallback: 64 * 1024 * mebibyte,
    min: 1,
    unit: 'bytes',
    about: 'Maximum size of an export: of CSV and JSON lines before compression.',
  }),
  exportTimeoutMs: integer('EXPORT_TIMEOUT_MS', {
    fallback: 3_600_000,
    min: 1000,
    unit: 'ms',
    about: 'Maximum run time of an export.',
  }),
  singleFileMaxBytes: integer('SINGLE_FILE_MAX_BYTES', {
    fallback: 10 * mebibyte,
    min: 0,
    unit: 'bytes',
    about: 'Size above which a result becomes `.csv.gz` parts. 0: always. The parameter `compression` overrides it.',
  }),
  partMaxBytes: integer('PART_MAX_BYTES', {
    fallback: 256 * mebibyte,
    min: 1024,
    unit: 'bytes',
    about: 'Maximum size of a part, before compression.',
  }),
  duckdbMemoryMb: integer('DUCKDB_MEMORY_MB', {
    fallback: 2048,
    min: 256,
    unit: 'MiB',
    about: 'Memory of DuckDB in a process. A process takes up to 512 MiB more.',
    notes:
      'The compactor uses half of it for flushes and less for sealing. An erasure stays below it in total. An export worker uses all of it. Wider rows are flushed and sealed in smaller parts.',
  }),
  diskReserveBytes: integer('DISK_RESERVE_BYTES', {
    fallback: 256 * mebibyte,
    min: 0,
    unit: 'bytes',
    about: "Free space of the stream's disk at which imports are rejected.",
    notes: 'If the disk of the lake or of the reports is below it, `/readyz` reports a problem.',
  }),
  quotaUser: quotas('QUOTA_USER', '10/s,100/min,1000/h', 'Requests of an export user.'),
  quotaIp: quotas(
    'QUOTA_IP',
    '100/s,1000/min',
    'Requests of an address to the export port. Set `off` behind a proxy: all clients share its address.',
  ),
  refusalsAgeMs: integer('REFUSALS_AGE_MS', {
    fallback: 86_400_000,
    min: 0,
    max: 604_800_000,
    unit: 'ms',
    about: 'Retention of records of rejected requests. 0 stores none.',
  }),
  refusalsBodies: oneOf('REFUSALS_BODIES', ['off', 'redacted', 'on'], {
    fallback: 'redacted',
    about:
      'Stored part of a rejected body: nothing, its known fields and their types, or up to 500 characters of text.',
    notes:
      'The text may have personal data. Records that show more than the setting are not returned, and the next start removes them.',
  }),
  ...oidcSettings,
  auditDays: integer('AUDIT_DAYS', {
    fallback: 400,
    min: 0,
    max: 3650,
    about: 'Retention of the audit log, days. 0 records nothing.',
    notes: 'The log has at most 1 GiB; the oldest entries are removed first.',
  }),
  webhooksAllow: egressRules('WEBHOOKS_ALLOW', {
    about: 'Private networks (`10.1.0.0/16`) that webhooks may reach, and the only host names that they may use.',
    notes:
      'Public addresses are always allowed. A name is `hooks.example.com` or `*.example.com`. Without names, any host name is allowed.',
  }),
  deliveryAllow: egressRules('DELIVERY_ALLOW', {
    about: 'Hosts to which exports may be delivered, and private networks that these may be in. Default: none.',
    notes: 'A name is `s3.example.com` or `*.example.com`. A server without a name needs its network.',
  }),
  clockOffsetSeconds: integer('CLOCK_OFFSET_SECONDS', {
    fallback: 0,
    min: -315_360_000,
    max: 315_360_000,
    unit: 's',
    about: "Offset of the service's clock, for tests of ages and expiries.",
  }),
  logLevel: oneOf('LOG_LEVEL', logLevels, { fallback: 'info', about: 'Lowest level of log lines on standard error.' }),
  lakeGroup: word('LAKE_GROUP', {
    fallback: undefined,
    values: 'name or number of a group',
    about: 'Group that may read the lake. The service must be a member.',
    notes:
      "Members read the tables, `snapshot.sql`, `views.sql` and `watermark.json`. They pass through the data folder and `lake/`, but cannot list them. All other data stays the owner's. Each `start` applies the setting; `restore` applies it to its new folder. Without it, only the owner reads the lake. A member can lock the folders of the tables, which delays sealing and erasures.",
  }),
  enrich: oneOf('ENRICH', ['on', 'off'], {
    fallback: 'on',
    about:
      'Whether events are stored with the country of their address and the device and browser of their User-Agent.',
  }),
  geoDatabase: pathSetting('GEO_DB', {
    fallback: undefined,
    usual: "the package's database of countries",
    about: 'MMDB file (such as GeoLite2-City) with countries, and regions if it has them.',
    notes: 'The next flush reads a replaced file.',
  }),
  datasetsDir: pathSetting('DATASETS_DIR', {
    fallback: undefined,
    usual: '`datasets/` in the data folder',
    about: 'Folder of custom datasets. It must exist if it is set.',
  }),
};

/** Variables of commands that are not settings of the service, with their meanings, for the page. */
export const commandVariables: Readonly<Record<string, string>> = {
  CACHE_DIR: 'Folder in which `start` and `setup` keep a downloaded nats-server. Default: `~/.cache/tributary`.',
  PROFILE: 'Profile of `import` and `export`.',
  IMPORT_URL: 'Address of the import port.',
  EXPORT_URL: 'Address of the export port.',
  APP: 'Id of the app.',
  TOKEN: 'Token of the app. `TRIBUTARY_TOKEN_FILE` names a file with it.',
  USER: 'Id of the user.',
  SECRET: 'Secret of the user. `TRIBUTARY_SECRET_FILE` names a file with it.',
};
