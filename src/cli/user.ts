import type { FileHabit } from '../access/access.ts';
import { addUser } from '../access/commands.ts';
import { listUsers } from '../access/listing.ts';
import { removeUser, renewSecret } from '../access/take-back.ts';
import { dataPaths } from '../config.ts';
import { AppError } from '../runtime/errors.ts';
import { parseId, parseWords, resolveConfig, type Command, type CommandContext } from './command.ts';

const usages = {
  add: 'tributary user add NAME --account N [--no-export] [--max-exports K] [--files auto|gzip] [--data DIR]',
  list: 'tributary user list [--data DIR]',
  remove: 'tributary user remove ID [--data DIR]',
  secret: 'tributary user secret ID [--data DIR]',
} as const;

function parseFiles(value = 'auto'): FileHabit {
  if (value === 'auto' || value === 'gzip') return value;
  throw new AppError('usage', `--files takes auto or gzip, not '${value}'`, { hint: `Usage: ${usages.add}` });
}

async function add(args: readonly string[], { environment, answer }: CommandContext): Promise<void> {
  const options = {
    account: { type: 'string' },
    'no-export': { type: 'boolean' },
    'max-exports': { type: 'string' },
    files: { type: 'string' },
  } as const;
  const { values, positionals } = parseWords(args, ['NAME'], options, usages.add);
  const user = {
    name: positionals[0] ?? '',
    idAccount: parseId(values.account, '--account'),
    canExport: values['no-export'] !== true,
    ...(parseFiles(values.files) === 'gzip' ? { files: 'gzip' as const } : {}),
    ...(values['max-exports'] === undefined ? {} : { maxExports: parseId(values['max-exports'], '--max-exports') }),
  };
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data }, 'named');
  answer(await addUser(dataPaths(config.dataDir), user));
}

async function list(args: readonly string[], { environment, answer }: CommandContext): Promise<void> {
  const { values } = parseWords(args, [], {}, usages.list);
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
  for (const user of listUsers(dataPaths(config.dataDir))) answer(user);
}

async function remove(args: readonly string[], { environment, answer }: CommandContext): Promise<void> {
  const { values, positionals } = parseWords(args, ['ID'], {}, usages.remove);
  const idUser = parseId(positionals[0], 'ID');
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
  answer(await removeUser(dataPaths(config.dataDir), idUser));
}

async function secret(args: readonly string[], { environment, answer }: CommandContext): Promise<void> {
  const { values, positionals } = parseWords(args, ['ID'], {}, usages.secret);
  const idUser = parseId(positionals[0], 'ID');
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
  answer(await renewSecret(dataPaths(config.dataDir), idUser));
}

const verbs: Readonly<Record<string, (args: readonly string[], context: CommandContext) => Promise<void>>> = {
  add,
  list,
  remove,
  secret,
};

/** `tributary user add|list|remove|secret`: the users of the export area; a secret is shown once. */
export const userCommand: Command = {
  name: 'user',
  usage: Object.values(usages).join('\n'),
  summary: 'add, list and remove users of the export area; give one a new secret',
  details: [
    '--no-export      may read reports of the account, and order none',
    "--max-exports    simultaneous requests of this user, within the account's",
    '--files          gzip: every file compressed where a request does not say otherwise; auto: large ones',
    'A secret is shown once, by add and by secret.',
  ],
  async run([verb, ...args], context) {
    const run = verb !== undefined && Object.hasOwn(verbs, verb) ? verbs[verb] : undefined;
    if (run === undefined)
      throw new AppError('usage', `'user' takes ${Object.keys(verbs).join(', ')}, not '${verb ?? ''}'`, {
        hint: `Usage: ${Object.values(usages).join(', ')}`,
      });
    await run(args, context);
  },
};
