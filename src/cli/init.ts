import { addApp, listApps, type ListedApp } from '../access/apps.ts';
import { addUser, type ListedUser, listUsers } from '../access/users.ts';
import { createHttpClient } from '../client/http-client.ts';
import { createImportArea } from '../client/import-area.ts';
import {
  changeProfiles,
  findOwnName,
  parseProfileName,
  profilesPath,
  type Profile,
  type Profiles,
} from '../client/profiles.ts';
import type { AccessPaths } from '../access/access-file.ts';
import type { Config } from '../config.ts';
import { loadSample } from '../demo/sample.ts';
import { platforms, type Platform } from '../datasets/field-schema.ts';
import { pause, retry } from '../runtime/async/retry.ts';
import type { Clock } from '../runtime/clock.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import { hasEnded } from '../runtime/processes/procfs.ts';
import { readServiceStates, type ServiceState } from '../runtime/processes/service-state.ts';
import { awaitService, askToStop } from './stop.ts';
import { defineDataCommand, type CommandContext, type DataContext, type ParsedOptions } from './command.ts';
import { file, flag, oneOf, parsed, positive, failUsage, text, withDefault } from './option-specs.ts';

const [firstApp, firstAccount] = [1, 1];
const defaultProfile = 'default';
const sampleTitle = 'Sample';
const pollIntervalMs = 250;
/** Timeout for a running service to accept a new app, ms. */
const knownMs = 15_000;
/** Timeout for a service to stop, ms. */
const stopMs = 60_000;

interface FirstAccess {
  readonly apps: readonly ListedApp[];
  readonly users: readonly ListedUser[];
  readonly created: Pick<Profile, 'idApp' | 'token' | 'idUser' | 'secret'>;
}

async function ensureAccess(
  paths: AccessPaths,
  clock: Clock,
  first: { readonly platform: Platform; readonly title: string },
): Promise<FirstAccess> {
  let created: FirstAccess['created'] = {};
  if ((await listApps(paths)).length === 0 && (await listApps(paths, true)).length === 0) {
    const { token } = await addApp(paths, { idApp: firstApp, ...first, idAccount: firstAccount }, clock.nowMs());
    created = { idApp: firstApp, token };
  }
  if ((await listUsers(paths)).length === 0) {
    const idAccount = Number((await listApps(paths))[0]?.idAccount ?? firstAccount);
    created = { ...created, ...(await addUser(paths, { name: 'analyst', idAccount, canExport: true })) };
  }
  return { apps: await listApps(paths), users: await listUsers(paths), created };
}

/** Returns the addresses of the running service, or those of its settings. */
function addressesOf(
  config: Config,
  running: ServiceState | undefined,
): Required<Pick<Profile, 'importUrl' | 'exportUrl'>> {
  const host = ['0.0.0.0', '::'].includes(config.host) ? '127.0.0.1' : config.host;
  return {
    importUrl: config.publicS2sUrl ?? running?.s2s ?? `http://${host}:${config.s2sPort}`,
    exportUrl: config.publicApiUrl ?? running?.api ?? `http://${host}:${config.apiPort}`,
  };
}

function examplesOf({ importUrl, exportUrl, idApp, token, idUser, secret }: Profile): string[] {
  const event = '{"customUserId":"u-1","customEventName":"level_up","customEventParams":{"level":"3"}}';
  const query = 'event=customEvents&selectors=eventId,tsEvent,eventName,params.name,params.value&sinceVersion=0';
  const ofApp = [
    'Import an event:',
    `  curl -X POST '${importUrl}/v1/customEvent/?idApp=${idApp}' -H 'Authorization: ${token}' -d '${event}'`,
  ];
  const ofUser = [
    'Create an export, then get its status and download links:',
    `  curl -u '${idUser}:${secret}' '${exportUrl}/api/raw/v1/export/create.json?${query}'`,
    `  curl -u '${idUser}:${secret}' '${exportUrl}/api/raw/v1/export/get.json?idRawExport=1'`,
  ];
  return [...(token === undefined ? [] : ofApp), ...(secret === undefined ? [] : ofUser)];
}

/** The address of the console, and what it asks for. */
function consoleOf({ exportUrl, idUser, secret }: Profile): string[] {
  if (idUser === undefined || secret === undefined) return [];
  return ['', `  Console  ${exportUrl}/console/`, `  User     ${idUser}`, `  Secret   ${secret}`, ''];
}

/** Adds an app with generated events to the first account, unless it has one. Returns its id and number of events. */
async function addSample(profile: Profile, { apps }: FirstAccess, { paths, clock, stop, printMessage }: DataContext) {
  const before = apps.find((app) => app.title === sampleTitle);
  if (before !== undefined) {
    printMessage(`The sample exists: app ${before.idApp}. Remove it with 'tributary app remove ${before.idApp}'.`);
    return undefined;
  }
  const all = [...apps, ...(await listApps(paths, true))];
  const idApp = Math.max(0, ...all.map((app) => Number(app.idApp))) + 1;
  const idAccount = Number(apps[0]?.idAccount ?? firstAccount);
  const { token } = await addApp(paths, { idApp, platform: 'web', title: sampleTitle, idAccount }, clock.nowMs());
  const { importUrl = '', exportUrl = '', idUser, secret } = profile;
  const sample = { importUrl, exportUrl, idApp, token };
  printMessage(`Importing the sample into app ${idApp}...`);
  await awaitKnown(sample, stop);
  const user = idUser === undefined || secret === undefined ? {} : { idUser, secret };
  const events = await loadSample({ profile: { ...sample, ...user }, nowMs: clock.nowMs(), signal: stop });
  return { idApp: String(idApp), events };
}

async function awaitKnown({ importUrl = '', idApp = 0, token = '' }: Profile, signal: AbortSignal): Promise<void> {
  const http = createHttpClient();
  try {
    await retry(() => createImportArea(http, { url: importUrl, idApp, token }).checkAccess(), {
      forMs: knownMs,
      everyMs: pollIntervalMs,
      signal,
      retryable: (error) => isAppError(error, 'service_refused') || isAppError(error, 'service_away'),
    });
  } finally {
    http.close();
  }
}

function printMissing(
  name: string,
  { apps, users }: FirstAccess,
  profile: Profile,
  { printMessage }: CommandContext,
): void {
  const [app, user] = [apps[0]?.idApp, users[0]?.idUser];
  if (app !== undefined && profile.token === undefined)
    printMessage(
      `Profile ${name} has no token: add one with 'tributary app token add ${app}', then pass it to 'tributary profile add ${name} --app ${app} --stdin'.`,
    );
  if (user !== undefined && profile.secret === undefined)
    printMessage(
      `Profile ${name} has no secret: rotate it with 'tributary user rotate-secret ${user}', then pass it to 'tributary profile add ${name} --user ${user} --stdin'.`,
    );
}

const options = {
  platform: withDefault(oneOf(platforms, 'platform of the first app'), 'web'),
  title: withDefault(text('display name of the first app'), 'My app'),
  profile: parsed(
    'profile for the URLs and secrets (the profile of the data folder, or default)',
    'NAME',
    parseProfileName,
  ),
  sample: flag('add an app with generated events, so that every page shows something'),
  wait: flag('wait until the service is running'),
  started: positive('with --wait: id of the starting process; its exit ends the wait, a failure stops it', 'PID'),
  log: file('with --wait: log file of that process, to report why it exited'),
} as const;

type InitOptions = ParsedOptions<typeof options>;

/** Returns a profile unless it belongs to another service. */
function findSuitable(profile: Profile, { importUrl }: Profile, dataDir: string): Profile | undefined {
  const isOther =
    profile.dataDir === undefined ? (profile.importUrl ?? importUrl) !== importUrl : profile.dataDir !== dataDir;
  return isOther ? undefined : profile;
}

/**
 * Returns the name of a data folder's profile: its own, or the first free one of `default`, `default-2`, ... A profile
 * of 0.3 has no folder: it is free if its address matches and the secrets are not new.
 */
function nameProfile(found: Profiles, addresses: Profile, dataDir: string, isNew: boolean): string {
  const own = findOwnName(found, dataDir);
  if (own !== undefined) return own;
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? defaultProfile : `${defaultProfile}-${number}`;
    const known = found.profiles[name];
    if (known === undefined || (!isNew && findSuitable(known, addresses, dataDir) !== undefined)) return name;
  }
}

/** Stops the process that was started for a failed command, and waits for its end. */
async function stopStarted(pid: number, { printMessage, force }: CommandContext): Promise<void> {
  if (hasEnded(pid)) return;
  askToStop({ pid });
  for (const begun = performance.now(); !hasEnded(pid); await pause(pollIntervalMs, force))
    if (force.aborted || performance.now() - begun > stopMs)
      return printMessage(`tributary: the started service, process ${pid}, still runs after SIGTERM`);
  printMessage('tributary: the started service was stopped');
}

async function init(
  { platform, title, profile: wanted, sample, wait, started, log }: InitOptions,
  context: DataContext,
) {
  const { config, paths, clock, environment, printResult, printMessage, stop } = context;
  const { dataDir } = config;
  const profiles = profilesPath(environment);
  if (!wait && (started ?? log) !== undefined) failUsage('--started and --log need --wait');
  const running = wait
    ? await awaitService({ dataDir, runFolder: paths.run, pid: started, log, signal: stop, note: printMessage })
    : readServiceStates(paths.run)[0];
  if (sample && running === undefined)
    throw new AppError('usage', '--sample needs a running service', {
      hint: "Start it with 'tributary start', or pass --wait.",
    });
  const addresses = addressesOf(config, running);
  // New secrets are shown once: first make sure that the profile can be written.
  const found = await changeProfiles(profiles, (known) => known);
  const other = wanted === undefined ? undefined : found.profiles[wanted];
  if (other !== undefined && findSuitable(other, addresses, dataDir) === undefined)
    throw new AppError(
      'conflict',
      `profile ${wanted} belongs to another service, ${other.importUrl ?? other.dataDir}`,
      {
        hint: 'Pass another name with --profile.',
      },
    );
  const access = await ensureAccess(paths, clock, { platform, title });
  const isNew = Object.keys(access.created).length > 0;
  const name = wanted ?? nameProfile(found, addresses, dataDir, isNew);
  const before = found.profiles[name];
  // A running service reports its own address.
  const current = before?.dataDir === dataDir && running !== undefined ? addresses : {};
  const profile = { ...addresses, ...before, ...current, ...access.created, dataDir };
  const isKept = isNew || before !== undefined;
  if (isKept)
    await changeProfiles(profiles, ({ current: first = name, profiles: known }) => ({
      current: first,
      profiles: { ...known, [name]: { ...known[name], ...profile } },
    }));
  if (running !== undefined && access.created.token !== undefined) await awaitKnown(profile, stop);
  const sampled = sample ? await addSample(profile, access, context) : undefined;
  printResult({
    dataDir,
    isRunning: running !== undefined,
    importUrl: profile.importUrl,
    exportUrl: profile.exportUrl,
    apps: access.apps.map(({ idApp }) => idApp),
    users: access.users.map(({ idUser }) => idUser),
    made: Object.keys(access.created).filter((member) => member.startsWith('id')),
    ...(isKept ? { profile: name } : {}),
    ...(sampled === undefined ? {} : { sample: sampled }),
  });
  if (isKept) for (const line of examplesOf(profile)) printMessage(line);
  printMissing(name, access, profile, context);
  if (running !== undefined && wait)
    printMessage("The service keeps running. Stop it with 'tributary stop', or 'make stop' in a checkout.");
  if (running === undefined)
    printMessage("No service is running on this data folder. Start it with 'tributary start'.");
  if (isKept) for (const line of consoleOf(profile)) printMessage(line);
}

export const initCommand = defineDataCommand({
  opens: 'any',
  name: 'init',
  summary: 'create the first app, user and profile, and print sample requests',
  options,
  details: [
    'The service may be running or stopped. Existing apps, users and secrets are never changed.',
    'import and export use the profile of the data folder (TRIBUTARY_DATA_DIR, or ./data), else the current profile.',
  ],
  examples: [
    'init',
    'init --wait --sample',
    'init --wait --started 4711 --log data/service.log',
    'init --data /srv/tributary/data --platform game --title "My game" --profile game',
  ],
  async run(given, context) {
    try {
      await init(given, context);
    } catch (error) {
      if (given.started !== undefined) await stopStarted(given.started, context);
      throw error;
    }
  },
});
