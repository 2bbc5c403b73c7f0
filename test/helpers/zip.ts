import { crc32, inflateRawSync } from 'node:zlib';

/** One file in a zip. */
export interface ZipEntry {
  readonly name: string;
  readonly data: Buffer;
}

const endSignature = 0x06054b50;
const entrySignature = 0x02014b50;
const localSignature = 0x04034b50;
const stored = 0;
const deflated = 8;

/**
 * Reads a zip as an unzip program does: by the central directory, not by the headers before the files. Throws if a
 * file's bytes do not match its checksum and length, or if directory and header name different files. No Zip64.
 */
export function readZip(zip: Buffer): ZipEntry[] {
  const end = zip.lastIndexOf(Buffer.from(Uint32Array.of(endSignature).buffer));
  if (end < 0) throw new Error('the zip has no end record');
  const entries: ZipEntry[] = [];
  let at = zip.readUInt32LE(end + 16);
  for (let count = zip.readUInt16LE(end + 10); count > 0; count -= 1) {
    if (zip.readUInt32LE(at) !== entrySignature) throw new Error(`no entry of the list at ${at}`);
    const method = zip.readUInt16LE(at + 10);
    const [checksum, packedBytes, bytes] = [
      zip.readUInt32LE(at + 16),
      zip.readUInt32LE(at + 20),
      zip.readUInt32LE(at + 24),
    ];
    const [nameBytes, extraBytes, commentBytes] = [
      zip.readUInt16LE(at + 28),
      zip.readUInt16LE(at + 30),
      zip.readUInt16LE(at + 32),
    ];
    const name = zip.toString('utf8', at + 46, at + 46 + nameBytes);
    const local = zip.readUInt32LE(at + 42);
    const localNameBytes = zip.readUInt16LE(local + 26);
    if (
      zip.readUInt32LE(local) !== localSignature ||
      zip.toString('utf8', local + 30, local + 30 + localNameBytes) !== name
    )
      throw new Error(`no head of ${name} at ${local}`);
    const start = local + 30 + localNameBytes + zip.readUInt16LE(local + 28);
    const packed = zip.subarray(start, start + packedBytes);
    if (method !== stored && method !== deflated) throw new Error(`${name} is packed by method ${method}`);
    const data = method === stored ? packed : inflateRawSync(packed);
    if (data.length !== bytes || crc32(data) !== checksum)
      throw new Error(`the bytes of ${name} are not those that were put in`);
    entries.push({ name, data });
    at += 46 + nameBytes + extraBytes + commentBytes;
  }
  if (at !== end) throw new Error(`the list of the zip ends at ${at}, its end record is at ${end}`);
  return entries;
}
