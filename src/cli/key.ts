import { rotateOperatorToken } from '../access/secrets.ts';
import { rotateSessionKey } from '../access/session-key.ts';
import { rotateReceiptKey } from '../receipts/receipt-keys.ts';
import { rotateSigningKey } from '../reports/signed-links.ts';
import type { Clock } from '../runtime/clock.ts';
import { defineDataCommand, type CommandGroup } from './command.ts';

const keyVerb = (name: string, summary: string, renew: (keysDir: string, clock: Clock) => Promise<object>) =>
  defineDataCommand({
    name,
    summary,
    examples: [`key ${name}`],
    opens: 'named',
    run: (_given, { paths, clock }) => renew(paths.keys, clock),
  });

export const keyCommand: CommandGroup = {
  name: 'key',
  summary: 'rotate the keys of download links, receipts and console sessions, or the operator token',
  commands: [
    keyVerb('rotate links', 'rotate the key that signs download links; issued links stay valid', rotateSigningKey),
    keyVerb('rotate receipts', 'rotate the key that signs receipts; issued receipts stay valid', rotateReceiptKey),
    keyVerb('rotate sessions', 'rotate the key of console sessions; all users must sign in again', rotateSessionKey),
    keyVerb('rotate operator', 'rotate the operator token; the old token is revoked at once', async (keysDir) => ({
      operatorToken: await rotateOperatorToken(keysDir),
    })),
  ],
};
