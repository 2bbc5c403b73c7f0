import { defined } from '../runtime/files/checksummed-json.ts';
import { noAccount } from '../access/access.ts';
import { addUser, listUsers, removeUser, rotateUserSecret, setUser } from '../access/users.ts';
import { createPassword, setPassword } from '../access/passwords.ts';
import { assertConfirmed, defineDataCommand, yesOption, type CommandGroup } from './command.ts';
import { flag, oneOf, parsed, parsePositiveOrNone, positive, failUsage, text, withDefault } from './option-specs.ts';

const id = { ID: positive("user id, see 'tributary user list'") };
const files = oneOf(['auto', 'gzip'], 'default compression of files: gzip, or auto for large files only');

const add = defineDataCommand({
  name: 'add',
  summary: 'create a user of the export area and print the secret, which is shown only once',
  arguments: { NAME: text('user name, unique in the account') },
  options: {
    account: positive('id of the account whose apps the user exports; optional for an operator'),
    operator: flag('may view the service status, and change apps and users of all accounts'),
    noExport: flag('may read reports of the account, but not create exports'),
    maxExports: positive("maximum concurrent exports of this user, within the account's limit", 'K'),
    files: withDefault(files, 'auto'),
  },
  examples: ['user add ann --account 1', 'user add root --operator', 'user add python --account 1 --files gzip'],
  opens: 'named',
  async run({ NAME: name, account, operator, noExport, maxExports, files: form }, { paths }) {
    if (account === undefined && !operator) failUsage('--account is required without --operator');
    return addUser(paths, {
      name,
      idAccount: account ?? noAccount,
      canExport: account !== undefined && !noExport,
      ...(operator ? { operator: true as const } : {}),
      ...defined({ files: form === 'gzip' ? form : undefined, maxExports }),
    });
  },
});

const set = defineDataCommand({
  name: 'set',
  summary: 'change the permissions, limits and compression of a user',
  arguments: id,
  options: {
    export: oneOf(['yes', 'no'], 'whether the user may create exports'),
    maxExports: parsed(
      "maximum concurrent exports of this user, within the account's limit; none removes it",
      'K|none',
      parsePositiveOrNone,
    ),
    files,
  },
  details: ["Applies to new requests only. 'tributary user rotate-secret' replaces the secret."],
  examples: ['user set 1 --max-exports 2', 'user set 1 --export no'],
  async run({ ID: idUser, export: mayExport, maxExports, files: form }, { paths }) {
    if ((mayExport ?? maxExports ?? form) === undefined)
      failUsage('nothing to change: pass --export, --max-exports or --files');
    const settings = defined({
      canExport: mayExport === undefined ? undefined : mayExport === 'yes',
      maxExports: maxExports === 'none' ? null : maxExports,
      files: form,
    });
    return setUser(paths, idUser, settings);
  },
});

const list = defineDataCommand({
  name: 'list',
  summary: 'list the users',
  isList: true,
  examples: ['user list'],
  run: (_given, { paths }) => listUsers(paths),
});

const remove = defineDataCommand({
  name: 'remove',
  summary: 'remove a user; the reports stay',
  arguments: id,
  options: yesOption,
  examples: ['user remove 1', 'user remove 1 --yes'],
  async run({ ID: idUser, yes }, context) {
    await assertConfirmed(`Permanently remove user ${idUser} and invalidate their download links?`, yes, context);
    return removeUser(context.paths, idUser);
  },
});

const rotateSecret = defineDataCommand({
  name: 'rotate-secret',
  summary: 'replace the secret of a user and print the new one, which is shown only once',
  arguments: id,
  examples: ['user rotate-secret 1'],
  run: ({ ID: idUser }, { paths }) => rotateUserSecret(paths, idUser),
});

const password = defineDataCommand({
  name: 'password',
  summary: 'set a new password of a user for the console and print it, which is shown only once',
  arguments: id,
  options: {
    stdin: flag('read the password from standard input, and print none'),
    remove: flag('remove the password; the secret stays'),
  },
  details: [
    'The user signs in to the console with name and password, and can change it there. All sessions of the user end.',
    'API calls need the secret.',
  ],
  examples: ['user password 1', 'user password 1 --stdin < password.txt', 'user password 1 --remove'],
  async run({ ID: idUser, stdin, remove: isRemoved }, { paths, input }) {
    if (stdin && isRemoved) failUsage('--stdin and --remove exclude each other');
    if (stdin && input === undefined) failUsage('standard input is not available');
    const given = stdin && input !== undefined ? await readLine(input()) : createPassword();
    const { user } = await setPassword(paths, idUser, isRemoved ? undefined : given);
    const shown = { idUser: user.idUser, name: user.name };
    return isRemoved || stdin ? { ...shown, hasPassword: !isRemoved } : { ...shown, password: given };
  },
});

/** Reads the first line of an input. */
async function readLine(input: AsyncIterable<Uint8Array>): Promise<string> {
  const pieces: Uint8Array[] = [];
  for await (const piece of input) pieces.push(piece);
  return Buffer.concat(pieces).toString('utf8').split(/\r?\n/, 1)[0] ?? '';
}

export const userCommand: CommandGroup = {
  name: 'user',
  summary: 'create, change, list and remove users of the export area, and set secrets and passwords',
  commands: [add, set, list, remove, rotateSecret, password],
};
