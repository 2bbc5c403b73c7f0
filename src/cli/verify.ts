import path from 'node:path';
import { parseManifest, type Manifest } from '../reports/manifest.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { findTextFile } from '../runtime/files/durable-file.ts';
import { getSize, hashFile } from '../runtime/files/file-checks.ts';
import { getBytes, getTextFile } from '../runtime/files/text-file.ts';
import { verb, type CommandContext, type OptionValues } from './command.ts';
import { verifyReceipt } from './verify-receipt.ts';
import { file, folder, many, parsed, refuse } from './words.ts';

const untrusted = (what: string): string =>
  `the ${what} was verified by the key that it names itself, and anybody could have signed it with a key of their own: give that of the service by --key`;

/** Whether a file is one of a manifest's. */
interface Verdict {
  readonly file: string;
  readonly ok: boolean;
  readonly rows?: number;
  readonly why?: string;
}

function cannotRead(name: string, cause?: unknown): AppError {
  return new AppError('not_found', `${name} cannot be read`, { hint: 'Name a file that is there.', cause });
}

async function readable<T>(name: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!isSystemError(error, 'ENOENT', 'EISDIR', 'EACCES')) throw error;
    throw cannotRead(name, error);
  }
}

async function judge(name: string, { files }: Manifest): Promise<{ verdict: Verdict; sha256: string }> {
  const [sha256, size] = await readable(name, async () => [await hashFile(name), await getSize(name)] as const);
  const found = files.find((known) => known.sha256 === sha256 && known.bytes === size);
  if (found !== undefined) return { verdict: { file: name, ok: true, rows: found.rows }, sha256 };
  const isNamed = files.some((known) => known.name === path.basename(name));
  const why = isNamed ? 'its content is another one' : 'it is none of the files of the manifest';
  return { verdict: { file: name, ok: false, why }, sha256 };
}

const receiptOptions = {
  body: file('the body of the import: is it the one that the receipt is of?'),
  data: folder('a data folder, whose keys are trusted: is each event there, and since which version?'),
  lake: folder('the folder of a lake: is each event there, and since which version?'),
} as const;

/** How a receipt is verified. */
type ReceiptOptions = OptionValues<typeof receiptOptions>;

async function runReceipt(
  name: string,
  key: string | undefined,
  { body: bodyFile, data, lake }: ReceiptOptions,
  { environment, answer, note }: CommandContext,
): Promise<number> {
  if (data !== undefined && lake !== undefined) refuse('--data and --lake exclude each other');
  const receipt = await readable(name, () => getTextFile(name));
  if (/^\{\s*"manifestVersion"/.test(receipt))
    refuse(`${name} is a manifest: name the files that it is to be compared with before it`);
  const body = bodyFile === undefined ? undefined : await readable(bodyFile, () => getBytes(bodyFile));
  const verdict = await verifyReceipt(receipt, { key, body, data, lake }, environment);
  if (!verdict.trusted) note(untrusted('receipt'));
  answer(verdict);
  return verdict.ok ? 0 : 1;
}

/**
 * `tributary verify FILE... MANIFEST`: tells whether downloaded files are those of an export, by its manifest alone;
 * exit code 1 where one is not. Files of the export that were not given are named as `missing`. No service and no data folder is needed.
 * `tributary verify RECEIPT`: tells whether a receipt of an import is the service's, and with a data folder or a lake
 * where its events are; exit code 1 where one is missing or changed.
 */
export const verifyCommand = verb({
  name: 'verify',
  summary: 'tell whether downloaded files are those of an export, or where the events of a receipt are',
  usage: ['FILE... MANIFEST [--key HEX]', 'RECEIPT [--key HEX] [--body FILE] [--data DIR | --lake DIR]'],
  words: {
    FILE: many(
      file(
        'downloaded files, and last the file that the answer of an export names as manifest; or alone the answer of an import that was sent with Prefer: receipt, or the receipt in it',
      ),
    ),
  },
  options: {
    key: parsed(
      'the public key, as /manifest-key.json or /v1/receipt-key gives it over a connection that you trust',
      'HEX',
      (value) => (/^[0-9a-f]{64}$/.test(value) ? value : refuse('--key is 64 hexadecimal digits, in lower case')),
    ),
    ...receiptOptions,
  },
  details: [
    'Without --key, trusted is false: anybody can sign with a key of their own. --data trusts the keys of that data folder.',
  ],
  examples: ['verify part-0.csv manifest.json', 'verify receipt.json --body events.json --data data'],
  exitCodes: { 1: 'a file is another one, or an event of the receipt is missing or changed: the answer says which' },
  async run({ FILE: names, key: trusted, body, data, lake }, context) {
    const ofReceipt = { body, data, lake };
    const manifestFile = names.at(-1) ?? '';
    const files = names.slice(0, -1);
    if (files.length === 0) return await runReceipt(manifestFile, trusted, ofReceipt, context);
    for (const [name, value] of Object.entries(ofReceipt))
      if (value !== undefined) refuse(`--${name} is for a receipt`);
    const { answer, note } = context;
    const signed = await readable(manifestFile, () => findTextFile(manifestFile));
    if (signed === undefined) throw cannotRead(manifestFile);
    const manifest = parseManifest(signed, trusted);
    const judged = [];
    for (const name of files) judged.push(await judge(name, manifest));
    const verdicts = judged.map(({ verdict }) => verdict);
    const ok = verdicts.every((verdict) => verdict.ok);
    const given = new Set(judged.map(({ sha256 }) => sha256));
    const missing = manifest.files.filter(({ sha256 }) => !given.has(sha256)).map(({ name }) => name);
    if (trusted === undefined) note(untrusted('manifest'));
    if (missing.length > 0) note(`the export has further files: ${missing.join(', ')}`);
    const { idReportFile, event, rows, key } = manifest;
    const of = { idReportFile, event, version: manifest.data.version, rows, key };
    answer({ ok, trusted: trusted !== undefined, files: verdicts, missing, export: of });
    return ok ? 0 : 1;
  },
});
