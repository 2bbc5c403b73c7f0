import { createHash, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { hashFileByParts } from '../../../../src/runtime/files/file-checks.ts';
import { testFolder } from '../../../helpers/folder.ts';

const mebibyte = 1024 ** 2;
const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();

/** The hash of the hashes of each 8 MiB; of no bytes there is one part. */
function hashOfParts(bytes: Buffer): string {
  const parts: Buffer[] = [];
  for (let from = 0; from <= bytes.length; from += 8 * mebibyte)
    parts.push(sha256(bytes.subarray(from, from + 8 * mebibyte)));
  return sha256(Buffer.concat(parts)).toString('hex');
}

describe('the hash of a file by its parts', () => {
  it.each([0, 1, 8 * mebibyte - 1, 8 * mebibyte, 8 * mebibyte + 1, 24 * mebibyte, 29 * mebibyte])(
    'A file of %d bytes has the hash of the hashes of its parts, in their order',
    async (size) => {
      const file = path.join(testFolder(), 'file');
      const bytes = randomBytes(size);
      writeFileSync(file, bytes);
      expect(await hashFileByParts(file)).toBe(hashOfParts(bytes));
    },
  );

  it('Two parts that change places give another hash', async () => {
    const [first, second] = [randomBytes(8 * mebibyte), randomBytes(8 * mebibyte)];
    const file = path.join(testFolder(), 'file');
    writeFileSync(file, Buffer.concat([first, second]));
    const before = await hashFileByParts(file);
    writeFileSync(file, Buffer.concat([second, first]));
    expect(await hashFileByParts(file)).not.toBe(before);
  });
});
