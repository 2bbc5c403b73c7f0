import { renewOperatorToken } from '../access/operator-token.ts';
import { dataPaths } from '../config.ts';
import { rotateReceiptKey } from '../receipts/receipt-keys.ts';
import { rotateSigningKey } from '../reports/signing-keys.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary key rotate|operator|receipts [--data DIR]';

/**
 * `tributary key rotate`: new links are signed with a new key; old keys verify until the links they signed have ended.
 * `key operator`: a new token for the operator's address, which ends the one before. `key receipts`: receipts are signed
 * with a new key; those of before verify on.
 */
export const keyCommand: Command = {
  name: 'key',
  usage,
  summary: "rotate the key that signs download links or that of receipts, or renew the operator's token",
  async run([verb, ...args], { environment, answer }) {
    if (verb !== 'rotate' && verb !== 'operator' && verb !== 'receipts')
      throw new AppError('usage', `'key' takes rotate, operator or receipts, not '${verb ?? ''}'`, {
        hint: `Usage: ${usage}`,
      });
    const { values } = parseWords(args, [], {}, usage);
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data }, 'named');
    const { keys } = dataPaths(config.dataDir);
    if (verb === 'operator') answer({ operatorToken: await renewOperatorToken(keys) });
    else {
      const rotate = verb === 'rotate' ? rotateSigningKey : rotateReceiptKey;
      answer(await rotate(keys, createClock(config.clockOffsetSeconds)));
    }
  },
};
