import { expect, test } from 'vitest';
import { highwayHash64 } from '../../../src/stream/highway-hash.ts';

/** Of the reference implementation's own table: the bytes 0, 1, 2 ... under the key 0, 1 ... 31. */
const published = ['907A56DE22C26E53', '7EAB43AAC7CDDD78', 'B8D0569AB0B53D62'];
const count = (length: number): Uint8Array => Uint8Array.from({ length }, (_, n) => n);

test('HighwayHash-64 gives the published digests', () => {
  const digests = published.map((_, size) => highwayHash64(count(32), count(size)));
  const digits = digests.map((digest) => digest.match(/../g)?.toReversed().join(''));
  expect(digits).toEqual(published.map((digest) => digest.toLowerCase()));
});

test('HighwayHash-64 depends on every byte of inputs of every length', () => {
  for (let size = 1; size <= 70; size += 1) {
    const digest = highwayHash64(count(32), count(size));
    for (let at = 0; at < size; at += 1) {
      const changed = count(size);
      changed[at] = 255 - at;
      expect(highwayHash64(count(32), changed), `${size} bytes, ${at}`).not.toBe(digest);
    }
  }
});
