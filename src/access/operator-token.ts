import path from 'node:path';
import { ensureFolder, findTextFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { createToken, hashToken, sameHash } from './secrets.ts';

/** The operator's token rests as its SHA-256, in hexadecimal digits, beside the other keys. */
function operatorTokenPath(keysFolder: string): string {
  return path.join(keysFolder, 'operator.key');
}

/** Makes a new operator's token, which ends the one before at once, and returns it: it is shown this once. */
export async function renewOperatorToken(keysFolder: string): Promise<string> {
  const token = createToken();
  await ensureFolder(keysFolder);
  await writeFileDurably(operatorTokenPath(keysFolder), `${hashToken(token).toString('hex')}\n`);
  return token;
}

/** Says whether a text is the operator's token; no text is one before the first was made. */
export async function isOperatorToken(keysFolder: string, text: string): Promise<boolean> {
  const stored = await findTextFile(operatorTokenPath(keysFolder));
  return stored !== undefined && sameHash(hashToken(text), Buffer.from(stored.trim(), 'hex'));
}
