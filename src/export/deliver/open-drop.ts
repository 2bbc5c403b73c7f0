import { createHash } from 'node:crypto';
import type { Destination } from '../../destinations/destination-store.ts';
import { createCheckedLookup, type EgressPolicy } from '../../runtime/http/egress-policy.ts';
import { openBucketDrop, type FileDrop } from '../../runtime/store/s3-drop.ts';
import { openFolderDrop } from './sftp-drop.ts';
import type { ByteSource } from '../../runtime/store/s3-write.ts';

/** Opens the place of a destination, until the signal aborts. Connects only to addresses that the rules allow. */
export async function openDrop(
  { target, idAccount }: Destination,
  secret: string,
  rules: EgressPolicy,
  signal: AbortSignal,
): Promise<FileDrop> {
  const lookup = createCheckedLookup(rules, String(idAccount), signal);
  if (target.kind === 'sftp') return await openFolderDrop(target, secret, lookup, signal);
  const { endpoint, region, bucket, pathStyle, accessKeyId, prefix } = target;
  const credentials = { accessKeyId, secretAccessKey: secret };
  return await openBucketDrop({ endpoint, region, bucket, pathStyle, credentials, lookup, signal }, prefix);
}

/** Returns the bytes of a text as a source, with their hash. */
export function sourceOf(text: string): { readonly source: ByteSource; readonly sha256: string } {
  const bytes = Buffer.from(text);
  return {
    source: { sizeBytes: bytes.length, read: async (from, length) => bytes.subarray(from, from + length) },
    sha256: createHash('sha256').update(bytes).digest('hex'),
  };
}
