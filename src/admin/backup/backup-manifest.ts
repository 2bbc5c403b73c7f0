import { createHash } from 'node:crypto';
import { AppError } from '../../runtime/errors.ts';
import path from 'node:path';
import { parseChecksummed, renderChecksummed } from '../../runtime/files/checksummed-json.ts';
import { assertKnownFormat, dataFormat, programVersion } from '../../runtime/files/data-format.ts';
import { findTextFile, writeFileDurably } from '../../runtime/files/durable-file.ts';
import { openNewFile } from '../../runtime/files/open-file.ts';
import { findSize, hashFile } from '../../runtime/files/file-checks.ts';

export interface StoredBytes {
  readonly sha256: string;
  readonly size: number;
}

/** Copies pieces to a new file, mode 0600, and fsyncs it. The caller makes its name durable. */
export async function writeStored(pieces: AsyncIterable<Uint8Array>, file: string): Promise<StoredBytes> {
  const hash = createHash('sha256');
  let size = 0;
  const handle = await openNewFile(file);
  try {
    for await (const piece of pieces) {
      hash.update(piece);
      size += piece.length;
      await handle.writeFile(piece);
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
  return { sha256: hash.digest('hex'), size };
}

/** Hashes a file; undefined if it does not exist. */
export async function hashFileIfExists(file: string): Promise<StoredBytes | undefined> {
  const size = await findSize(file);
  return size === undefined ? undefined : { sha256: await hashFile(file), size };
}

export function isSame(a: StoredBytes | undefined, b: StoredBytes): boolean {
  return a?.sha256 === b.sha256 && a.size === b.size;
}

export interface BackupFile extends StoredBytes {
  /** Path below the data folder, with `/`. */
  readonly path: string;
}

/** Messages of the stream that the lake of the backup does not have (stream-backlog.ts). */
export interface BackupBacklog extends StoredBytes {
  readonly stream: string;
  readonly messages: number;
}

/** The content of a backup. Written last and atomically: until then the previous backup, or none, is current. */
export interface BackupManifest {
  /** The format that the program wrote (runtime/files/data-format.ts), which decides who can read the backup. */
  readonly format: number;
  /** The format of the data folder, which may be older. */
  readonly folderFormat: number;
  readonly program: string;
  /** Start of the backup, ISO 8601: it has every event that was acknowledged before. */
  readonly madeAt: string;
  readonly lake?: string;
  /** Version of the lake; -1 without one. (`version` is the checked file's.) */
  readonly lakeVersion: number;
  /** Last stream sequence in the backup, in the lake or in the tail. */
  readonly sequence: number;
  readonly files: readonly BackupFile[];
  readonly tail?: BackupBacklog;
}

const manifestName = 'manifest.json';
const hint = 'Restore another backup; this one cannot be verified without its manifest.';

export function manifestPath(dir: string): string {
  return path.join(dir, manifestName);
}

function isStored(value: unknown): value is StoredBytes {
  const { sha256, size } = (value ?? {}) as Partial<StoredBytes>;
  return typeof sha256 === 'string' && /^[0-9a-f]{64}$/.test(sha256) && Number.isSafeInteger(size) && (size ?? -1) >= 0;
}

/** Reports whether a value is a plain relative path. */
function isInside(name: unknown): boolean {
  return (
    typeof name === 'string' &&
    name !== '' &&
    !path.isAbsolute(name) &&
    path.posix.normalize(name) === name &&
    name !== '.' &&
    name !== '..' &&
    !name.startsWith('../') &&
    !name.includes('\0')
  );
}

function assertManifest(manifest: BackupManifest): void {
  const { format, folderFormat, lakeVersion, sequence, madeAt, files, tail } = manifest;
  const numbers = [format, folderFormat, lakeVersion, sequence].every((value) => Number.isSafeInteger(value));
  const listed = Array.isArray(files) && files.every((file) => isInside(file.path) && isStored(file));
  if (
    !numbers ||
    typeof madeAt !== 'string' ||
    !listed ||
    !(tail === undefined || (isStored(tail) && typeof tail.stream === 'string'))
  )
    throw new Error('invalid content');
}

/** Reads the manifest; undefined without a finished backup. Errors: `backup_damaged`; `data_format` if it is newer. */
export async function findManifest(dir: string): Promise<BackupManifest | undefined> {
  const file = manifestPath(dir);
  const text = await findTextFile(file);
  if (text === undefined) return undefined;
  let manifest: BackupManifest;
  try {
    manifest = parseChecksummed(text) as unknown as BackupManifest;
  } catch (error) {
    throw new AppError('backup_damaged', `${file} is damaged`, { cause: error, hint });
  }
  if (Number.isSafeInteger(manifest.format)) assertKnownFormat(`the backup in ${dir}`, manifest);
  try {
    assertManifest(manifest);
  } catch (error) {
    throw new AppError('backup_damaged', `${file} is not a backup manifest`, { cause: error, hint });
  }
  return manifest;
}

/** Writes the manifest durably, which completes the backup. */
export async function writeManifest(dir: string, manifest: Omit<BackupManifest, 'format' | 'program'>): Promise<void> {
  await writeFileDurably(
    manifestPath(dir),
    renderChecksummed({ format: dataFormat, program: programVersion(), ...manifest }),
  );
}

export interface BackupAnswer {
  readonly version: number;
  readonly sequence: number;
  readonly files: number;
  readonly bytes: number;
}

export function summarize({
  lakeVersion,
  sequence,
  files,
  tail,
}: Pick<BackupManifest, 'lakeVersion' | 'sequence' | 'files' | 'tail'>): BackupAnswer {
  const all = tail === undefined ? files : [...files, tail];
  return { version: lakeVersion, sequence, files: all.length, bytes: all.reduce((sum, { size }) => sum + size, 0) };
}
