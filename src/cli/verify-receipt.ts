import path from 'node:path';
import { dataPaths, type Environment } from '../config.ts';
import { importMethods } from '../datasets/dataset.ts';
import { parseImportRequest } from '../ingest/import-request.ts';
import { parseReceipt } from '../receipts/parse-receipt.ts';
import { findReceiptKeys } from '../receipts/receipt-keys.ts';
import { digestEvent, readLines } from '../receipts/event-digest.ts';
import type { Receipt } from '../receipts/receipt.ts';
import { AppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { assertLake } from './data-folder.ts';
import { resolveConfig } from './command.ts';
import { findReceiptInLake, type EventState, type ReceiptInLake } from './receipt-in-lake.ts';

/** What a receipt is verified with beside itself. */
export interface ReceiptWords {
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
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data });
  assertLake(config);
  const paths = dataPaths(config.dataDir);
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
    ...(body === undefined ? {} : { body }),
    ...(lake === undefined ? {} : { lake }),
  };
}
