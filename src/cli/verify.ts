import path from 'node:path';
import { parseArgs } from 'node:util';
import { parseManifest, type Manifest } from '../reports/manifest.ts';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import { findTextFile } from '../runtime/files/durable-file.ts';
import { getSize, hashFile } from '../runtime/files/file-checks.ts';
import type { Command } from './command.ts';

const usage = 'tributary verify FILE... MANIFEST [--key HEX]';

const untrusted =
  'the manifest was verified by the key that it names itself, and anybody could have signed it with a key of their own: give that of the service by --key';

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

/** Reads the command's words: files, and last the manifest. Error: `usage`. */
function parseVerify(args: readonly string[]) {
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      options: { key: { type: 'string' } },
      allowPositionals: true,
    });
    const manifestFile = positionals.at(-1);
    if (manifestFile === undefined || positionals.length < 2 || positionals.includes(''))
      throw new Error('expected FILE... MANIFEST');
    if (values.key !== undefined && !/^[0-9a-f]{64}$/.test(values.key))
      throw new Error('--key is 64 hexadecimal digits, in lower case');
    return { files: positionals.slice(0, -1), manifestFile, key: values.key };
  } catch (error) {
    throw new AppError('usage', describeError(error), { hint: `Usage: ${usage}` });
  }
}

/**
 * `tributary verify FILE... MANIFEST`: tells whether downloaded files are those of an export, by its manifest alone;
 * exit code 1 where one is not. Files of the export that were not given are named as `missing`. No service and no data folder is needed.
 */
export const verifyCommand: Command = {
  name: 'verify',
  usage,
  summary: 'tell whether downloaded files are those of an export, by its manifest alone',
  details: [
    'MANIFEST   the file that the answer of an export names as manifest',
    '--key      the public key, as /manifest-key.json gives it over a connection that you trust; without it, trusted is false:',
    '           anybody can sign with a key of their own',
  ],
  async run(args, { answer, note }) {
    const { files, manifestFile, key: trusted } = parseVerify(args);
    const text = await readable(manifestFile, () => findTextFile(manifestFile));
    if (text === undefined) throw cannotRead(manifestFile);
    const manifest = parseManifest(text, trusted);
    const judged = [];
    for (const file of files) judged.push(await judge(file, manifest));
    const verdicts = judged.map(({ verdict }) => verdict);
    const ok = verdicts.every((verdict) => verdict.ok);
    const given = new Set(judged.map(({ sha256 }) => sha256));
    const missing = manifest.files.filter(({ sha256 }) => !given.has(sha256)).map(({ name }) => name);
    if (trusted === undefined) note(untrusted);
    if (missing.length > 0) note(`the export has further files: ${missing.join(', ')}`);
    const { idReportFile, event, data, rows, key } = manifest;
    const of = { idReportFile, event, version: data.version, rows, key };
    answer({ ok, trusted: trusted !== undefined, files: verdicts, missing, export: of });
    return ok ? 0 : 1;
  },
};
