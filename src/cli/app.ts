import { addApp, addAppToken, revokeAppToken } from '../access/commands.ts';
import { listApps } from '../access/listing.ts';
import { removeApp, restoreApp } from '../access/take-back.ts';
import { dataPaths, type Config } from '../config.ts';
import { platforms, type Platform } from '../datasets/event-kinds.ts';
import { isSdkKey } from '../access/sdk-key.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { parseId, parseWords, resolveConfig, type Command, type CommandContext } from './command.ts';

const usages = {
  add: `tributary app add ID --platform ${platforms.join('|')} [--title T] [--sdk-key K] [--account N] [--project N] [--data DIR]`,
  token: 'tributary app token ID [--revoke PREFIX] [--data DIR]',
  list: 'tributary app list [--removed] [--data DIR]',
  remove: 'tributary app remove ID [--data DIR]',
  restore: 'tributary app restore ID [--data DIR]',
} as const;

function parsePlatform(text: string | undefined): Platform {
  const platform = platforms.find((known) => known === text);
  if (platform === undefined)
    throw new AppError('usage', `--platform must be one of ${platforms.join(', ')}, not '${text ?? ''}'`);
  return platform;
}

function nowOf(config: Config): number {
  return createClock(config.clockOffsetSeconds).nowMs();
}

async function add(args: readonly string[], { environment, answer }: CommandContext): Promise<void> {
  const options = {
    platform: { type: 'string' },
    title: { type: 'string' },
    'sdk-key': { type: 'string' },
    account: { type: 'string' },
    project: { type: 'string' },
  } as const;
  const { values, positionals } = parseWords(args, ['ID'], options, usages.add);
  const app = {
    idApp: parseId(positionals[0], 'ID'),
    platform: parsePlatform(values.platform),
    idAccount: parseId(values.account ?? '1', '--account'),
    ...(values.title === undefined ? {} : { title: values.title }),
    ...(values['sdk-key'] === undefined ? {} : { sdkKey: values['sdk-key'] }),
    ...(values.project === undefined ? {} : { idProject: parseId(values.project, '--project') }),
  };
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data }, 'named');
  answer(await addApp(dataPaths(config.dataDir), app, nowOf(config)));
}

async function token(args: readonly string[], { environment, answer, note }: CommandContext): Promise<void> {
  const { values, positionals } = parseWords(args, ['ID'], { revoke: { type: 'string' } }, usages.token);
  const idApp = parseId(positionals[0], 'ID');
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
  const paths = dataPaths(config.dataDir);
  if (values.revoke === undefined) return answer(await addAppToken(paths, idApp, nowOf(config)));
  const { tokens, ...revoked } = await revokeAppToken(paths, idApp, values.revoke);
  answer(revoked);
  if (tokens.length === 0)
    note(
      `app ${idApp} has no token left: every import for it is answered 403 until 'tributary app token ${idApp}' makes one`,
    );
}

async function list(args: readonly string[], { environment, answer, note }: CommandContext): Promise<void> {
  const { values } = parseWords(args, [], { removed: { type: 'boolean' } }, usages.list);
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
  const apps = listApps(dataPaths(config.dataDir), values.removed === true);
  for (const app of apps) answer(app);
  // An earlier version took any key.
  for (const { idApp, sdkKey } of apps)
    if (!isSdkKey(sdkKey))
      note(
        `app ${idApp}: no SDKKey filter can name its SDK key, which has a comma or more than 255 characters; exports name the app by idApp`,
      );
}

async function remove(args: readonly string[], { environment, answer, note }: CommandContext): Promise<void> {
  const { values, positionals } = parseWords(args, ['ID'], {}, usages.remove);
  const idApp = parseId(positionals[0], 'ID');
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
  answer(await removeApp(dataPaths(config.dataDir), idApp, nowOf(config)));
  note(
    `imports of app ${idApp} are answered 403 from now on; its rows stay in the lake until 'tributary erase --app ${idApp}', and 'tributary app restore ${idApp}' brings it back`,
  );
}

async function restore(args: readonly string[], { environment, answer }: CommandContext): Promise<void> {
  const { values, positionals } = parseWords(args, ['ID'], {}, usages.restore);
  const idApp = parseId(positionals[0], 'ID');
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
  answer(await restoreApp(dataPaths(config.dataDir), idApp, nowOf(config)));
}

const verbs: Readonly<Record<string, (args: readonly string[], context: CommandContext) => Promise<void>>> = {
  add,
  token,
  list,
  remove,
  restore,
};

/**
 * `tributary app add|token|list|remove|restore`: registers apps, gives and ends their import tokens, takes apps back.
 */
export const appCommand: Command = {
  name: 'app',
  usage: Object.values(usages).join('\n'),
  summary: 'register an app; give it a further token, or end one; list, remove and restore apps',
  details: [
    "--revoke PREFIX   ends the token that begins so ('tributary app list' shows the prefixes)",
    '--sdk-key         names the app in the SDKKey filter of exports',
    '--account         whose app it is: its users export it (1)',
    '--project         for the idProject filter of exports',
    '--removed         list the apps that were removed',
    'A token is shown once, by add, token and restore.',
  ],
  async run([verb, ...args], context) {
    const run = verb !== undefined && Object.hasOwn(verbs, verb) ? verbs[verb] : undefined;
    if (run === undefined)
      throw new AppError('usage', `'app' takes ${Object.keys(verbs).join(', ')}, not '${verb ?? ''}'`, {
        hint: `Usage: ${Object.values(usages).join(', ')}`,
      });
    await run(args, context);
  },
};
