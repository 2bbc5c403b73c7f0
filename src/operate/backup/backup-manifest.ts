import { createHash } from 'node:crypto';
import { open, type FileHandle } from 'node:fs/promises';
import { isSystemError, AppError } from '../../runtime/errors.ts';
import path from 'node:path';
import { parseChecked, renderChecked } from '../../runtime/files/checked-json.ts';
import { assertKnownFormat, dataFormat, programVersion } from '../../runtime/files/data-format.ts';
import { findTextFile, writeFileDurably } from '../../runtime/files/durable-file.ts';

/** Bytes that a backup keeps, under their own hash. */
export interface StoredBytes {
  /** SHA-256, hex. */
  readonly sha256: string;
  readonly size: number;
}

const pieceBytes = 1024 * 1024;

/** Reads a file in pieces of at most 1 MiB; the buffer is used again for each. */
export async function* readPieces(file: string): AsyncGenerator<Uint8Array> {
  const handle = await open(file, 'r');
  try {
    const buffer = Buffer.allocUnsafe(pieceBytes);
    for (;;) {
      const { bytesRead } = await handle.read(buffer, 0, pieceBytes);
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await handle.close();
  }
}

async function writeWhole(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += (await handle.write(bytes, at)).bytesWritten;
}

/** Writes pieces to a new file, mode 0600, and fsyncs it; says what was written. The caller makes its name durable. */
export async function writePieces(pieces: AsyncIterable<Uint8Array>, file: string): Promise<StoredBytes> {
  const hash = createHash('sha256');
  let size = 0;
  const handle = await open(file, 'wx', 0o600);
  try {
    for await (const piece of pieces) {
      hash.update(piece);
      size += piece.length;
      await writeWhole(handle, piece);
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
  return { sha256: hash.digest('hex'), size };
}

/** Hashes a file; undefined when it is not there. */
export async function findStored(file: string): Promise<StoredBytes | undefined> {
  const hash = createHash('sha256');
  let size = 0;
  try {
    for await (const piece of readPieces(file)) {
      hash.update(piece);
      size += piece.length;
    }
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
  return { sha256: hash.digest('hex'), size };
}

/** Says whether two are the same bytes. */
export function isSame(a: StoredBytes | undefined, b: StoredBytes): boolean {
  return a?.sha256 === b.sha256 && a.size === b.size;
}

/** A file of the data folder in a backup. */
export interface BackupFile extends StoredBytes {
  /** Path below the data folder, with `/`. */
  readonly path: string;
}

/** The messages of the stream that the backed-up lake does not have: see stream-tail.ts. */
export interface BackupTail extends StoredBytes {
  /** Id of the stream: its name and creation time. */
  readonly stream: string;
  readonly messages: number;
}

/**
 * What a backup holds. Written last and whole: a folder without it holds no backup, and until it is replaced the one
 * before is in force.
 */
export interface BackupManifest {
  /** The format that the program wrote (runtime/files/data-format.ts), which says who can read the backup. */
  readonly format: number;
  /** The format of the data folder, which may not be raised yet. */
  readonly folderFormat: number;
  /** Version of the program that made the backup. */
  readonly program: string;
  /** When the backup began, ISO 8601: every event acknowledged before is in it. */
  readonly madeAt: string;
  /** Id of the lake; absent where there was none yet. */
  readonly lake?: string;
  /** Version of the lake; -1 where there was none yet. (`version` is the checked file's own.) */
  readonly lakeVersion: number;
  /** Last stream sequence in the backup, in the lake or in the tail. */
  readonly sequence: number;
  readonly files: readonly BackupFile[];
  readonly tail?: BackupTail;
}

const manifestName = 'manifest.json';
const hint = 'The bytes of this backup may be whole, yet nothing says so any more: restore another one.';

/** Path of the manifest in a backup's folder. */
export function manifestPath(dir: string): string {
  return path.join(dir, manifestName);
}

function isStored(value: unknown): value is StoredBytes {
  const { sha256, size } = (value ?? {}) as Partial<StoredBytes>;
  return typeof sha256 === 'string' && /^[0-9a-f]{64}$/.test(sha256) && Number.isSafeInteger(size) && (size ?? -1) >= 0;
}

/** Says whether a path is a plain one below the folder. */
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
    throw new Error('its content is not what was written');
}

/**
 * Reads the manifest of a folder; undefined where no backup was finished. Errors: `backup_damaged`; `data_format` when
 * a newer program made it.
 */
export async function findManifest(dir: string): Promise<BackupManifest | undefined> {
  const file = manifestPath(dir);
  const text = await findTextFile(file);
  if (text === undefined) return undefined;
  let manifest: BackupManifest;
  try {
    manifest = parseChecked(text) as unknown as BackupManifest;
  } catch (error) {
    throw new AppError('backup_damaged', `${file} is damaged`, { cause: error, hint });
  }
  if (Number.isSafeInteger(manifest.format)) assertKnownFormat(`the backup in ${dir}`, manifest);
  try {
    assertManifest(manifest);
  } catch (error) {
    throw new AppError('backup_damaged', `${file} is no manifest of a backup`, { cause: error, hint });
  }
  return manifest;
}

/** Writes the manifest, which makes the backup: durable when it returns. */
export async function writeManifest(dir: string, manifest: Omit<BackupManifest, 'format' | 'program'>): Promise<void> {
  await writeFileDurably(
    manifestPath(dir),
    renderChecked({ format: dataFormat, program: programVersion(), ...manifest }),
  );
}

/** What `backup` and `restore` answer. */
export interface BackupAnswer {
  readonly version: number;
  readonly sequence: number;
  readonly files: number;
  readonly bytes: number;
}

/** Sums a manifest up. */
export function summarize({
  lakeVersion,
  sequence,
  files,
  tail,
}: Pick<BackupManifest, 'lakeVersion' | 'sequence' | 'files' | 'tail'>): BackupAnswer {
  const all = tail === undefined ? files : [...files, tail];
  return { version: lakeVersion, sequence, files: all.length, bytes: all.reduce((sum, { size }) => sum + size, 0) };
}
