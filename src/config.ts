import path from 'node:path';
import { dataFormatPath } from './runtime/files/data-format.ts';
import { AppError, describeError } from './runtime/errors.ts';
import { getTextSync } from './runtime/files/open-file.ts';
import { addNatsFiles } from './runtime/processes/nats-url.ts';
import type { TraceExport } from './runtime/tracing/tracing.ts';
import type { Setting } from './config/setting-kinds.ts';
import { commandVariables, settings } from './config/settings.ts';
import { traceSettings } from './config/trace-settings.ts';
import { findNearest } from './runtime/nearest-name.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

type Values = {
  readonly [Name in keyof typeof settings]: (typeof settings)[Name] extends Setting<infer T> ? T : never;
};

/** The service's settings; docs/reference/settings.md lists the variables. Paths are absolute. */
export interface Config extends Readonly<ReturnType<typeof completeConfig>> {
  /** Absent: no traces. */
  readonly traceExport?: TraceExport | undefined;
}

type StorageValues = Pick<Values, 'storageUrl' | 'lakeUrl' | 'reportsUrl' | 'stateUrl'>;

/** Places in buckets of what the data folder has otherwise; undefined: in the data folder. */
export interface StoragePlaces {
  readonly lake: string | undefined;
  readonly reports: string | undefined;
  readonly state: string | undefined;
}

function placesOf({ storageUrl, lakeUrl, reportsUrl, stateUrl }: StorageValues): StoragePlaces {
  const below = (name: string): string | undefined => storageUrl && `${storageUrl}/${name}`;
  return {
    lake: lakeUrl ?? below('lake'),
    reports: reportsUrl ?? below('reports'),
    state: stateUrl ?? below('state'),
  };
}

/** Adds the values that depend on others. The address of the cluster contains its files. */
function completeConfig({
  enrich,
  storageUrl,
  lakeUrl,
  reportsUrl,
  stateUrl,
  s3PathStyle,
  natsCredentialsFile: credentials,
  natsCaFile: ca,
  natsCertFile: cert,
  natsKeyFile: key,
  ...values
}: Values) {
  const { opsPort, apiPort, datasetsDir, natsUrl, natsSystemUrl } = values;
  const dataDir = values.dataDir ?? path.resolve('data');
  const storage = placesOf({ storageUrl, lakeUrl, reportsUrl, stateUrl });
  return {
    ...values,
    dataDir,
    storage,
    /** Whether the data folder has only work files and copies: lake, reports and state are in buckets. */
    isScratch: Object.values(storage).every((place) => place !== undefined),
    s3PathStyle: s3PathStyle === 'on',
    natsUrl: natsUrl === undefined ? undefined : addNatsFiles(natsUrl, { credentials, ca, cert, key }),
    natsSystemUrl:
      natsSystemUrl === undefined ? undefined : addNatsFiles(natsSystemUrl, { credentials: undefined, ca, cert, key }),
    enriches: enrich === 'on',
    opsPort: opsPort >= 0 ? opsPort : apiPort === 0 ? 0 : 8082,
    datasetsDir: datasetsDir ?? dataPaths(dataDir).datasets,
  };
}

const variableOf = ({ name }: { readonly name: string }): string => `TRIBUTARY_${name}`;

/**
 * Returns a secret of the environment: the value of a variable, or the first line of the file that the variable with
 * `_FILE` names. Empty values count as unset. Error: `config_invalid`.
 */
export function findSecret(environment: Environment, variable: string): string | undefined {
  const value = environment[variable] || undefined;
  const file = environment[`${variable}_FILE`] || undefined;
  if (file === undefined) return value;
  if (value !== undefined)
    throw new AppError('config_invalid', `${variable} and ${variable}_FILE must not be set together`, {
      hint: 'Unset one of them.',
    });
  try {
    return getTextSync(file).split('\n', 1)[0]?.trim();
  } catch (error) {
    const text = `${variable}_FILE must name a file that this process can read: ${describeError(error)}`;
    throw new AppError('config_invalid', text, { hint: 'Check its path and its permissions.' });
  }
}

/** Returns the variables of a setting, with that of its file. */
const variablesOf = (setting: Setting<unknown>): readonly string[] =>
  setting.isSecret === true ? [variableOf(setting), `${variableOf(setting)}_FILE`] : [variableOf(setting)];

function findValue(environment: Environment, setting: Setting<unknown>, problems: string[]): string | undefined {
  if (setting.isSecret !== true) return environment[variableOf(setting)] || undefined;
  try {
    return findSecret(environment, variableOf(setting));
  } catch (error) {
    problems.push(error instanceof Error ? error.message : String(error));
    return undefined;
  }
}

/** Settings of an external cluster. */
const clusterSettings = ['natsCredentialsFile', 'natsCaFile', 'natsCertFile', 'natsKeyFile', 'natsSystemUrl'] as const;

function findClusterProblems(values: Readonly<Record<string, unknown>>): readonly string[] {
  const { natsUrl, natsCertFile, natsKeyFile } = values;
  const unused = natsUrl === undefined ? clusterSettings.filter((name) => values[name] !== undefined) : [];
  return [
    ...unused.map((name) => `${variableOf(settings[name])} needs TRIBUTARY_NATS_URL`),
    ...((natsCertFile === undefined) === (natsKeyFile === undefined)
      ? []
      : ['TRIBUTARY_NATS_CERT_FILE and TRIBUTARY_NATS_KEY_FILE must be set together']),
  ];
}

function findOidcProblems({ oidcIssuer, oidcClientId, publicApiUrl }: Values): readonly string[] {
  if (oidcIssuer === undefined)
    return oidcClientId === undefined ? [] : ['TRIBUTARY_OIDC_CLIENT_ID needs TRIBUTARY_OIDC_ISSUER'];
  return [
    ...(oidcClientId === undefined ? ['TRIBUTARY_OIDC_ISSUER needs TRIBUTARY_OIDC_CLIENT_ID'] : []),
    ...(publicApiUrl === undefined ? ['TRIBUTARY_OIDC_ISSUER needs TRIBUTARY_PUBLIC_API_URL'] : []),
  ];
}

const isAtOrBelow = (place: string, other: string): boolean => place === other || place.startsWith(`${other}/`);

function findStorageProblems(values: Values): readonly string[] {
  const places = placesOf(values);
  const named = Object.entries(places).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const isShared = named.some(([a, place]) => named.some(([b, other]) => a !== b && isAtOrBelow(place, other)));
  return [
    ...(isShared ? ['the places of lake, reports and state must not be inside each other'] : []),
    ...(places.lake !== undefined && values.lakeGroup !== undefined
      ? ['TRIBUTARY_LAKE_GROUP needs a lake in the data folder']
      : []),
    ...(places.reports === undefined && values.downloads === 'redirect'
      ? ['TRIBUTARY_DOWNLOADS=redirect needs TRIBUTARY_STORAGE_URL or TRIBUTARY_REPORTS_URL']
      : []),
    ...(named.length === 0 && values.s3Endpoint !== undefined
      ? ['TRIBUTARY_S3_ENDPOINT needs TRIBUTARY_STORAGE_URL']
      : []),
  ];
}

function parseValue<T>(setting: Setting<T>, variable: string, value: string | undefined, problems: string[]): T {
  if (value === undefined) return setting.fallback;
  // Credentials before the host of an address are secret.
  const refuse = (rule: string): void =>
    void problems.push(`${variable} ${rule}, not '${value.replace(/\/\/.*@/, '//...@')}'`);
  return setting.parse(value, refuse);
}

/** Parses the variables of traces; undefined without an address, or if traces are disabled. */
function parseTraceExport(environment: Environment, problems: string[]): TraceExport | undefined {
  const { protocol, ...others } = traceSettings;
  const find = ({ name }: Setting<unknown>): string | undefined => environment[name] || undefined;
  const hasAddress = find(others.endpoint) !== undefined || find(others.tracesEndpoint) !== undefined;
  if (!hasAddress || find(others.isDisabled) === 'true') return undefined;
  const parse = <T>(setting: Setting<T>): T => parseValue(setting, setting.name, find(setting), problems);
  Object.values<Setting<unknown>>(others).forEach(parse);
  return { protocol: parse(protocol) };
}

/** Parses the environment; unset and empty variables have defaults. Error: `config_invalid`, with all bad ones. */
export function parseConfig(environment: Environment): Config {
  const problems: string[] = [];
  const parse = (setting: Setting<unknown>): unknown =>
    parseValue(setting, variableOf(setting), findValue(environment, setting, problems), problems);
  const parsed = Object.fromEntries(Object.entries(settings).map(([key, setting]) => [key, parse(setting)]));
  problems.push(...findClusterProblems(parsed));
  const values = parsed as Values;
  problems.push(...findStorageProblems(values), ...findOidcProblems(values));
  const traceExport = parseTraceExport(environment, problems);
  if (problems.length > 0) {
    throw new AppError('config_invalid', `bad settings: ${problems.join('; ')}`, {
      hint: 'Check docs/reference/settings.md.',
    });
  }
  return Object.freeze({ ...completeConfig(values), traceExport });
}

/** Variables of tests and benchmarks. */
const testVariables = /^TRIBUTARY_(CHAOS|SAMPLE_EVENTS|(TEST|BENCH)_.*)$/;

/** Finds variables that look like settings but are not, and for each the setting that was probably meant. */
export function findUnknownSettings(
  environment: Environment,
): readonly { readonly variable: string; readonly probably: string | undefined }[] {
  const known = Object.values(settings).flatMap((setting) => variablesOf(setting));
  const others = Object.keys(commandVariables).flatMap((name) => [
    variableOf({ name }),
    `${variableOf({ name })}_FILE`,
  ]);
  const unknown = Object.keys(environment).filter(
    (name) =>
      name.startsWith('TRIBUTARY_') && !known.includes(name) && !others.includes(name) && !testVariables.test(name),
  );
  return unknown.map((variable) => ({ variable, probably: findNearest(variable, known) }));
}

/** Selects the settings of one part of the service, which then gets no others, such as the broker's password. */
export function pickSettings<Name extends keyof Config>(config: Config, names: readonly Name[]): Pick<Config, Name> {
  return Object.fromEntries(names.map((name) => [name, config[name]])) as Pick<Config, Name>;
}

/** Paths in the data folder. */
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
    destinations: path.join(dataDir, 'destinations'),
    /** A cache that finds event ids. */
    eventIndex: path.join(dataDir, 'event-index'),
    refusals: path.join(dataDir, 'refusals'),
    audit: path.join(dataDir, 'audit'),
    datasets: path.join(dataDir, 'datasets'),
    /** Marks of known records (runtime/store/marked-records.ts). */
    records: path.join(dataDir, 'records'),
    spool: path.join(dataDir, 'spool'),
    /** Copies of files in a bucket. */
    cache: path.join(dataDir, 'cache'),
    run: path.join(dataDir, 'run'),
  } as const;
}
