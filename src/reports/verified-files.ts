import { createHash } from 'node:crypto';
import { describeError, isStoreError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { ObjectStore, OpenObject } from '../runtime/store/object-store.ts';
import { partKey } from './report-records.ts';
import type { ReportFile, ReportJob } from './reports.ts';

export interface FileVerificationError {
  readonly idReport: number;
  readonly state: 'missing' | 'damaged';
  readonly detail: string;
}

/** A published file of an export request, with its record of job.json. */
interface PublishedFile {
  readonly job: Pick<ReportJob, 'id' | 'attemptNonce'>;
  readonly file: ReportFile;
}

export type VerifiedFiles = ReturnType<typeof createVerifiedFiles>;

export function isVerificationError(opened: OpenObject | FileVerificationError): opened is FileVerificationError {
  return 'detail' in opened;
}

/** Verified versions of files that are kept; the oldest is dropped. */
const rememberedVersions = 10_000;
/** Faults that are kept for the operator; the oldest is dropped. */
const rememberedFaults = 1000;

async function hashObject(opened: OpenObject): Promise<string> {
  const hash = createHash('sha256');
  for await (const block of opened.blocks()) hash.update(block);
  return hash.digest('hex');
}

/**
 * Creates what opens report files for downloads, each verified before its first byte is sent. A file is hashed once,
 * about a second per gigabyte, and again only after a write, so that a range of a large file stays cheap. A file that
 * rots later without a write is not noticed.
 */
export function createVerifiedFiles(objects: ObjectStore, logger: Logger) {
  const failures = new Map<string, FileVerificationError>();
  /** SHA-256 by version of a file. */
  const hashes = new Map<string, Promise<string>>();

  function hashOnce(name: string, opened: OpenObject): Promise<string> {
    const version = `${name}:${opened.version}`;
    const known = hashes.get(version);
    if (known !== undefined) return known;
    if (hashes.size >= rememberedVersions) hashes.delete(hashes.keys().next().value ?? '');
    const hash = hashObject(opened);
    hashes.set(version, hash);
    hash.catch(() => hashes.delete(version));
    return hash;
  }

  async function check(
    name: string,
    file: ReportFile,
    opened: OpenObject,
    wholly: boolean,
  ): Promise<string | undefined> {
    const { sizeBytes } = opened;
    if (sizeBytes !== file.bytes) return `it has ${sizeBytes} bytes instead of ${file.bytes}`;
    try {
      return wholly && (await hashOnce(name, opened)) !== file.sha256 ? 'checksum mismatch' : undefined;
    } catch (error) {
      if (isStoreError(error)) throw error;
      return `cannot read it: ${describeError(error)}`;
    }
  }

  function report(name: string, fault: FileVerificationError): FileVerificationError {
    if (failures.get(name)?.detail !== fault.detail)
      logger.error({ idReport: fault.idReport, error: fault.detail }, 'report file damaged');
    if (failures.size >= rememberedFaults && !failures.has(name)) failures.delete(failures.keys().next().value ?? '');
    failures.set(name, fault);
    return fault;
  }

  async function openChecked(
    { job, file }: PublishedFile,
    wholly: boolean,
  ): Promise<OpenObject | FileVerificationError> {
    const { id: idReport } = job;
    const key = partKey(job, file.name);
    const name = objects.nameOf(key);
    const opened = await objects.open(key);
    if (opened === undefined) return report(name, { idReport, state: 'missing', detail: `${name} is missing` });
    const wrong = await check(name, file, opened, wholly).catch(async (error: unknown) => {
      await opened.close();
      throw error;
    });
    if (wrong === undefined) {
      if (wholly) failures.delete(name);
      return opened;
    }
    await opened.close();
    return report(name, { idReport, state: 'damaged', detail: `${name} is damaged: ${wrong}` });
  }

  return {
    /** Opens a file of the recorded size and SHA-256. The caller closes it. */
    open: (published: PublishedFile): Promise<OpenObject | FileVerificationError> => openChecked(published, true),
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
