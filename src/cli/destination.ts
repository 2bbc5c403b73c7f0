import { assertAccount } from '../access/users.ts';
import {
  addDestination,
  openDestinations,
  maxDestinations,
  setDestinationSecret,
} from '../destinations/destination-store.ts';
import { parseTarget } from '../destinations/target.ts';
import { describeDestination, isSecret, parseDestinationName } from '../export/api/destination-routes.ts';
import { AppError } from '../runtime/errors.ts';
import { getTextSync } from '../runtime/files/open-file.ts';
import { createEgressPolicy } from '../runtime/http/egress-policy.ts';
import { defineDataCommand, type CommandGroup } from './command.ts';
import { failUsage, file, many, oneOf, positive, required, text } from './option-specs.ts';

const account = required(positive('account id', 'ID'));
const secretFile = required(file('file with the secret access key, the password or the private key'));
const id = text("destination id, see 'tributary destination list'");

function readSecret(path: string): string {
  const whole = getTextSync(path);
  // A private key has lines; a password ends at the first.
  const secret = whole.includes('PRIVATE KEY') ? whole : (whole.split('\n', 1)[0] ?? '').trim();
  return isSecret(secret) ? secret : failUsage(`${path} must have a secret of at most 10000 characters`);
}

const noDestination = (idAccount: number, idDestination: string): AppError =>
  new AppError('not_found', `account ${idAccount} has no destination ${idDestination}`, {
    hint: "Run 'tributary destination list' for all destinations.",
  });

const add = defineDataCommand({
  name: 'add',
  summary: 'create a destination, to which exports are delivered',
  arguments: {
    KIND: oneOf(['s3', 'sftp'], 'kind of the place'),
    ARGUMENTS: many(text('parameters of POST /api/destination/v1/create.json: NAME=VALUE each', 'NAME=VALUE')),
  },
  options: { account, name: required(text('name for people')), secretFile },
  details: [
    's3: endpoint, region, bucket, prefix, pathStyle, accessKeyId. sftp: host, port, username, folder, hostKey.',
    'TRIBUTARY_DELIVERY_ALLOW must have the host.',
  ],
  examples: [
    'destination add s3 endpoint=https://s3.eu-central-1.amazonaws.com region=eu-central-1 bucket=b accessKeyId=A --account 1 --name lake --secret-file key',
  ],
  async run({ KIND: kind, ARGUMENTS: words, account: idAccount, name: given, secretFile: path }, context) {
    const { config, paths, clock } = context;
    await assertAccount(paths, idAccount);
    const rules = createEgressPolicy(config.deliveryAllow, { isClosed: true });
    if (typeof rules === 'string') failUsage(`TRIBUTARY_DELIVERY_ALLOW has the invalid entry '${rules}'`);
    const texts = new Map(words.map((word) => [word?.split('=', 1)[0], word?.slice(word.indexOf('=') + 1)]));
    const target = parseTarget(kind, (argument) => texts.get(argument), rules);
    if (typeof target === 'string') failUsage(target);
    const name = parseDestinationName(given) ?? failUsage('--name must have 1 to 100 characters without line breaks');
    const added = { idAccount, name, target, createdMs: clock.nowMs() };
    return describeDestination(await addDestination(paths, added, readSecret(path)));
  },
});

const list = defineDataCommand({
  name: 'list',
  summary: `list the destinations of an account, at most ${maxDestinations}`,
  isList: true,
  options: { account },
  examples: ['destination list --account 1'],
  async run({ account: idAccount }, { paths }) {
    const { known, damaged } = await openDestinations(paths).list(idAccount);
    return [
      ...known.map(describeDestination),
      ...damaged.map((idDestination) => ({ idDestination, status: 'Damaged' })),
    ];
  },
});

const setSecret = defineDataCommand({
  name: 'set-secret',
  summary: 'replace the secret of a destination; deliveries use it from their next attempt on',
  arguments: { ID: id },
  options: { account, secretFile },
  examples: ['destination set-secret de_3f2a90c1d84b7e65 --account 1 --secret-file key'],
  async run({ ID: idDestination, account: idAccount, secretFile: path }, { paths }) {
    const changed = await setDestinationSecret(paths, idAccount, idDestination, readSecret(path));
    if (changed === undefined) throw noDestination(idAccount, idDestination);
    return describeDestination(changed);
  },
});

const remove = defineDataCommand({
  name: 'remove',
  summary: 'remove a destination; its deliveries end',
  arguments: { ID: id },
  options: { account },
  examples: ['destination remove de_3f2a90c1d84b7e65 --account 1'],
  async run({ ID: idDestination, account: idAccount }, { paths }) {
    if (await openDestinations(paths).remove(idAccount, idDestination)) return { idDestination, removed: true };
    throw noDestination(idAccount, idDestination);
  },
});

export const destinationCommand: CommandGroup = {
  name: 'destination',
  summary: 'create, list, change and remove destinations of exports: buckets and SFTP folders',
  commands: [add, list, setSecret, remove],
};
