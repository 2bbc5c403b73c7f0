import path from 'node:path';
import type { Environment } from '../config.ts';
import { importMethods } from '../datasets/dataset.ts';
import { parseImportRequest } from '../ingest/import-request.ts';
import { parseReceipt } from '../receipts/parse-receipt.ts';
import { findReceiptKeys } from '../receipts/receipt-keys.ts';
import { digestEvent, readLines } from '../receipts/event-digest.ts';
import type { Receipt } from '../receipts/receipt.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { exists, getSize, hashFile } from '../runtime/files/file-checks.ts';
import { verb, type CommandContext, type OptionValues, openLake } from './command.ts';
import { findReceiptInLake, type EventState, type ReceiptInLake } from './receipt-in-lake.ts';
import { isManifestText, parseManifest, type Manifest } from '../reports/manifest.ts';
import type { ReportFile } from '../reports/reports.ts';
import { getBytes } from '../runtime/files/input-file.ts';
import { file, flag, folder, many, parsed, refuse, present } from './words.ts';

/** What a receipt is verified with beside itself. */
interface ReceiptWords {
  /** The public key of the service, hex. */
  readonly key: string | undefined;
  /** The bytes that the client has sent. */
  readonly body: Buffer | undefined;
  /** A data folder, whose keys are trusted, or the folder of a lake alone. */
  readonly data: string | undefined;
  readonly lake: string | undefined;
}

/** What `tributary verify RECEIPT` answers. */
export interface ReceiptVerdict {
  /** The body, where one is given, is the one that was acknowledged, and no event is missing or changed. */
  readonly ok: boolean;
  /** The key is one that the caller has named, or of the data folder. */
  readonly trusted: boolean;
  readonly receipt: Readonly<Record<string, unknown>>;
  /** Whether the body comes to the events of the receipt; absent: none was given. */
  readonly body?: { readonly ok: boolean; readonly why?: string };
  readonly lake?: ReceiptInLake;
}

/** No JSON begins with these two bytes. */
const isGzip = (body: Buffer): boolean => body[0] === 0x1f && body[1] === 0x8b;

/** Says whether a body, gzip or not, comes to the events of a receipt, by the code that took it in. */
function judgeBody(body: Buffer, { method, idApp, platform, receivedAt, salt, events }: Receipt) {
  const imported = parseImportRequest({
    method,
    head: { headers: isGzip(body) ? { 'content-encoding': 'gzip' } : {}, headersDistinct: {} },
    body,
    app: { idApp, platform },
    receivedAtMs: Date.parse(receivedAt),
  });
  if ('reason' in imported) return { ok: false, why: `it is refused: ${imported.detail}` };
  // Ids are made at random for each request.
  const digests = readLines(imported.lines).map((values, index) =>
    digestEvent(salt, { ...values, event_id: events[index]?.eventId ?? '' }),
  );
  const isSame = digests.length === events.length && digests.every((sha256, index) => sha256 === events[index]?.sha256);
  return isSame ? { ok: true } : { ok: false, why: 'it is another request' };
}

function unknownMethod(method: string): AppError {
  return new AppError('not_found', `this program has no import method ${method}`, {
    hint: 'Verify the receipt with the pipelines of the service that gave it.',
  });
}

/** The folder of the lake to look into, and the keys to trust; undefined: none are known. */
async function findPlaces({ key, data, lake }: ReceiptWords, environment: Environment) {
  const given = key === undefined ? undefined : [key];
  if (lake !== undefined) {
    const lakeDir = path.resolve(lake);
    if (!(await exists(lakeDir)))
      throw new AppError('not_found', `there is no folder ${lakeDir}`, {
        hint: 'Name the folder of a lake by --lake.',
      });
    return { lakeDir, trusted: given };
  }
  if (data === undefined) return { lakeDir: undefined, trusted: given };
  const { paths } = openLake(data, { environment });
  const known = await findReceiptKeys(paths.keys);
  return { lakeDir: paths.lake, trusted: given ?? (known.length === 0 ? undefined : known) };
}

/** States of events that are not in the lake, although they were acknowledged. */
const notInLake: readonly EventState[] = ['missing', 'changed', 'failed'];

/**
 * Verifies a receipt: by itself, with the body that it is of, and in a lake. Errors: `receipt_invalid`, and those of
 * the folders that are named.
 */
export async function verifyReceipt(
  text: string,
  words: ReceiptWords,
  environment: Environment,
): Promise<ReceiptVerdict> {
  const { lakeDir, trusted } = await findPlaces(words, environment);
  const receipt = parseReceipt(text, trusted);
  if (!importMethods.has(receipt.method)) throw unknownMethod(receipt.method);
  const body = words.body === undefined ? undefined : judgeBody(words.body, receipt);
  const lake = lakeDir === undefined ? undefined : await findReceiptInLake(lakeDir, receipt);
  const { idApp, method, receivedAt, events, group } = receipt;
  const { stream, sequence, storedAt, key } = group;
  return {
    ok: body?.ok !== false && lake?.events.some(({ state }) => notInLake.includes(state)) !== true,
    trusted: trusted !== undefined,
    receipt: { idApp, method, receivedAt, events: events.length, stream, sequence, storedAt, key },
    ...present({ body, lake }),
  };
}

const untrusted = (what: string): string =>
  `the ${what} was verified with the key that it names itself, and anyone can sign with a key of their own: pass the key of the service with --key, or --any-key to accept that`;

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
 * Matches files to the parts of a manifest, each part to one file: of identical parts, first by name. Returns the parts
 * that no file was given for, and the verdicts, where a file whose part has another file already is not ok.
 */
function matchParts({ files }: Manifest, judged: readonly Judged[]): { missing: string[]; verdicts: Verdict[] } {
  const left = indexFiles(files);
  const [matched, places] = [new Set<Judged>(), new Set<string>()];
  for (const fits of [isOfItsName, () => true])
    for (const one of judged) {
      const place = path.resolve(one.verdict.file);
      const alike = places.has(place) ? [] : (left.get(contentOf(one)) ?? []);
      const index = alike.findIndex((known) => fits(place, known));
      if (index === -1) continue;
      alike.splice(index, 1);
      matched.add(one);
      places.add(place);
    }
  const missing = new Set([...left.values()].flat());
  return {
    missing: files.filter((known) => missing.has(known)).map(({ name }) => name),
    verdicts: judged.map((one) => {
      const { file: name, ok } = one.verdict;
      return ok && !matched.has(one) ? { file: name, ok: false, why: 'the same part is given twice' } : one.verdict;
    }),
  };
}

const receiptOptions = {
  body: file('the body of the import: is it the one that the receipt is of?'),
  data: folder('a data folder, whose keys are trusted: is each event there, and since which version?'),
  lake: folder('the folder of a lake: is each event there, and since which version?'),
} as const;

/** How a receipt is verified. */
interface ReceiptOptions extends OptionValues<typeof receiptOptions> {
  readonly key: string | undefined;
  readonly anyKey: boolean;
}

async function runReceipt(
  name: string,
  { key, anyKey, body: bodyFile, data, lake }: ReceiptOptions,
  { environment, answer, note }: CommandContext,
): Promise<number> {
  if (data !== undefined && lake !== undefined) refuse('--data and --lake exclude each other');
  // What is no text is no receipt either.
  const receipt = (await findSigned(name)) ?? '';
  if (isManifestText(receipt)) refuse(`${name} is a manifest: name the files that it is to be compared with before it`);
  const body = bodyFile === undefined ? undefined : await readable(bodyFile, () => getBytes(bodyFile));
  const verdict = await verifyReceipt(receipt, { key, body, data, lake }, environment);
  if (!verdict.trusted) note(untrusted('receipt'));
  const ok = verdict.ok && (verdict.trusted || anyKey);
  answer({ ...verdict, ok });
  return ok ? 0 : 1;
}

/**
 * `tributary verify FILE... MANIFEST`: reports whether downloaded files are all the files of an export, by its manifest
 * alone; exit code 1 if one is another, is missing or is given twice. No service and no data folder is needed.
 * `tributary verify RECEIPT`: reports whether a receipt of an import is the service's, and with a data folder or a lake
 * where its events are; exit code 1 if one is missing or changed. Both need a trusted key.
 */
export const verifyCommand = verb({
  name: 'verify',
  summary: 'tell whether downloaded files are those of an export, or where the events of a receipt are',
  usage: [
    'FILE... MANIFEST [--key HEX | --any-key] [--partial]',
    'RECEIPT [--key HEX | --any-key] [--body FILE] [--data DIR | --lake DIR]',
  ],
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
    anyKey: flag('accept the key that the manifest or the receipt names itself'),
    partial: flag('accept that files of the export are missing'),
    ...receiptOptions,
  },
  details: [
    'Without --key, trusted is false: anyone can sign with a key of their own. --data trusts the keys of that data folder.',
  ],
  examples: ['verify part-0.csv manifest.json --any-key', 'verify receipt.json --body events.json --data data'],
  exitCodes: {
    1: 'a file is another one, missing or given twice, an event of the receipt is missing or changed, or the key is not trusted',
  },
  async run({ FILE: names, key: trusted, anyKey, partial, body, data, lake }, context) {
    if (anyKey && trusted !== undefined) refuse('--key and --any-key exclude each other');
    const ofReceipt = { body, data, lake };
    const manifestFile = names.at(-1) ?? '';
    const files = names.slice(0, -1);
    if (files.length === 0) {
      if (partial) refuse('--partial is for the files of an export');
      return await runReceipt(manifestFile, { key: trusted, anyKey, ...ofReceipt }, context);
    }
    for (const [name, value] of Object.entries(ofReceipt))
      if (value !== undefined) refuse(`--${name} is for a receipt`);
    const { answer, note } = context;
    const manifest = await getManifest(manifestFile, trusted);
    const index = indexFiles(manifest.files);
    const judged = [];
    for (const name of files) judged.push(await judge(name, manifest, index));
    const { missing, verdicts } = matchParts(manifest, judged);
    const isWhole = verdicts.every((verdict) => verdict.ok) && (partial || missing.length === 0);
    const ok = isWhole && (anyKey || trusted !== undefined);
    if (trusted === undefined) note(untrusted('manifest'));
    if (missing.length > 0)
      note(`files of the export are missing: ${missing.join(', ')}${partial ? '' : '; pass --partial to accept that'}`);
    const { idReportFile, event, rows, key } = manifest;
    const of = { idReportFile, event, version: manifest.data.version, rows, key };
    answer({ ok, trusted: trusted !== undefined, files: verdicts, missing, export: of });
    return ok ? 0 : 1;
  },
});
