import path from 'node:path';
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

/** What is there of an export in the end. */
export interface Fetched {
  readonly files: readonly string[];
  readonly rows: number;
  readonly bytes: number;
}

/** Reads the files that a manifest names, and their hashes; throws where it is not what the service has signed. */
export type ReadManifest = (text: string) => readonly Pick<ExportFile, 'name' | 'bytes' | 'sha256'>[];

const lineFeed = 0x0a;

const knownEndings = new Intl.ListFormat('en', { type: 'disjunction' }).format(
  formatNames.map((format) => endingOf({ format, compression: 'none' })),
);

/** Endings of names that say nothing of the form; what is no word, such as a date, is no ending. */
const neutralEnding = /\.(txt|tmp|part|gz|zst)$/i;

/**
 * Refuses, before anything is ordered, a place that no export can be put into: a name that says a form which none has,
 * such as `.xlsx`, and a folder above it that is not there. Errors: `usage`, `not_found`.
 */
export async function assertPlace(output: string): Promise<void> {
  const isIntoFolder = await isFolder(output);
  // One that is to be made needs the one above it.
  const isMade = isIntoFolder && !(await exists(output));
  const folder = isIntoFolder && !isMade ? output : path.dirname(path.resolve(output));
  try {
    await assertWritableFolder(folder);
  } catch (error) {
    const isThere = isSystemError(error, 'EACCES', 'EPERM', 'EROFS');
    if (!isThere && !isSystemError(error, 'ENOENT', 'ENOTDIR')) throw error;
    throw new AppError(
      'not_found',
      isThere ? `nothing can be written into ${folder}` : `there is no folder ${folder}`,
      {
        cause: error,
        hint: 'Make it, or name another place by -o.',
      },
    );
  }
  const isKnown = findForm(output) !== undefined || neutralEnding.test(output);
  if (isKnown || !/\.[a-z][a-z\d]{0,7}$/i.test(output) || isIntoFolder) return;
  throw new AppError('usage', `the name ${output} says a form that exports do not have`, {
    hint: `Name a file that ends in ${knownEndings}, or a folder with a slash at its end.`,
  });
}

/** Drops the first line: every part has the header. */
async function* withoutHeader(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let isHeader = true;
  for await (const piece of pieces) {
    const end = isHeader ? piece.indexOf(lineFeed) : -1;
    if (isHeader && end === -1) continue;
    yield isHeader ? piece.subarray(end + 1) : piece;
    isHeader = false;
  }
}

async function* join(parts: readonly string[], hasHeader: boolean): AsyncGenerator<Uint8Array> {
  for (const [index, part] of parts.entries()) {
    const pieces = readPlain(part, part.endsWith('.gz'));
    yield* index > 0 && hasHeader ? withoutHeader(pieces) : pieces;
  }
}

/** How a file is packed, by its name: `gz`, `zst` or not. */
function packingOf(name: string): string {
  return /\.(gz|zst)$/i.exec(name)?.[1]?.toLowerCase() ?? '';
}

/** Says whether files need nothing but another name to be the output. */
const isAsItIs = (names: readonly string[], output: string): boolean =>
  names.length === 1 && packingOf(names[0] ?? '') === packingOf(output);

/** Refuses, before anything is fetched, an output that the files cannot become. Error: `usage`. */
function assertFits({ id, files = [] }: ExportReport, output: string): void {
  const names = files.map(({ name }) => name);
  const forms = names.flatMap((name) => findForm(name) ?? []);
  const isText = forms.every(({ format, compression }) => getFormat(format).kind === 'text' && compression !== 'zstd');
  const isPlain = isText && packingOf(output) !== 'zst';
  const wanted = findForm(output)?.format;
  const isOther = wanted !== undefined && forms.some(({ format }) => format !== wanted);
  if (!isOther && (isPlain || isAsItIs(names, output))) return;
  throw new AppError('usage', `${names.join(', ')} cannot become ${output}`, {
    hint: `'tributary export download ${id} -o FOLDER/' fetches them as they are.`,
  });
}

/** Makes one file of the parts, in the form that its name says. */
async function assemble(
  parts: readonly string[],
  output: string,
  { work, hasHeader, signal }: { readonly work: string; readonly hasHeader: boolean; readonly signal: AbortSignal },
): Promise<void> {
  const [only] = parts;
  if (only !== undefined && isAsItIs(parts, output)) {
    await moveFile(only, output);
  } else {
    const whole = path.join(work, 'whole');
    await writePieces(join(parts, hasHeader), whole, { gzip: packingOf(output) === 'gz', signal });
    await moveFile(whole, output);
  }
  await syncFolder(path.dirname(path.resolve(output)));
}

/** Compares the files of an answer with those of the signed manifest. Error: `manifest_invalid`. */
function assertOfManifest(files: readonly ExportFile[], named: ReturnType<ReadManifest>): void {
  const odd = files.find(
    ({ name, bytes, sha256 }) =>
      !named.some((other) => other.name === name && other.bytes === bytes && other.sha256 === sha256),
  );
  if (odd !== undefined || files.length !== named.length)
    throw new AppError('manifest_invalid', `${odd?.name ?? 'a file'} is not that of the manifest`, {
      hint: 'Repeat the command. If that does not help, do not trust the files.',
    });
}

async function checkManifest(
  { manifestLink, files = [] }: ExportReport,
  { http }: DownloadOptions,
  readManifest: ReadManifest,
): Promise<string | undefined> {
  if (manifestLink === undefined) return undefined;
  const { status, text } = await http.send({ method: 'GET', url: manifestLink, headers: {} });
  if (status !== 200) throw new AppError('service_away', `the manifest of the export is answered ${status}`);
  assertOfManifest(files, readManifest(text));
  return text;
}

/** Says whether an output is a folder, which gets the files as they are. */
async function isFolder(output: string): Promise<boolean> {
  if (/[/\\]$/.test(output)) return true;
  return await listNames(output).then(
    () => true,
    () => false,
  );
}

/**
 * Fetches a finished export into one file, or the files as they are and the manifest into a folder: each is compared
 * with its hash and the signed manifest, and has its name only once it is whole. What stops half-way leaves
 * `OUTPUT.export-ID`, from which the next call goes on. Errors: `locked` while another fetches the same; those of
 * `downloadFile`; `manifest_invalid`; `disk`, with what was fetched kept.
 */
export async function fetchExport(
  report: ExportReport,
  output: string,
  readManifest: ReadManifest,
  options: DownloadOptions,
): Promise<Fetched> {
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

/** Reads the key that a service signs manifests with, hex. */
export async function getManifestKey(url: string, { http }: Pick<DownloadOptions, 'http'>): Promise<string> {
  const { status, text } = await http.send({ method: 'GET', url: `${url}/manifest-key.json`, headers: {} });
  if (status !== 200) throw new AppError('service_away', `${url}/manifest-key.json is answered ${status}`);
  return String((JSON.parse(text) as { readonly data?: { readonly key?: unknown } }).data?.key);
}
