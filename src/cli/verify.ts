import path from 'node:path';
import { isManifestText, parseManifest, type Manifest } from '../reports/manifest.ts';
import type { ReportFile } from '../reports/reports.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { getSize, hashFile } from '../runtime/files/file-checks.ts';
import { getBytes } from '../runtime/files/text-file.ts';
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

async function readable<T>(name: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!isSystemError(error, 'ENOENT', 'EISDIR', 'EACCES')) throw error;
    throw new AppError('not_found', `${name} cannot be read`, { hint: 'Name a file that is there.', cause: error });
  }
}

/** Bytes that no manifest and no receipt comes near: what is larger is not read. */
const maxSignedBytes = 64 * 1024 * 1024;
/** A byte that is no text, or a mark before it, would be read as another than it is. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Reads a file that is to be a manifest or a receipt; undefined where it is too large for one, or no text. */
async function findSigned(name: string): Promise<string | undefined> {
  const bytes = await readable(name, async () => ((await getSize(name)) > maxSignedBytes ? undefined : getBytes(name)));
  try {
    return bytes === undefined ? undefined : utf8.decode(bytes);
  } catch {
    return undefined;
  }
}

async function getManifest(name: string, trusted: string | undefined): Promise<Manifest> {
  const text = await findSigned(name);
  if (text !== undefined && isManifestText(text)) return parseManifest(text, trusted);
  throw new AppError('manifest_invalid', `${name} is no manifest as the service writes it`, {
    hint: 'Name the files first and the manifest last. If this is the manifest, download it again.',
  });
}

/** A file that was given, and what it is. */
interface Judged extends Pick<ReportFile, 'sha256' | 'bytes'> {
  readonly verdict: Verdict;
}

const contentOf = ({ sha256, bytes }: Pick<ReportFile, 'sha256' | 'bytes'>): string => `${sha256} ${bytes}`;

/** Files by their content: parts may be the same, byte for byte. */
function indexFiles(files: readonly ReportFile[]): Map<string, ReportFile[]> {
  const index = new Map<string, ReportFile[]>();
  for (const known of files) {
    const alike = index.get(contentOf(known));
    if (alike === undefined) index.set(contentOf(known), [known]);
    else alike.push(known);
  }
  return index;
}

async function judge(
  name: string,
  { files }: Manifest,
  index: ReadonlyMap<string, readonly ReportFile[]>,
): Promise<Judged> {
  const [sha256, bytes] = await readable(name, async () => [await hashFile(name), await getSize(name)] as const);
  const [found] = index.get(contentOf({ sha256, bytes })) ?? [];
  if (found !== undefined) return { verdict: { file: name, ok: true, rows: found.rows }, sha256, bytes };
  const isNamed = files.some((known) => known.name === path.basename(name));
  const isArchive = path.extname(name) === '.zip';
  const unknown = isArchive
    ? 'it is an archive, and a manifest is of the files in it: unpack it, and name those'
    : 'it is none of the files of the manifest';
  const why = isNamed ? 'its content is another one' : unknown;
  return { verdict: { file: name, ok: false, why }, sha256, bytes };
}

const isOfItsName = (place: string, known: ReportFile): boolean => path.basename(place) === known.name;

/**
 * The files of a manifest that were not given: of parts that are the same each that is given stands for one, that of its
 * name if there is one.
 */
function listMissing({ files }: Manifest, judged: readonly Judged[]): string[] {
  const given = new Map(judged.map((one) => [path.resolve(one.verdict.file), one]));
  const missing = indexFiles(files);
  for (const fits of [isOfItsName, () => true])
    for (const [place, one] of given) {
      const alike = missing.get(contentOf(one)) ?? [];
      const index = alike.findIndex((known) => fits(place, known));
      if (index === -1) continue;
      alike.splice(index, 1);
      given.delete(place);
    }
  const left = new Set([...missing.values()].flat());
  return files.filter((known) => left.has(known)).map(({ name }) => name);
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
  // What is no text is no receipt either.
  const receipt = (await findSigned(name)) ?? '';
  if (isManifestText(receipt)) refuse(`${name} is a manifest: name the files that it is to be compared with before it`);
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
    const manifest = await getManifest(manifestFile, trusted);
    const index = indexFiles(manifest.files);
    const judged = [];
    for (const name of files) judged.push(await judge(name, manifest, index));
    const verdicts = judged.map(({ verdict }) => verdict);
    const ok = verdicts.every((verdict) => verdict.ok);
    const missing = listMissing(manifest, judged);
    if (trusted === undefined) note(untrusted('manifest'));
    if (missing.length > 0) note(`the export has further files: ${missing.join(', ')}`);
    const { idReportFile, event, rows, key } = manifest;
    const of = { idReportFile, event, version: manifest.data.version, rows, key };
    answer({ ok, trusted: trusted !== undefined, files: verdicts, missing, export: of });
    return ok ? 0 : 1;
  },
});
