import { renewOperatorToken } from '../access/operator-token.ts';
import { dataPaths } from '../config.ts';
import { rotateSigningKey } from '../reports/signing-keys.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary key rotate|operator [--data DIR]';

/**
 * `tributary key rotate`: new links are signed with a new key; old keys verify until the links they signed have ended.
 * `key operator`: a new token for the operator's address, which ends the one before.
 */
export const keyCommand: Command = {
  name: 'key',
  usage,
  summary: "rotate the key that signs download links, or renew the operator's token",
  async run([verb, ...args], { environment, answer }) {
    if (verb !== 'rotate' && verb !== 'operator')
      throw new AppError('usage', `'key' takes rotate or operator, not '${verb ?? ''}'`, { hint: `Usage: ${usage}` });
    const { values } = parseWords(args, [], {}, usage);
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data }, 'named');
    const { keys } = dataPaths(config.dataDir);
    if (verb === 'operator') answer({ operatorToken: await renewOperatorToken(keys) });
    else answer(await rotateSigningKey(keys, createClock(config.clockOffsetSeconds)));
  },
};
