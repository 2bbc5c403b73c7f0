import path from 'node:path';
import { defined } from '../runtime/files/checksummed-json.ts';
import type { Environment } from '../config.ts';
import { importMethods } from '../datasets/dataset.ts';
import { parseImportRequest } from '../ingest/import-request.ts';
import { parseReceipt } from '../receipts/parse-receipt.ts';
import { findReceiptKeys } from '../receipts/receipt-keys.ts';
import { digestEvent, parseRenderedLines } from '../receipts/event-digest.ts';
import type { Receipt } from '../receipts/receipt.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { exists, getSize, hashFile } from '../runtime/files/file-checks.ts';
import { defineCommand, type CommandContext, type OptionValues, openData } from './command.ts';
import { findReceiptInLake, type ReceiptEventState, type ReceiptInLake } from './receipt-in-lake.ts';
import { isManifestText, parseManifest, type Manifest } from '../reports/manifest.ts';
import type { ReportFile } from '../reports/reports.ts';
import { getBytes } from '../runtime/files/input-file.ts';
import { file, flag, folder, many, parsed, failUsage } from './option-specs.ts';

interface ReceiptVerifyOptions {
  /** Public key of the service, hex. */
  readonly key: string | undefined;
  readonly body: Buffer | undefined;
  /** A data folder, whose keys are trusted. */
  readonly data: string | undefined;
  readonly lake: string | undefined;
}

export interface ReceiptVerdict {
  /** Whether the body, if given, matches, and no event is missing or changed. */
  readonly ok: boolean;
  /** Whether the key was passed by the caller or is one of the data folder. */
  readonly trusted: boolean;
  readonly receipt: Readonly<Record<string, unknown>>;
  /** Whether the body matches the receipt; absent if none was given. */
  readonly body?: { readonly ok: boolean; readonly why?: string };
  readonly lake?: ReceiptInLake;
}

const isGzip = (body: Buffer): boolean => body[0] === 0x1f && body[1] === 0x8b;

/** Compares a body, gzip or not, with a receipt by the code of the import. */
function compareBody(body: Buffer, { method, idApp, platform, receivedAt, salt, events }: Receipt) {
  const imported = parseImportRequest({
    method,
    head: { headers: isGzip(body) ? { 'content-encoding': 'gzip' } : {}, headersDistinct: {} },
    body,
    app: { idApp, platform },
    receivedAtMs: Date.parse(receivedAt),
  });
  if ('reason' in imported) return { ok: false, why: `it is invalid: ${imported.detail}` };
  // Event ids are random, so those of the receipt are used.
  const digests = parseRenderedLines(imported.lines).map((values, index) =>
    digestEvent(salt, { ...values, event_id: events[index]?.eventId ?? '' }),
  );
  const isSame = digests.length === events.length && digests.every((sha256, index) => sha256 === events[index]?.sha256);
  return isSame ? { ok: true } : { ok: false, why: 'it is the body of another request' };
}

/** Returns the lake to search and the trusted keys; undefined if unknown. */
async function findPlaces({ key, data, lake }: ReceiptVerifyOptions, environment: Environment) {
  const trustedKeys = key === undefined ? undefined : [key];
  if (lake !== undefined) {
    const lakeDir = path.resolve(lake);
    if (!(await exists(lakeDir)))
      throw new AppError('not_found', `folder ${lakeDir} does not exist`, {
        hint: 'Pass the folder of a lake with --lake.',
      });
    return { lakeDir, trusted: trustedKeys };
  }
  if (data === undefined) return { lakeDir: undefined, trusted: trustedKeys };
  const { paths } = await openData(data, { environment }, 'lake');
  const known = await findReceiptKeys(paths.keys);
  return { lakeDir: paths.lake, trusted: trustedKeys ?? (known.length === 0 ? undefined : known) };
}

const notInLake: readonly ReceiptEventState[] = ['missing', 'changed', 'failed'];

/** Verifies a receipt alone, with its body, and in a lake. Errors: `receipt_invalid`; those of the named folders. */
export async function verifyReceipt(
  text: string,
  words: ReceiptVerifyOptions,
  environment: Environment,
): Promise<ReceiptVerdict> {
  const { lakeDir, trusted } = await findPlaces(words, environment);
  const receipt = parseReceipt(text, trusted);
  if (!importMethods.has(receipt.method))
    throw new AppError('not_found', `this program has no import method ${receipt.method}`, {
      hint: 'Run the command with the pipelines of the service that issued the receipt.',
    });
  const body = words.body === undefined ? undefined : compareBody(words.body, receipt);
  const lake = lakeDir === undefined ? undefined : await findReceiptInLake(lakeDir, receipt);
  const { idApp, method, receivedAt, events, group } = receipt;
  const { stream, sequence, storedAt, key } = group;
  return {
    ok: body?.ok !== false && lake?.events.some(({ state }) => notInLake.includes(state)) !== true,
    trusted: trusted !== undefined,
    receipt: { idApp, method, receivedAt, events: events.length, stream, sequence, storedAt, key },
    ...defined({ body, lake }),
  };
}

const untrusted = (what: string): string =>
  `the ${what} is signed by an untrusted key: pass the public key of the service with --key, or --any-key to accept it`;

async function readable<T>(name: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!isSystemError(error, 'ENOENT', 'EISDIR', 'EACCES')) throw error;
    throw new AppError('not_found', `cannot read ${name}`, {
      hint: 'Check the path and its permissions.',
      cause: error,
    });
  }
}

/** Size limit of a manifest and a receipt, bytes. */
const maxSignedBytes = 64 * 1024 * 1024;
/** Rejects invalid bytes and keeps a byte order mark, since both are signed. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Reads a manifest or a receipt; undefined if it is too large or not UTF-8. */
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
  throw new AppError('manifest_invalid', `${name} is not a manifest`, {
    hint: 'Pass the files first and the manifest last. If this is the manifest, download it again.',
  });
}

/** A given file with its content. */
interface GivenFile extends Pick<ReportFile, 'sha256' | 'bytes'> {
  readonly name: string;
  readonly absolutePath: string;
}

/** Matches files to the parts of a manifest, one to one; identical parts first by name. Returns the rest of the parts, too. */
function matchParts({ files }: Manifest, givenFiles: readonly GivenFile[]) {
  const left = [...files];
  const matched = new Map<string, ReportFile>();
  for (const byName of [true, false])
    for (const { absolutePath, sha256, bytes } of givenFiles) {
      if (matched.has(absolutePath)) continue;
      const isPart = (part: ReportFile): boolean => part.sha256 === sha256 && part.bytes === bytes;
      const index = left.findIndex((part) => isPart(part) && (!byName || part.name === path.basename(absolutePath)));
      const [part] = index === -1 ? [] : left.splice(index, 1);
      if (part !== undefined) matched.set(absolutePath, part);
    }
  return { matched, missing: left.map(({ name }) => name) };
}

function describeOdd({ name, sha256, bytes }: GivenFile, { files }: Manifest): string {
  if (files.some((part) => part.sha256 === sha256 && part.bytes === bytes)) return 'the same part is given twice';
  if (files.some((part) => part.name === path.basename(name))) return 'its content differs';
  return path.extname(name) === '.zip' ? 'it is an archive: unpack it and pass its files' : 'it is not in the manifest';
}

async function readGiven(name: string): Promise<GivenFile> {
  const [sha256, bytes] = await readable(name, async () => [await hashFile(name), await getSize(name)] as const);
  return { name, absolutePath: path.resolve(name), sha256, bytes };
}

const options = {
  key: parsed(
    'public key of the service, from /manifest-key.json or /v1/receipt-key over a trusted connection',
    'HEX',
    (value) => (/^[0-9a-f]{64}$/.test(value) ? value : failUsage('--key must be 64 lower-case hexadecimal digits')),
  ),
  anyKey: flag('accept any signing key of the manifest or receipt'),
  partial: flag('accept missing files of the export'),
  body: file('body of the import, to compare with the receipt'),
  data: folder('data folder to look up the events in; its keys are trusted'),
  lake: folder('lake folder to look up the events in'),
} as const;

async function runReceipt(
  name: string,
  { key, anyKey, body: bodyFile, data, lake }: OptionValues<typeof options>,
  { environment, printResult, printMessage }: CommandContext,
): Promise<number> {
  if (data !== undefined && lake !== undefined) failUsage('--data and --lake exclude each other');
  // Text that is not UTF-8 fails as a receipt, too.
  const receipt = (await findSigned(name)) ?? '';
  if (isManifestText(receipt)) failUsage(`${name} is a manifest: pass its files before it`);
  const body = bodyFile === undefined ? undefined : await readable(bodyFile, () => getBytes(bodyFile));
  const verdict = await verifyReceipt(receipt, { key, body, data, lake }, environment);
  if (!verdict.trusted) printMessage(untrusted('receipt'));
  const ok = verdict.ok && (verdict.trusted || anyKey);
  printResult({ ...verdict, ok });
  return ok ? 0 : 1;
}

export const verifyCommand = defineCommand({
  name: 'verify',
  summary: 'verify downloaded files by their manifest, or a receipt and its events',
  usage: [
    'FILE... MANIFEST [--key HEX | --any-key] [--partial]',
    'RECEIPT [--key HEX | --any-key] [--body FILE] [--data DIR | --lake DIR]',
  ],
  arguments: {
    FILE: many(
      file('downloaded files and, last, their manifest; or an import receipt, alone or in the response of the import'),
    ),
  },
  options,
  details: ['Without --key or --data, trusted is false: anyone can sign with their own key.'],
  examples: ['verify part-0.csv manifest.json --any-key', 'verify receipt.json --body events.json --data data'],
  exitCodes: {
    1: 'a file differs, is missing or is given twice; an event is missing or changed; or the key is not trusted',
  },
  async run({ FILE: names, ...commandOptions }, context) {
    const { key: trusted, anyKey, partial } = commandOptions;
    if (anyKey && trusted !== undefined) failUsage('--key and --any-key exclude each other');
    const manifestFile = names.at(-1) ?? '';
    if (names.length < 2) {
      if (partial) failUsage('--partial needs a manifest');
      return await runReceipt(manifestFile, commandOptions, context);
    }
    for (const name of ['body', 'data', 'lake'] as const)
      if (commandOptions[name] !== undefined) failUsage(`--${name} needs a receipt`);
    const { printResult, printMessage } = context;
    const manifest = await getManifest(manifestFile, trusted);
    const files: GivenFile[] = [];
    for (const name of names.slice(0, -1)) files.push(await readGiven(name));
    const { matched, missing } = matchParts(manifest, files);
    const verdicts = files.map((one) => {
      const part = matched.get(one.absolutePath);
      matched.delete(one.absolutePath);
      return part === undefined
        ? { file: one.name, ok: false, why: describeOdd(one, manifest) }
        : { file: one.name, ok: true, rows: part.rows };
    });
    const isWhole = verdicts.every((verdict) => verdict.ok) && (partial || missing.length === 0);
    const ok = isWhole && (anyKey || trusted !== undefined);
    if (trusted === undefined) printMessage(untrusted('manifest'));
    if (missing.length > 0)
      printMessage(
        `files of the export are missing: ${missing.join(', ')}${partial ? '' : '; pass --partial to accept that'}`,
      );
    const { idReportFile, event, rows, key } = manifest;
    const of = { idReportFile, event, version: manifest.data.version, rows, key };
    printResult({ ok, trusted: trusted !== undefined, files: verdicts, missing, export: of });
    return ok ? 0 : 1;
  },
});
