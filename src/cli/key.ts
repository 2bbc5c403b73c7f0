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
  summary: 'rotate the keys of download links, receipts and console sessions, or the operator token',
  verbs: [
    keyVerb('rotate links', 'rotate the key that signs download links; issued links stay valid', rotateSigningKey),
    keyVerb('rotate receipts', 'rotate the key that signs receipts; issued receipts stay valid', rotateReceiptKey),
    keyVerb('rotate sessions', 'rotate the key of console sessions; all users must sign in again', renewSessionKey),
    keyVerb('rotate operator', 'rotate the operator token; the old token is revoked at once', async (keysDir) => ({
      operatorToken: await renewOperatorToken(keysDir),
    })),
  ],
};
