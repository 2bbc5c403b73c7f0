import { addApp, addUser } from '../access/commands.ts';
import { listApps, listUsers, type ListedApp, type ListedUser } from '../access/listing.ts';
import { createHttpClient } from '../client/http-client.ts';
import { createImportArea } from '../client/import-area.ts';
import { changeProfiles, parseProfileName, profilesPath, readProfiles, type Profile } from '../client/profiles.ts';
import { dataPaths, type Config } from '../config.ts';
import { platforms, type Platform } from '../datasets/event-kinds.ts';
import { retry } from '../runtime/async/retry.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import { readServiceStates, type ServiceState } from '../runtime/processes/service-state.ts';
import { awaitService } from './await-service.ts';
import { resolveConfig, verb, type CommandContext } from './command.ts';
import { file, flag, oneOf, parsed, positive, refuse, text, withDefault } from './words.ts';

const [firstApp, firstAccount] = [1, 1];
const lookEveryMs = 250;
/** A running service takes a second to know a new app. */
const knownMs = 15_000;

/** What was there, and what was made. */
interface FirstAccess {
  readonly apps: readonly ListedApp[];
  readonly users: readonly ListedUser[];
  readonly made: Pick<Profile, 'idApp' | 'token' | 'idUser' | 'secret'>;
}

/** Adds the first app and the first user, where there is none. */
async function ensureAccess(config: Config, platform: Platform, title: string): Promise<FirstAccess> {
  const paths = dataPaths(config.dataDir);
  let made: FirstAccess['made'] = {};
  if (listApps(paths).length === 0 && listApps(paths, true).length === 0) {
    const app = { idApp: firstApp, platform, title, idAccount: firstAccount };
    const { token } = await addApp(paths, app, createClock(config.clockOffsetSeconds).nowMs());
    made = { idApp: firstApp, token };
  }
  if (listUsers(paths).length === 0) {
    const idAccount = Number(listApps(paths)[0]?.idAccount ?? firstAccount);
    made = { ...made, ...(await addUser(paths, { name: 'analyst', idAccount, canExport: true })) };
  }
  return { apps: listApps(paths), users: listUsers(paths), made };
}

/** The addresses of a service: as it runs, or as its settings have them. */
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

/** Calls that work as they stand. */
function examplesOf({ importUrl, exportUrl, idApp, token, idUser, secret }: Profile): string[] {
  const event = '{"customUserId":"u-1","customEventName":"level_up","customEventParams":{"level":"3"}}';
  const query = 'event=customEvents&selectors=eventId,tsEvent,eventName,params.name,params.value&sinceVersion=0';
  const lines: string[] = [];
  if (token !== undefined)
    lines.push(
      'An event:',
      `  curl -X POST '${importUrl}/v1/customEvent/?idApp=${idApp}' -H 'Authorization: ${token}' -d '${event}'`,
    );
  if (secret !== undefined)
    lines.push(
      'An export, and its state with the links to its files:',
      `  curl -u '${idUser}:${secret}' '${exportUrl}/api/raw/v1/export/create.json?${query}'`,
      `  curl -u '${idUser}:${secret}' '${exportUrl}/api/raw/v1/export/get.json?idRawExport=1'`,
    );
  return lines;
}

async function awaitKnown({ importUrl = '', idApp = 0, token = '' }: Profile, signal: AbortSignal): Promise<void> {
  const http = createHttpClient();
  try {
    await retry(() => createImportArea(http, { url: importUrl, idApp, token }).checkAccess(), {
      forMs: knownMs,
      everyMs: lookEveryMs,
      signal,
      retryable: (error) => isAppError(error, 'service_refused') || isAppError(error, 'service_away'),
    });
  } finally {
    http.close();
  }
}

function noteMissing(name: string, { apps, users }: FirstAccess, profile: Profile, { note }: CommandContext): void {
  const [app, user] = [apps[0]?.idApp, users[0]?.idUser];
  if (app !== undefined && profile.token === undefined)
    note(
      `The profile ${name} has no token: 'tributary app token ${app}' makes a further one, 'tributary profile add ${name} --app ${app} --stdin' takes it.`,
    );
  if (user !== undefined && profile.secret === undefined)
    note(
      `The profile ${name} has no secret: 'tributary user secret ${user}' makes a new one, 'tributary profile add ${name} --user ${user} --stdin' takes it.`,
    );
}

/** `tributary init`: the first app, the first user and a profile; where they are there, it says so and changes nothing. */
export const initCommand = verb({
  name: 'init',
  summary: 'make the first app and user, and a profile, and print calls that work; again, say what there is',
  options: {
    platform: withDefault(oneOf(platforms, 'what the events of the first app come from'), 'web'),
    title: withDefault(text('the title of the first app'), 'My app'),
    profile: withDefault(
      parsed('the profile that gets the addresses and the secrets', 'NAME', parseProfileName),
      'default',
    ),
    wait: flag('wait until the service on the data folder runs'),
    started: positive('with --wait, the process that was started for it: when it ends, so does the waiting', 'PID'),
    log: file('what that process writes, for the reason of its end'),
  },
  details: ['The service may run or not; what is there already is never changed.'],
  examples: [
    'init',
    'init --wait',
    'init --wait --started 4711 --log data/service.log',
    'init --data /srv/tributary/data --platform game --title "My game" --profile game',
  ],
  async run({ platform, title, profile: name, wait, started, log, data }, context) {
    const { environment, answer, note, stop } = context;
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data }, 'any');
    const { run } = dataPaths(config.dataDir);
    const profiles = profilesPath(environment);
    const before = (await readProfiles(profiles)).profiles[name];
    if (!wait && (started ?? log) !== undefined) refuse('--started and --log are for --wait');
    const awaited = { dataDir: config.dataDir, runFolder: run, pid: started, log, signal: stop, note };
    const running = wait ? await awaitService(awaited) : readServiceStates(run)[0];
    const addresses = addressesOf(config, running);
    const isOther = before !== undefined && (before.importUrl ?? addresses.importUrl) !== addresses.importUrl;
    if (isOther)
      throw new AppError('conflict', `the profile ${name} is of another service, ${before.importUrl ?? ''}`, {
        hint: 'Name another by --profile.',
      });
    // What is made is shown this once: where the profile cannot be written, nothing is made.
    if (before === undefined) await changeProfiles(profiles, (known) => known);
    const access = await ensureAccess(config, platform, title);
    const isNew = Object.keys(access.made).length > 0;
    const profile = { ...addresses, ...before, ...access.made };
    if (isNew)
      await changeProfiles(profiles, ({ current = name, profiles: known }) => ({
        current,
        profiles: { ...known, [name]: { ...addresses, ...known[name], ...access.made } },
      }));
    if (running !== undefined && access.made.token !== undefined) await awaitKnown(profile, stop);
    answer({
      dataDir: config.dataDir,
      isRunning: running !== undefined,
      ...addresses,
      apps: access.apps.map(({ idApp }) => idApp),
      users: access.users.map(({ idUser }) => idUser),
      made: Object.keys(access.made).filter((member) => member.startsWith('id')),
      ...(isNew || before !== undefined ? { profile: name } : {}),
    });
    if (isNew || before !== undefined) for (const line of examplesOf(profile)) note(line);
    noteMissing(name, access, profile, context);
    if (running !== undefined && wait)
      note("The service runs on: 'tributary stop', or 'make stop' in a checkout, ends it.");
    if (running === undefined) note("No service runs on this data folder: 'tributary start' runs it.");
  },
});
