import { defined } from '../runtime/files/checksummed-json.ts';
import {
  changeProfiles,
  describeProfile,
  noSuchProfile,
  parseProfileName,
  parseServiceUrl,
  profilesPath,
  readProfiles,
  type Profile,
  type Profiles,
} from '../client/profiles.ts';
import { findSecret } from '../config.ts';
import { defineCommand, type CommandContext, type CommandGroup } from './command.ts';
import { flag, parsed, positive, failUsage } from './option-specs.ts';

const name = { NAME: parsed('profile name', 'NAME', parseProfileName) };
const maxSecretsBytes = 64 * 1024;

const url = (about: string) => parsed(about, 'URL', parseServiceUrl);

async function readSecrets({ input }: CommandContext): Promise<Pick<Profile, 'token' | 'secret'>> {
  let inputText = '';
  for await (const piece of input?.() ?? []) {
    inputText += Buffer.from(piece).toString('utf8');
    if (inputText.length > maxSecretsBytes) failUsage('standard input is larger than a token and a secret');
  }
  const secrets: { token?: string; secret?: string } = {};
  for (const line of inputText.split(/\r?\n/)) {
    const [, member, value] = /^(token|secret)=(\S+)$/.exec(line.trim()) ?? [];
    if (line.trim() === '') continue;
    if (member === undefined || value === undefined)
      failUsage('standard input must have only lines of token=... and secret=...');
    else Object.assign(secrets, { [member]: value });
  }
  return secrets;
}

const shown = ({ profiles, current }: Profiles, chosen: string) =>
  describeProfile(chosen, profiles[chosen] ?? {}, chosen === current);

const add = defineCommand({
  name: 'add',
  summary: 'create a profile, or change the given values of one',
  arguments: name,
  options: {
    importUrl: url('URL of the import area'),
    exportUrl: url('URL of the export area'),
    app: positive('app id for imports', 'ID'),
    user: positive('user id for exports', 'ID'),
    stdin: flag('read secrets from standard input, in lines of token=TOKEN and secret=SECRET'),
  },
  isWithoutData: true,
  details: [
    'Secrets are read from TRIBUTARY_TOKEN and TRIBUTARY_SECRET, from the files that TRIBUTARY_TOKEN_FILE and TRIBUTARY_SECRET_FILE name, or from standard input, never from the command line.',
    'The first profile becomes the current one.',
  ],
  examples: [
    'profile add shop --import-url https://events.example.com --export-url https://exports.example.com --app 7 --user 1 --stdin',
  ],
  async run({ NAME: chosen, importUrl, exportUrl, app, user, stdin }, context) {
    const { environment } = context;
    const fromInput = stdin ? await readSecrets(context) : {};
    const token = fromInput.token ?? findSecret(environment, 'TRIBUTARY_TOKEN');
    const secret = fromInput.secret ?? findSecret(environment, 'TRIBUTARY_SECRET');
    const changes: Profile = defined({ importUrl, exportUrl, idApp: app, idUser: user?.toString(), token, secret });
    const changed = await changeProfiles(profilesPath(environment), ({ current = chosen, profiles }) => ({
      current,
      profiles: { ...profiles, [chosen]: { ...profiles[chosen], ...changes } },
    }));
    return shown(changed, chosen);
  },
});

const list = defineCommand({
  name: 'list',
  summary: 'list the profiles; secrets are not shown',
  isList: true,
  isWithoutData: true,
  examples: ['profile list'],
  async run(_given, { environment }) {
    const found = await readProfiles(profilesPath(environment));
    return Object.keys(found.profiles).map((each) => shown(found, each));
  },
});

function getOwn(profiles: Profiles, chosen: string): void {
  if (!Object.hasOwn(profiles.profiles, chosen)) throw noSuchProfile(profiles, chosen);
}

const use = defineCommand({
  name: 'use',
  summary: 'make a profile the current one',
  arguments: name,
  isWithoutData: true,
  examples: ['profile use shop'],
  async run({ NAME: chosen }, { environment }) {
    const changed = await changeProfiles(profilesPath(environment), (profiles) => {
      getOwn(profiles, chosen);
      return { ...profiles, current: chosen };
    });
    return shown(changed, chosen);
  },
});

const remove = defineCommand({
  name: 'remove',
  summary: 'remove a profile, with its secrets',
  arguments: name,
  isWithoutData: true,
  examples: ['profile remove shop'],
  async run({ NAME: chosen }, { environment }) {
    await changeProfiles(profilesPath(environment), (found) => {
      getOwn(found, chosen);
      const { [chosen]: _, ...profiles } = found.profiles;
      return {
        profiles,
        ...(found.current === undefined || found.current === chosen ? {} : { current: found.current }),
      };
    });
    return { profile: chosen, removed: true };
  },
});

export const profileCommand: CommandGroup = {
  name: 'profile',
  summary: 'manage profiles: URLs and secrets of services for import and export',
  commands: [add, list, use, remove],
};
