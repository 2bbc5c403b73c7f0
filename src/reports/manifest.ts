import { createPrivateKey, generateKeyPairSync, sign, verify, type KeyObject } from 'node:crypto';
import path from 'node:path';
import type { Problem } from '../runtime/problems/problem.ts';
import { AppError } from '../runtime/errors.ts';
import { isRecord, membersOf } from '../runtime/files/checksummed-json.ts';
import type { Logger } from '../runtime/logger.ts';
import { publicKeyHex, toPublicKey } from '../runtime/encrypted-text.ts';
import { ensureRecord } from '../runtime/store/keys.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { createRecords } from '../runtime/store/records.ts';
import { isCount, isText, listOf, matching, oneOf, shapeOf } from '../runtime/store/shape.ts';
import { isReportBasis, isReportFile, type ReportVersion, type ReportFile, type ReportJob } from './reports.ts';

/**
 * The contents of a finished export under the service's signature: holders of a file and the manifest can verify the
 * file without the service.
 *
 * The text is JSON, indented by two, with `key` (public Ed25519 key, 32 bytes, hex) and `signature` (64 bytes, hex)
 * last. The signature is over the same object without `signature`, as JSON without spaces. A text that is rendered
 * otherwise is rejected, so that no bit can change.
 */
export interface Manifest {
  readonly manifestVersion: 1;
  readonly idReportFile: string;
  readonly event: string;
  /** The parsed request: days are Unix s, aliases their event. */
  readonly request: unknown;
  readonly createdAt: string;
  readonly finishedAt: string;
  /** The version of the data, with the hash of the log. */
  readonly data: ReportVersion;
  readonly columns: readonly string[];
  readonly rows: number;
  readonly files: readonly ReportFile[];
  readonly key: string;
}

export function manifestName(stem: string): string {
  return `${stem}.manifest.json`;
}

const isTexts = listOf(isText);

function columnsOf(request: unknown): readonly string[] {
  const { selectors } = membersOf(request);
  return isTexts(selectors) ? selectors : [];
}

/** Renders the signed manifest of a finished request; undefined if its version is not known. */
export function renderManifest(job: ReportJob, privateKey: KeyObject): string | undefined {
  const { basis, files } = job;
  if (basis === undefined || files === undefined) return undefined;
  const manifest: Manifest = {
    manifestVersion: 1,
    idReportFile: String(job.id),
    event: job.event,
    request: job.request,
    createdAt: new Date(job.createdMs).toISOString(),
    finishedAt: new Date(job.finishedMs ?? 0).toISOString(),
    data: basis,
    columns: job.columns ?? columnsOf(job.request),
    rows: files.reduce((sum, file) => sum + file.rows, 0),
    files,
    key: publicKeyHex(privateKey),
  };
  const signature = sign(undefined, Buffer.from(JSON.stringify(manifest)), privateKey).toString('hex');
  return renderText(manifest, signature);
}

function renderText(manifest: object, signature: string): string {
  return `${JSON.stringify({ ...manifest, signature }, undefined, 2)}\n`;
}

const again = 'Download the manifest again. If it is still invalid, do not trust the files.';

function refuse(why: string, hint = again): AppError {
  return new AppError('manifest_invalid', `the manifest ${why}`, { hint });
}

export function isManifestText(text: string): boolean {
  return /^\{\s*"manifestVersion"/.test(text);
}

/** Checks the members of a manifest; its signer may have left some out. */
const isManifest = shapeOf<Manifest>({
  manifestVersion: oneOf([1]),
  idReportFile: isText,
  event: isText,
  request: () => true,
  createdAt: isText,
  finishedAt: isText,
  data: isReportBasis,
  columns: isTexts,
  rows: isCount,
  files: listOf(isReportFile),
  key: matching(/^[0-9a-f]{64}$/),
});

/** Parses a manifest and verifies its signature; its key must be `trusted` if given. Error: `manifest_invalid`. */
export function parseManifest(text: string, trusted?: string): Manifest {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw refuse('is not JSON');
  }
  if (!isRecord(value)) throw refuse('is not an object');
  const { signature, ...rest } = value;
  const isKnown = isManifest(rest) && isText(signature) && /^[0-9a-f]{128}$/.test(signature);
  if (!isKnown) throw refuse('has an unknown format');
  const { key } = rest;
  // Spaces, escapes and repeated names are not part of what is signed.
  if (renderText(rest, signature) !== text) throw refuse('was reformatted');
  if (trusted !== undefined && trusted !== key)
    throw refuse(
      `was signed by another key, ${key}`,
      'Compare the key with the known keys of the service. If it is unknown, do not trust the files.',
    );
  if (!verify(undefined, Buffer.from(JSON.stringify(rest)), toPublicKey(key), Buffer.from(signature, 'hex')))
    throw refuse('does not match its signature');
  return rest;
}

export type ManifestKey = Awaited<ReturnType<typeof openManifestKey>>;

interface KeyRecord {
  /** PKCS8, PEM. */
  readonly privateKey: string;
}

const hint =
  'Restore it from a backup, or remove it and restart the service, which creates a new key. Earlier manifests verify with the old public key.';
const keyId = 'manifests';
const kind = {
  isValid: shapeOf<KeyRecord>({ privateKey: (pem) => createPrivateKey(String(pem)).type === 'private' }),
  damaged: { code: 'file_damaged', what: 'a manifest key', hint },
} as const;

/** Returns the path of the key file: JSON, mode 0600. */
export function manifestKeyPath(keysDir: string): string {
  return path.join(keysDir, `${keyId}.json`);
}

/**
 * Opens the private Ed25519 key, reloaded within a second of a change, and creates it on first use. If manifests were
 * signed before (`isInUse`), a new key is logged as a warning. While the key is unreadable, which is a problem, no
 * manifest is served.
 */
export async function openManifestKey(keysDir: string, logger: Logger, isInUse = false) {
  const records = createRecords(openStore(keysDir), kind);
  await ensureRecord(records, keyId, () => {
    const file = manifestKeyPath(keysDir);
    if (isInUse) logger.warn({ file }, 'manifest key missing, new one created');
    const { privateKey } = generateKeyPairSync('ed25519');
    return { privateKey: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
  });
  const watched = await records.watch(keyId, (record) => createPrivateKey(record?.privateKey ?? ''), logger);
  return {
    current: (): KeyObject | undefined => watched.current(),
    problems(): readonly Problem[] {
      const why = watched.problem();
      const effect =
        watched.current() === undefined ? 'no manifest is served' : 'no manifest is served after the next start';
      return why === undefined ? [] : [{ code: 'manifest_key_unreadable', message: `${effect}: ${why}`, action: hint }];
    },
    close: (): void => watched.close(),
  };
}
