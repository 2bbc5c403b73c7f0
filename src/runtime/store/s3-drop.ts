import { AppError, isAppError } from '../errors.ts';
import { findHead } from './s3-read.ts';
import { openS3Bucket, type S3Settings } from './s3-bucket.ts';
import { putSource, type ByteSource } from './s3-write.ts';

/** A place outside of the service that gets whole files, each under a name that no other file has. */
export interface FileDrop {
  /**
   * Writes a file, unless it exists with its size: a name has one content. Readers see no part of it. Errors:
   * `file_damaged` if the bytes do not have the hash; those of the place.
   */
  put(name: string, source: ByteSource, sha256: string): Promise<void>;
  close(): void;
}

/** Returns a check of the hash of bytes before they get their name. */
export function checkHash(name: string, wanted: string): (sha256: string) => void {
  return (found) => {
    if (found === wanted) return;
    throw new AppError('file_damaged', `${name} does not match its checksum; it was not delivered`, {
      hint: 'Create the export again.',
    });
  };
}

/** Time limit of all attempts of a call, ms: its caller tries again later. */
const callMs = 10_000;

/** Opens a prefix of a bucket of someone else. Sends no request. */
export async function openBucketDrop(settings: S3Settings, prefix: string): Promise<FileDrop> {
  const bucket = await openS3Bucket({ limits: { callMs }, ...settings });
  return {
    async put(name, source, sha256) {
      const key = `${prefix}${name}`;
      // Credentials may lack the permission to read.
      const head = await findHead(bucket, key).catch((error: unknown) => {
        if (!isAppError(error, 'store_refused')) throw error;
        return undefined;
      });
      if (head?.sizeBytes === source.sizeBytes) return;
      await putSource({ bucket, key, condition: 'any' }, source, checkHash(name, sha256));
    },
    close: () => bucket.close(),
  };
}
