import { createHash } from 'node:crypto';
import { describeError, isSystemError } from '../runtime/errors.ts';
import { openForReading, type FileHandle } from '../runtime/files/open-file.ts';
import type { Logger } from '../runtime/logger.ts';
import type { ReportFile } from './reports.ts';

export interface FileVerificationError {
  readonly idReport: number;
  readonly state: 'missing' | 'damaged';
  readonly detail: string;
}

/** A published file of an export request, with its record of job.json. */
interface PublishedFile {
  readonly idReport: number;
  readonly path: string;
  readonly file: ReportFile;
}

export type VerifiedFiles = ReturnType<typeof createVerifiedFiles>;

export function isVerificationError(opened: FileHandle | FileVerificationError): opened is FileVerificationError {
  return 'detail' in opened;
}

const blockBytes = 1024 * 1024;
/** Verified versions of files that are kept; the oldest is dropped. */
const rememberedVersions = 10_000;
/** Faults that are kept for the operator; the oldest is dropped. */
const rememberedFaults = 1000;

async function hashFile(handle: FileHandle): Promise<string> {
  const hash = createHash('sha256');
  const block = Buffer.allocUnsafe(blockBytes);
  for (let position = 0; ;) {
    const { bytesRead } = await handle.read(block, 0, blockBytes, position);
    if (bytesRead === 0) return hash.digest('hex');
    hash.update(block.subarray(0, bytesRead));
    position += bytesRead;
  }
}

/** Opens a file. A symbolic link is not followed: the service never creates one. */
async function findHandle(path: string): Promise<FileHandle | undefined> {
  try {
    return await openForReading(path, true);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ELOOP')) return undefined;
    throw error;
  }
}

/**
 * Creates what opens report files for downloads, each verified before its first byte is sent. A file is hashed once,
 * about a second per gigabyte, and again only after a write, so that a range of a large file stays cheap. A file that
 * rots later without a write is not noticed.
 */
export function createVerifiedFiles(logger: Logger) {
  const failures = new Map<string, FileVerificationError>();
  /** SHA-256 by version of a file. */
  const hashes = new Map<string, Promise<string>>();

  async function hashOnce(path: string, handle: FileHandle): Promise<string> {
    const { dev, ino, size, mtimeNs, ctimeNs } = await handle.stat({ bigint: true });
    const version = [path, dev, ino, size, mtimeNs, ctimeNs].join(':');
    const known = hashes.get(version);
    if (known !== undefined) return known;
    if (hashes.size >= rememberedVersions) hashes.delete(hashes.keys().next().value ?? '');
    const hash = hashFile(handle);
    hashes.set(version, hash);
    hash.catch(() => hashes.delete(version));
    return hash;
  }

  async function check(
    path: string,
    file: ReportFile,
    handle: FileHandle,
    wholly: boolean,
  ): Promise<string | undefined> {
    try {
      const { size } = await handle.stat();
      if (size !== file.bytes) return `it has ${size} bytes instead of ${file.bytes}`;
      if (wholly && (await hashOnce(path, handle)) !== file.sha256) return 'checksum mismatch';
      return undefined;
    } catch (error) {
      return `cannot read it: ${describeError(error)}`;
    }
  }

  function report(path: string, fault: FileVerificationError): FileVerificationError {
    if (failures.get(path)?.detail !== fault.detail)
      logger.error({ idReport: fault.idReport, error: fault.detail }, 'report file damaged');
    if (failures.size >= rememberedFaults && !failures.has(path)) failures.delete(failures.keys().next().value ?? '');
    failures.set(path, fault);
    return fault;
  }

  async function openChecked(
    { idReport, path, file }: PublishedFile,
    wholly: boolean,
  ): Promise<FileHandle | FileVerificationError> {
    const handle = await findHandle(path);
    if (handle === undefined) return report(path, { idReport, state: 'missing', detail: `${path} is missing` });
    const wrong = await check(path, file, handle, wholly);
    if (wrong === undefined) {
      if (wholly) failures.delete(path);
      return handle;
    }
    await handle.close();
    return report(path, { idReport, state: 'damaged', detail: `${path} is damaged: ${wrong}` });
  }

  return {
    /** Opens a file of the recorded size and SHA-256. The caller closes the handle. */
    open: (published: PublishedFile): Promise<FileHandle | FileVerificationError> => openChecked(published, true),
    /** Verifies a file, or its size only, which is cheap. Undefined if it is correct. */
    async findFault(published: PublishedFile, look: 'wholly' | 'size'): Promise<FileVerificationError | undefined> {
      const opened = await openChecked(published, look === 'wholly');
      if (isVerificationError(opened)) return opened;
      await opened.close();
      return undefined;
    },
    /** The last fault of each file, the newest ones. The next request of a restored file removes its fault. */
    faults: (): readonly FileVerificationError[] => [...failures.values()],
  };
}
