import path from 'node:path';
import { parseArgs } from 'node:util';
import { parseManifest, type Manifest } from '../reports/manifest.ts';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import { findTextFile } from '../runtime/files/durable-file.ts';
import { getSize, hashFile } from '../runtime/files/file-checks.ts';
import { getBytes, getTextFile } from '../runtime/files/text-file.ts';
import { assertGivenOnce, type Command, type CommandContext } from './command.ts';
import { verifyReceipt } from './verify-receipt.ts';

const usage =
  'tributary verify FILE... MANIFEST [--key HEX]; verify RECEIPT [--key HEX] [--body FILE] [--data DIR | --lake DIR]';

const untrusted = (what: string): string =>
  `the ${what} was verified by the key that it names itself, and anybody could have signed it with a key of their own: give that of the service by --key`;

/** Whether a file is one of a manifest's. */
interface Verdict {
  readonly file: string;
  readonly ok: boolean;
  readonly rows?: number;
  readonly why?: string;
}

function cannotRead(file: string, cause?: unknown): AppError {
  return new AppError('not_found', `${file} cannot be read`, { hint: `Usage: ${usage}`, cause });
}

async function readable<T>(file: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!isSystemError(error, 'ENOENT', 'EISDIR', 'EACCES')) throw error;
    throw cannotRead(file, error);
  }
}

async function judge(file: string, { files }: Manifest): Promise<{ verdict: Verdict; sha256: string }> {
  const [sha256, size] = await readable(file, async () => [await hashFile(file), await getSize(file)] as const);
  const found = files.find((known) => known.sha256 === sha256 && known.bytes === size);
  if (found !== undefined) return { verdict: { file, ok: true, rows: found.rows }, sha256 };
  const isNamed = files.some(({ name }) => name === path.basename(file));
  const why = isNamed ? 'its content is another one' : 'it is none of the files of the manifest';
  return { verdict: { file, ok: false, why }, sha256 };
}

const options = {
  key: { type: 'string' },
  body: { type: 'string' },
  data: { type: 'string' },
  lake: { type: 'string' },
} as const;

/** Reads the command's words: files and last the manifest, or a receipt alone. Error: `usage`. */
function parseVerify(args: readonly string[]) {
  try {
    const { values, positionals, tokens } = parseArgs({
      args: [...args],
      options,
      allowPositionals: true,
      tokens: true,
    });
    assertGivenOnce(tokens);
    const last = positionals.at(-1);
    if (last === undefined || positionals.includes('')) throw new Error('expected FILE... MANIFEST, or RECEIPT');
    if (values.key !== undefined && !/^[0-9a-f]{64}$/.test(values.key))
      throw new Error('--key is 64 hexadecimal digits, in lower case');
    const { key, ...ofReceipt } = values;
    const files = positionals.slice(0, -1);
    if (files.length > 0 && Object.keys(ofReceipt).length > 0)
      throw new Error(`--${Object.keys(ofReceipt)[0]} is for a receipt`);
    if (values.data !== undefined && values.lake !== undefined) throw new Error('--data and --lake exclude each other');
    return { files, last, key, ofReceipt };
  } catch (error) {
    throw new AppError('usage', describeError(error), { hint: `Usage: ${usage}` });
  }
}

async function runReceipt(
  file: string,
  { key, ofReceipt }: ReturnType<typeof parseVerify>,
  { environment, answer, note }: CommandContext,
): Promise<number> {
  const { body: bodyFile, data, lake } = ofReceipt;
  const text = await readable(file, () => getTextFile(file));
  if (/^\{\s*"manifestVersion"/.test(text))
    throw new AppError('usage', `${file} is a manifest: name the files that it is to be compared with before it`, {
      hint: `Usage: ${usage}`,
    });
  const body = bodyFile === undefined ? undefined : await readable(bodyFile, () => getBytes(bodyFile));
  const verdict = await verifyReceipt(text, { key, body, data, lake }, environment);
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
export const verifyCommand: Command = {
  name: 'verify',
  usage,
  summary: 'tell whether downloaded files are those of an export, or where the events of a receipt are',
  details: [
    'MANIFEST   the file that the answer of an export names as manifest',
    'RECEIPT    the answer of an import that was sent with Prefer: receipt, or the receipt in it',
    '--key      the public key, as /manifest-key.json or /v1/receipt-key gives it over a connection that you trust; without it,',
    '           trusted is false: anybody can sign with a key of their own. --data trusts the keys of that data folder',
    '--body     the body of the import: is it the one that the receipt is of?',
    '--data     a data folder, --lake the folder of a lake: is each event there, and since which version?',
  ],
  async run(args, context) {
    const words = parseVerify(args);
    const { files, last: manifestFile, key: trusted } = words;
    if (files.length === 0) return await runReceipt(manifestFile, words, context);
    const { answer, note } = context;
    const text = await readable(manifestFile, () => findTextFile(manifestFile));
    if (text === undefined) throw cannotRead(manifestFile);
    const manifest = parseManifest(text, trusted);
    const judged = [];
    for (const file of files) judged.push(await judge(file, manifest));
    const verdicts = judged.map(({ verdict }) => verdict);
    const ok = verdicts.every((verdict) => verdict.ok);
    const given = new Set(judged.map(({ sha256 }) => sha256));
    const missing = manifest.files.filter(({ sha256 }) => !given.has(sha256)).map(({ name }) => name);
    if (trusted === undefined) note(untrusted('manifest'));
    if (missing.length > 0) note(`the export has further files: ${missing.join(', ')}`);
    const { idReportFile, event, data, rows, key } = manifest;
    const of = { idReportFile, event, version: data.version, rows, key };
    answer({ ok, trusted: trusted !== undefined, files: verdicts, missing, export: of });
    return ok ? 0 : 1;
  },
};
