import { existsSync, readFileSync } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import path from 'node:path';
import { once } from 'node:events';
import { openLocalCache } from '../../src/runtime/store/local-cache.ts';

/** Uses a file of a cache: prints `used`, waits for a line, then prints the file. */
const [, , objects = '', folder = '', key = '', sha256 = ''] = process.argv;

async function main(): Promise<void> {
  const cache = await openLocalCache({
    folder,
    maxBytes: 1,
    keyOf: ({ absolutePath }) => absolutePath,
    async fetch(name, localFile) {
      if (!existsSync(path.join(objects, name))) return false;
      await copyFile(path.join(objects, name), localFile);
      return true;
    },
  });
  await cache.use([{ absolutePath: key, sha256 }], async ([file = '']) => {
    process.stdout.write('used\n');
    await once(process.stdin, 'data');
    process.stdout.write(readFileSync(file, 'utf8'));
  });
  await cache.close();
  process.stdin.destroy();
}

void main();
