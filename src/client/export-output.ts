import path from 'node:path';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import { endingOf, findForm, formatNames, getFormat } from '../datasets/file-formats.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { moveFile, syncFolder, writeFileDurably } from '../runtime/files/durable-file.ts';
import { listNames } from '../runtime/files/folder-names.ts';
import { assertWritableFolder, exists, getSize } from '../runtime/files/file-checks.ts';
import { readPlain, writePieces } from '../runtime/files/input-file.ts';
import { acquireLock } from '../runtime/files/lock.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { downloadFile, type DownloadOptions } from './download.ts';
import type { ExportFile, ExportReport } from './export-area.ts';

/** Parses a signed manifest; throws if the signature is invalid. */
type ReadManifest = (text: string) => readonly Pick<ExportFile, 'name' | 'bytes' | 'sha256'>[];

const lineFeed = 0x0a;

const knownEndings = new Intl.ListFormat('en', { type: 'disjunction' }).format(
  formatNames.map((format) => endingOf({ format, compression: 'none' })),
);

/** Extensions without a format; other letters and digits, such as a date, are not extensions. */
const neutralEnding = /\.(txt|tmp|part|gz|zst)$/i;

/**
 * Rejects an output before the request is created: an unknown extension such as `.xls`, or a missing folder. Errors:
 * `usage`, `not_found`.
 */
export async function assertOutputWritable(output: string): Promise<void> {
  const isIntoFolder = await isFolder(output);
  // A folder to be created needs its parent.
  const isMade = isIntoFolder && !(await exists(output));
  const folder = isIntoFolder && !isMade ? output : path.dirname(path.resolve(output));
  try {
    await assertWritableFolder(folder);
  } catch (error) {
    const isThere = isSystemError(error, 'EACCES', 'EPERM', 'EROFS');
    if (!isThere && !isSystemError(error, 'ENOENT', 'ENOTDIR')) throw error;
    throw new AppError('not_found', isThere ? `cannot write to ${folder}` : `folder ${folder} does not exist`, {
      cause: error,
      hint: 'Create the folder, or pass another path with -o.',
    });
  }
  const isKnown = findForm(output) !== undefined || neutralEnding.test(output);
  if (isKnown || !/\.[a-z][a-z\d]{0,7}$/i.test(output) || isIntoFolder) return;
  throw new AppError('usage', `the extension of ${output} is not an export format`, {
    hint: `Pass a file with the extension ${knownEndings}, or a folder with a trailing slash.`,
  });
}

/** Joins the parts, without the header lines of all but the first. */
async function* join(parts: readonly string[], hasHeader: boolean): AsyncGenerator<Uint8Array> {
  for (const [index, part] of parts.entries()) {
    let isHeader = index > 0 && hasHeader;
    for await (const piece of readPlain(part, part.endsWith('.gz'))) {
      const end = isHeader ? piece.indexOf(lineFeed) : -1;
      if (isHeader && end === -1) continue;
      yield piece.subarray(end + 1);
      isHeader = false;
    }
  }
}

/** Returns the compression of a file by its name: `gz`, `zst` or none. */
function packingOf(name: string): string {
  return /\.(gz|zst)$/i.exec(name)?.[1]?.toLowerCase() ?? '';
}

/** Reports whether renaming is enough to make the output. */
const isAsItIs = (names: readonly string[], output: string): boolean =>
  names.length === 1 && packingOf(names[0] ?? '') === packingOf(output);

/** Rejects an output to which the files cannot be converted, before the download. Error: `usage`. */
function assertFits({ id, files = [] }: ExportReport, output: string): void {
  const names = files.map(({ name }) => name);
  const forms = names.flatMap((name) => findForm(name) ?? []);
  const isText = forms.every(({ format, compression }) => getFormat(format).kind === 'text' && compression !== 'zstd');
  const isPlain = isText && packingOf(output) !== 'zst';
  const wanted = findForm(output)?.format;
  const isOther = wanted !== undefined && forms.some(({ format }) => format !== wanted);
  if (!isOther && (isPlain || isAsItIs(names, output))) return;
  throw new AppError('usage', `cannot convert ${names.join(', ')} to ${output}`, {
    hint: `Run 'tributary export download ${id} -o FOLDER/' to download the files unchanged.`,
  });
}

/** Joins the parts into one file, compressed as its name says. */
async function assemble(
  parts: readonly string[],
  output: string,
  { work, hasHeader, signal }: { readonly work: string; readonly hasHeader: boolean; readonly signal: AbortSignal },
): Promise<void> {
  const [only] = parts;
  if (only !== undefined && isAsItIs(parts, output)) {
    await moveFile(only, output);
  } else {
    const joinedFile = path.join(work, 'whole');
    await writePieces(join(parts, hasHeader), joinedFile, { gzip: packingOf(output) === 'gz', signal });
    await moveFile(joinedFile, output);
  }
  await syncFolder(path.dirname(path.resolve(output)));
}

/** Compares the listed files with the manifest. Error: `manifest_invalid`. */
function assertOfManifest(files: readonly ExportFile[], named: ReturnType<ReadManifest>): void {
  const odd = files.find(
    ({ name, bytes, sha256 }) =>
      !named.some((other) => other.name === name && other.bytes === bytes && other.sha256 === sha256),
  );
  if (odd !== undefined || files.length !== named.length)
    throw new AppError('manifest_invalid', `${odd?.name ?? 'a file'} does not match the manifest`, {
      hint: 'Retry the command. If the error persists, do not trust the files.',
    });
}

async function checkManifest(
  { manifestLink, files = [] }: ExportReport,
  { http }: DownloadOptions,
  readManifest: ReadManifest,
): Promise<string | undefined> {
  if (manifestLink === undefined) return undefined;
  const { status, text } = await http.send({ method: 'GET', url: manifestLink, headers: {} });
  if (status !== 200) throw new AppError('service_away', `the download of the manifest failed with status ${status}`);
  assertOfManifest(files, readManifest(text));
  return text;
}

/** Reports whether an output is a folder. */
async function isFolder(output: string): Promise<boolean> {
  if (/[/\\]$/.test(output)) return true;
  return await listNames(output).then(
    () => true,
    () => false,
  );
}

/**
 * Downloads a finished export to one file, or its files and manifest to a folder. Files are verified by hash and
 * manifest, and get their names when they are complete. An interrupted download leaves `OUTPUT.export-ID` for the next
 * call. Errors: `locked` while another process downloads the same; those of `downloadFile`; `manifest_invalid`; `disk`,
 * with the parts kept.
 */
export async function fetchExport(
  report: ExportReport,
  output: string,
  readManifest: ReadManifest,
  options: DownloadOptions,
) {
  const files = report.files ?? [];
  const intoFolder = await isFolder(output);
  if (!intoFolder) assertFits(report, output);
  const work = `${output.replace(/[/\\]+$/, '')}${intoFolder ? '/' : '.'}export-${report.id}`;
  const lock = acquireLock(work, `a download of export ${report.id}`);
  try {
    const manifest = await checkManifest(report, options, readManifest);
    const parts: string[] = [];
    for (const file of files) parts.push(await downloadFile(file, work, options));
    const names = intoFolder ? parts.map((part) => path.join(output, path.basename(part))) : [output];
    if (intoFolder) {
      for (const [index, part] of parts.entries()) await moveFile(part, names[index] ?? output);
      if (manifest !== undefined)
        await writeFileDurably(path.join(output, `export-${report.id}.manifest.json`), manifest);
      await syncFolder(output);
    } else await assemble(parts, output, { work, hasHeader: report.hasHeader, signal: options.signal });
    await removeTree(work);
    const sizes = await Promise.all(names.map(getSize));
    const rows = files.reduce((sum, file) => sum + file.rows, 0);
    return { files: names, rows, bytes: sizes.reduce((sum, bytes) => sum + bytes, 0) };
  } finally {
    lock.release();
  }
}

/** Reads the public key of manifests, hex. */
export async function getManifestKey(url: string, { http }: Pick<DownloadOptions, 'http'>): Promise<string> {
  const { status, text } = await http.send({ method: 'GET', url: `${url}/manifest-key.json`, headers: {} });
  if (status !== 200) throw new AppError('service_away', `${url}/manifest-key.json failed with status ${status}`);
  return String(membersOf(membersOf(JSON.parse(text))['data'])['key']);
}
