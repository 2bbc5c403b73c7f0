import { defined } from '../runtime/files/checksummed-json.ts';
import {
  addApp,
  addAppToken,
  isSdkKey,
  keepApp,
  listApps,
  removeApp,
  restoreApp,
  revokeAppToken,
  setApp,
} from '../access/apps.ts';
import { datasets } from '../datasets/dataset.ts';
import { kindsOf } from '../lake/expiry/age-rules.ts';
import { platforms } from '../datasets/field-schema.ts';
import { assertConfirmed, defineDataCommand, yesOption, type CommandGroup } from './command.ts';
import {
  flag,
  oneOf,
  parsed,
  parsePositiveOrNone,
  positive,
  failUsage,
  required,
  text,
  withDefault,
} from './option-specs.ts';

const id = { ID: positive('app id') };

const add = defineDataCommand({
  name: 'add',
  summary: 'create an app and print its token, which is shown only once',
  arguments: id,
  options: {
    platform: required(oneOf(platforms, 'platform of its events')),
    title: text('display name', 'T'),
    sdkKey: text('value for the SDKKey filter of exports', 'K'),
    account: withDefault(positive('id of the account that owns the app'), 1),
    project: positive('value for the idProject filter of exports'),
  },
  examples: ['app add 7 --platform web --title "My shop"'],
  opens: 'named',
  run: ({ ID: idApp, platform, title, sdkKey, account, project }, { paths, clock }) =>
    addApp(
      paths,
      { idApp, platform, idAccount: account, ...defined({ title, sdkKey, idProject: project }) },
      clock.nowMs(),
    ),
});

const set = defineDataCommand({
  name: 'set',
  summary: 'change the title or the project of an app',
  arguments: id,
  options: {
    title: text('display name', 'T'),
    project: parsed('value for the idProject filter of exports; none removes it', 'N|none', parsePositiveOrNone),
  },
  details: ['Account, platform and SDK key cannot be changed: stored rows depend on them.'],
  examples: ['app set 7 --title "My shop"', 'app set 7 --project none'],
  async run({ ID: idApp, title, project }, { paths }) {
    if (title === undefined && project === undefined) failUsage('nothing to change: pass --title or --project');
    return setApp(paths, idApp, defined({ title, idProject: project === 'none' ? null : project }));
  },
});

const maxDays = 36_500;

const keep = defineDataCommand({
  name: 'keep',
  summary: 'set for how many days the rows of an app are kept, by the date of the event (UTC)',
  arguments: id,
  options: {
    days: positive('days that are kept before today', 'N', maxDays),
    forever: flag('keep the rows without a limit, regardless of TRIBUTARY_KEEP_DAYS'),
    remove: flag('remove the limit; TRIBUTARY_KEEP_DAYS applies again'),
    kind: oneOf(
      [...datasets.values()].flatMap((dataset) => kindsOf(dataset)),
      'only rows of this kind of event, or of this table (all)',
      'KIND',
    ),
    ...yesOption,
  },
  details: [
    "The compactor removes older rows in the background; 'tributary lake expire --dry-run' counts them first. Only a backup has removed rows.",
  ],
  examples: ['app keep 7 --days 400', 'app keep 7 --days 90 --kind login', 'app keep 7 --remove'],
  async run({ ID: idApp, days, forever, remove: removes, kind, yes }, context) {
    if ([days !== undefined, forever, removes].filter(Boolean).length !== 1)
      failUsage('pass one of --days, --forever and --remove');
    if (!forever) {
      const limit = days === undefined ? 'the limit of the service' : `${days} days`;
      await assertConfirmed(`Permanently remove rows of app ${idApp} that are older than ${limit}?`, yes, context);
    }
    context.printResult(await keepApp(context.paths, idApp, removes ? undefined : (days ?? 0), kind));
    return 0;
  },
});

const addToken = defineDataCommand({
  name: 'token add',
  summary: 'add a token to an app and print it, which is shown only once',
  arguments: id,
  examples: ['app token add 7'],
  run: ({ ID: idApp }, { paths, clock }) => addAppToken(paths, idApp, clock.nowMs()),
});

const revokeToken = defineDataCommand({
  name: 'token revoke',
  summary: 'revoke a token of an app',
  arguments: { ...id, PREFIX: text("first characters of the token, as 'tributary app list' shows them") },
  details: ['Put -- before a PREFIX that begins with a dash.'],
  examples: ['app token revoke 7 Kx2mQ0aZ', 'app token revoke 7 -- -x2mQ0aZ'],
  async run({ ID: idApp, PREFIX: prefix }, { paths, printResult, printMessage }) {
    const { tokens, ...revoked } = await revokeAppToken(paths, idApp, prefix);
    printResult(revoked);
    if (tokens.length === 0)
      printMessage(
        `app ${idApp} has no token left: its imports are rejected with 403 until 'tributary app token add ${idApp}' adds one`,
      );
    return 0;
  },
});

const list = defineDataCommand({
  name: 'list',
  summary: 'list the apps, with the prefixes of their tokens',
  isList: true,
  options: { removed: flag('list removed apps instead') },
  examples: ['app list', 'app list --removed'],
  async run({ removed }, { paths, printResult, printMessage }) {
    const apps = await listApps(paths, removed);
    for (const app of apps) printResult(app);
    // Earlier versions accepted any key.
    for (const { idApp, sdkKey } of apps)
      if (!isSdkKey(sdkKey))
        printMessage(
          `app ${idApp}: the SDKKey filter cannot match its SDK key, which has a comma or more than 255 characters; filter exports by idApp`,
        );
  },
});

const remove = defineDataCommand({
  name: 'remove',
  summary: 'remove an app and revoke its tokens; its rows stay',
  arguments: id,
  options: yesOption,
  examples: ['app remove 7', 'app remove 7 --yes'],
  async run({ ID: idApp, yes }, context) {
    await assertConfirmed(`Revoke all tokens of app ${idApp} and reject its imports?`, yes, context);
    context.printResult(await removeApp(context.paths, idApp, context.clock.nowMs()));
    context.printMessage(
      `imports of app ${idApp} are now rejected with 403; 'tributary app restore ${idApp}' restores it, 'tributary erase --app ${idApp}' erases its rows`,
    );
  },
});

const restore = defineDataCommand({
  name: 'restore',
  summary: 'restore a removed app with a new token',
  arguments: id,
  examples: ['app restore 7'],
  run: ({ ID: idApp }, { paths, clock }) => restoreApp(paths, idApp, clock.nowMs()),
});

export const appCommand: CommandGroup = {
  name: 'app',
  summary: 'create, change, list, remove and restore apps, and manage their tokens',
  commands: [add, set, keep, addToken, revokeToken, list, remove, restore],
};
