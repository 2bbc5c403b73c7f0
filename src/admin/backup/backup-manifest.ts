import { createHash } from 'node:crypto';
import { AppError } from '../../runtime/errors.ts';
import path from 'node:path';
import { parseChecksummed, renderChecksummed } from '../../runtime/files/checksummed-json.ts';
import { assertKnownFormat, dataFormat } from '../../runtime/files/data-format.ts';
import { findBuild } from '../../runtime/files/package-files.ts';
import { findTextFile, writeFileDurably } from '../../runtime/files/durable-file.ts';
import { openNewFile } from '../../runtime/files/open-file.ts';
import { findSize, hashFile } from '../../runtime/files/file-checks.ts';
import { isCount, isInteger, isText, listOf, matching, optional, shapeOf } from '../../runtime/store/shape.ts';

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

const stored = { sha256: matching(/^[0-9a-f]{64}$/), size: isCount };
const isManifest = shapeOf<BackupManifest>({
  format: isInteger,
  folderFormat: isInteger,
  program: optional(isText),
  madeAt: isText,
  lake: optional(isText),
  lakeVersion: isInteger,
  sequence: isInteger,
  files: listOf(shapeOf<BackupFile>({ ...stored, path: isInside })),
  tail: optional(shapeOf<BackupBacklog>({ ...stored, stream: isText, messages: optional(isInteger) })),
});

/** Reads the manifest; undefined without a finished backup. Errors: `backup_damaged`; `data_format` if it is newer. */
export async function findManifest(dir: string): Promise<BackupManifest | undefined> {
  const file = manifestPath(dir);
  const text = await findTextFile(file);
  if (text === undefined) return undefined;
  let manifest: Readonly<Record<string, unknown>>;
  try {
    manifest = parseChecksummed(text);
  } catch (error) {
    throw new AppError('backup_damaged', `${file} is damaged`, { cause: error, hint });
  }
  const { format, program } = manifest;
  if (isInteger(format)) assertKnownFormat(`the backup in ${dir}`, { format, program: String(program) });
  if (isManifest(manifest)) return manifest;
  const cause = new Error('invalid content');
  throw new AppError('backup_damaged', `${file} is not a backup manifest`, { cause, hint });
}

/** Writes the manifest durably, which completes the backup. */
export async function writeManifest(dir: string, manifest: Omit<BackupManifest, 'format' | 'program'>): Promise<void> {
  await writeFileDurably(
    manifestPath(dir),
    renderChecksummed({ format: dataFormat, program: findBuild().version, ...manifest }),
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
