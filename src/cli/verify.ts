import path from 'node:path';
import { parseArgs } from 'node:util';
import { parseManifest, type Manifest } from '../reports/manifest.ts';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import { findTextFile } from '../runtime/files/durable-file.ts';
import { getSize, hashFile } from '../runtime/files/file-checks.ts';
import type { Command } from './command.ts';

const usage = 'tributary verify FILE... MANIFEST [--key HEX]';

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

async function judge(file: string, { files }: Manifest): Promise<Verdict> {
  const [sha256, size] = await readable(file, async () => [await hashFile(file), await getSize(file)] as const);
  const found = files.find((known) => known.sha256 === sha256 && known.bytes === size);
  if (found !== undefined) return { file, ok: true, rows: found.rows };
  const isNamed = files.some(({ name }) => name === path.basename(file));
  return { file, ok: false, why: isNamed ? 'its content is another one' : 'it is none of the files of the manifest' };
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
 * exit code 1 where one is not. No service and no data folder is needed.
 */
export const verifyCommand: Command = {
  name: 'verify',
  usage,
  summary: 'tell whether downloaded files are those of an export, by its manifest alone',
  details: [
    'MANIFEST   the file that the answer of an export names as manifest',
    '--key      the public key, as /manifest-key.json gives it; by default the key that the manifest names',
  ],
  async run(args, { answer }) {
    const { files, manifestFile, key: trusted } = parseVerify(args);
    const text = await readable(manifestFile, () => findTextFile(manifestFile));
    if (text === undefined) throw cannotRead(manifestFile);
    const manifest = parseManifest(text, trusted);
    const verdicts: Verdict[] = [];
    for (const file of files) verdicts.push(await judge(file, manifest));
    const ok = verdicts.every((verdict) => verdict.ok);
    const { idReportFile, event, data, rows, key } = manifest;
    answer({ ok, files: verdicts, export: { idReportFile, event, version: data.version, rows, key } });
    return ok ? 0 : 1;
  },
};
