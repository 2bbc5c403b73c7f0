import { dataPaths } from '../config.ts';
import { rotateSigningKey } from '../reports/signing-keys.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary key rotate [--data DIR]';

/**
 * `tributary key rotate`: new links are signed with a new key; old keys verify until the links they signed have ended.
 */
export const keyCommand: Command = {
  name: 'key',
  usage,
  summary: 'rotate the key that signs download links',
  async run([verb, ...args], { environment, answer }) {
    if (verb !== 'rotate')
      throw new AppError('usage', `'key' takes rotate, not '${verb ?? ''}'`, { hint: `Usage: ${usage}` });
    const { values } = parseWords(args, [], {}, usage);
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data }, 'named');
    answer(await rotateSigningKey(dataPaths(config.dataDir).keys, createClock(config.clockOffsetSeconds)));
  },
};
