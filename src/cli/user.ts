import { addUser } from '../access/commands.ts';
import { dataPaths } from '../config.ts';
import { AppError } from '../runtime/errors.ts';
import { parseId, parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary user add NAME --account N [--no-export] [--max-exports K] [--data DIR]';

/** `tributary user add`: a user of the export area; the secret is shown this once. */
export const userCommand: Command = {
  name: 'user',
  usage,
  summary: 'add a user of the export area',
  async run([verb, ...args], { environment, answer }) {
    if (verb !== 'add') throw new AppError('usage', `'user' takes add, not '${verb ?? ''}'`, { hint: `Usage: ${usage}` });
    const options = { account: { type: 'string' }, 'no-export': { type: 'boolean' }, 'max-exports': { type: 'string' } } as const;
    const { values, positionals } = parseWords(args, ['NAME'], options, usage);
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    answer(
      await addUser(dataPaths(config.dataDir), {
        name: positionals[0] ?? '',
        idAccount: parseId(values.account, '--account'),
        canExport: values['no-export'] !== true,
        ...(values['max-exports'] === undefined ? {} : { maxExports: parseId(values['max-exports'], '--max-exports') }),
      }),
    );
  },
};
