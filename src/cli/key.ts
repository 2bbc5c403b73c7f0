import { renewOperatorToken } from '../access/secrets.ts';
import { renewSessionKey } from '../access/session-key.ts';
import { rotateReceiptKey } from '../receipts/receipt-keys.ts';
import { rotateSigningKey } from '../reports/signed-links.ts';
import type { Clock } from '../runtime/clock.ts';
import { dataVerb, type Group } from './command.ts';

const keyVerb = (name: string, summary: string, renew: (keysDir: string, clock: Clock) => Promise<object>) =>
  dataVerb({
    name,
    summary,
    examples: [`key ${name}`],
    opens: 'named',
    run: (_given, { paths, clock }) => renew(paths.keys, clock),
  });

export const keyCommand: Group = {
  name: 'key',
  summary: "renew the key that signs download links, those of receipts and sessions, or the operator's token",
  verbs: [
    keyVerb(
      'rotate',
      'sign new links with a new key; the old ones verify until their links have ended',
      rotateSigningKey,
    ),
    keyVerb('receipts', 'sign receipts with a new key; those of before verify on', rotateReceiptKey),
    keyVerb('sessions', 'everybody signs in to the console again', renewSessionKey),
    keyVerb('operator', "make a new token for the operator's address, which ends the one before", async (keysDir) => ({
      operatorToken: await renewOperatorToken(keysDir),
    })),
  ],
};
