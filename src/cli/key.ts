import { renewOperatorToken } from '../access/secrets.ts';
import { renewSessionKey } from '../access/session-key.ts';
import { rotateReceiptKey } from '../receipts/receipt-keys.ts';
import { rotateSigningKey } from '../reports/signed-links.ts';
import type { Clock } from '../runtime/clock.ts';
import { verb, type CommandContext, type Group, type Verb, openData } from './command.ts';

/** A verb that makes a new key, or token, and answers what is known of it. */
function keyVerb(declared: Pick<Verb, 'name' | 'summary'>, renew: (keysDir: string, clock: Clock) => Promise<unknown>) {
  return verb({
    ...declared,
    examples: [`key ${declared.name}`],
    async run({ data }, { environment, answer }: CommandContext) {
      const { paths, clock } = openData(data, { environment }, 'named');
      answer(await renew(paths.keys, clock));
    },
  });
}

/** `tributary key rotate|receipts|sessions|operator`: new keys, and a new token for the operator's address. */
export const keyCommand: Group = {
  name: 'key',
  summary: "renew the key that signs download links, those of receipts and sessions, or the operator's token",
  verbs: [
    keyVerb(
      { name: 'rotate', summary: 'sign new links with a new key; the old ones verify until their links have ended' },
      rotateSigningKey,
    ),
    keyVerb({ name: 'receipts', summary: 'sign receipts with a new key; those of before verify on' }, rotateReceiptKey),
    keyVerb({ name: 'sessions', summary: 'everybody signs in to the console again' }, renewSessionKey),
    keyVerb(
      { name: 'operator', summary: "make a new token for the operator's address, which ends the one before" },
      async (keysDir) => ({ operatorToken: await renewOperatorToken(keysDir) }),
    ),
  ],
};
