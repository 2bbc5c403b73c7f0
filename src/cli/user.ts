import { noAccount } from '../access/access.ts';
import { addUser, listUsers, removeUser, renewSecret, setUser } from '../access/users.ts';
import { assertConfirmed, dataVerb, yesOption, type Group } from './command.ts';
import { flag, oneOf, parsed, parsePositiveOrNone, positive, present, refuse, text, withDefault } from './words.ts';

const id = { ID: positive("the id of the user, as 'tributary user list' has it") };
const files = oneOf(
  ['auto', 'gzip'],
  'gzip: every file compressed where a request does not say otherwise; auto: large ones',
);

const add = dataVerb({
  name: 'add',
  summary: 'add a user of the export area; answers the secret, which is shown this once',
  words: { NAME: text('the name; it stands once in an account') },
  options: {
    account: positive('whose apps the user exports; an operator may go without'),
    operator: flag(
      'may see how the service is, and change apps and users of every account, in the console or by the API',
    ),
    noExport: flag('may read reports of the account, and order none'),
    maxExports: positive("simultaneous requests of this user, within the account's", 'K'),
    files: withDefault(files, 'auto'),
  },
  examples: ['user add ann --account 1', 'user add root --operator', 'user add python --account 1 --files gzip'],
  opens: 'named',
  async run({ NAME: name, account, operator, noExport, maxExports, files: form }, { paths }) {
    if (account === undefined && !operator) refuse('--account is expected: only an operator goes without');
    return addUser(paths, {
      name,
      idAccount: account ?? noAccount,
      canExport: account !== undefined && !noExport,
      ...(operator ? { operator: true as const } : {}),
      ...present({ files: form === 'gzip' ? form : undefined, maxExports }),
    });
  },
});

const set = dataVerb({
  name: 'set',
  summary: 'change what a user may, and how files come',
  words: id,
  options: {
    export: oneOf(['yes', 'no'], 'whether the user orders exports, or reads reports of the account only'),
    maxExports: parsed(
      "simultaneous requests of this user, within the account's; none: as many as the account",
      'K|none',
      parsePositiveOrNone,
    ),
    files,
  },
  details: ["Applies to new requests only. 'tributary user rotate-secret' replaces the secret."],
  examples: ['user set 1 --max-exports 2', 'user set 1 --export no'],
  async run({ ID: idUser, export: mayExport, maxExports, files: form }, { paths }) {
    if ((mayExport ?? maxExports ?? form) === undefined)
      refuse('nothing is to be changed: give --export, --max-exports or --files');
    const settings = present({
      canExport: mayExport === undefined ? undefined : mayExport === 'yes',
      maxExports: maxExports === 'none' ? null : maxExports,
      files: form,
    });
    return setUser(paths, idUser, settings);
  },
});

const list = dataVerb({
  name: 'list',
  summary: 'list the users',
  isList: true,
  examples: ['user list'],
  run: (_given, { paths }) => listUsers(paths),
});

const remove = dataVerb({
  name: 'remove',
  summary: 'remove a user; the reports stay',
  words: id,
  options: yesOption,
  examples: ['user remove 1', 'user remove 1 --yes'],
  async run({ ID: idUser, yes }, context) {
    await assertConfirmed(`Remove user ${idUser} for good, with every link that was given to them?`, yes, context);
    return removeUser(context.paths, idUser);
  },
});

const rotateSecret = dataVerb({
  name: 'rotate-secret',
  summary: 'give a user a new secret, which ends the old one and is shown this once',
  words: id,
  examples: ['user rotate-secret 1'],
  run: ({ ID: idUser }, { paths }) => renewSecret(paths, idUser),
});

export const userCommand: Group = {
  name: 'user',
  summary: 'add, change, list and remove users of the export area; give one a new secret',
  verbs: [add, set, list, remove, rotateSecret],
};
