import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { readFreeBytes, startDiskWatch } from '../../../../src/runtime/files/disk-watch.ts';
import { createLogger } from '../../../../src/runtime/logger.ts';
import { temporaryFolder, testFolder } from '../../../helpers/folder.ts';
import { waitFor } from '../../../helpers/wait.ts';

const folder = temporaryFolder();
const logger = createLogger('silent');

describe('a disk watch', () => {
  it('A disk watch knows from the first moment whether the reserve is free', async () => {
    const free = await readFreeBytes(folder);
    for (const [reserveBytes, low] of [
      [0, false],
      [Math.floor(free / 2), false],
      [free * 2, true],
    ] as const) {
      const watch = await startDiskWatch(folder, reserveBytes, logger);
      expect(watch.isLow(), `${reserveBytes} of ${free} bytes`).toBe(low);
      await watch.stop();
    }
  });

  it('A disk watch does not refuse events because a folder cannot be read', async () => {
    const watch = await startDiskWatch('/nowhere/at/all', Number.MAX_SAFE_INTEGER, logger);
    expect(watch.isLow()).toBe(false);
    await watch.stop();
  });

  it('A disk watch checks again when something is about to be written', async () => {
    const gone = path.join(testFolder(), 'later');
    const watch = await startDiskWatch(gone, Number.MAX_SAFE_INTEGER, logger);
    expect(watch.isLow()).toBe(false);
    mkdirSync(gone);
    watch.expectWrites();
    await waitFor('it has looked', () => watch.isLow());
    expect(watch.isLow()).toBe(true);
    await watch.stop();
  });
});
