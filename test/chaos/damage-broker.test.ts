import { cpSync, rmSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { recordDamage, runDamages } from '../helpers/damage.ts';
import { listStoreFiles, lookAtStore, makeStore } from '../helpers/damaged-store.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { inTurn } from '../helpers/in-turn.ts';

/**
 * The broker's store, damaged while the service was down: the lake has the first messages, the stream the others, all
 * acknowledged. One store was stopped; one was killed, so that its index is older than its blocks.
 */

const offsets = chaosFigure('TRIBUTARY_TEST_DAMAGES', { short: 1, long: 200 });
const seed = chaosSeed();
const folder = temporaryFolder();
const ways = ['stopped', 'killed'] as const;
const original = (way: (typeof ways)[number]): string => path.join(folder, way);
const ids = { stopped: [] as string[], killed: [] as string[] };

beforeAll(async () => {
  for (const way of ways) ids[way] = await makeStore(original(way), way);
}, 60_000);

test('An undamaged store of the broker delivers every event once and raises no alarm', async () => {
  for (const way of ways) {
    const copy = path.join(folder, 'whole');
    cpSync(original(way), copy, { recursive: true });
    expect(await lookAtStore(copy, ids[way])).toMatchObject({ alarms: [], missing: 0, doubled: 0 });
    rmSync(copy, { recursive: true });
  }
});

const kinds = {
  'message blocks': /\.blk$/,
  'the index': /index\.db$/,
  'the description of the stream': /meta\.inf$/,
  'its checksum': /meta\.sum$/,
};

test.for(inTurn(Object.entries(kinds), 2))(
  'With damaged files of the broker (%s) every event is in the lake, or an alarm is raised',
  { timeout: 3_600_000 },
  async ([what, pattern]) => {
    const random = createRandom(seed);
    for (const way of ways) {
      const tally = await runDamages({
        original: original(way),
        copy: path.join(folder, 'copy'),
        listFiles: (copy) => listStoreFiles(copy).filter((file) => pattern.test(file)),
        random,
        offsets: offsets / 2,
        async judge(copy) {
          const look = await lookAtStore(copy, ids[way]);
          if (look.doubled > 0 || (look.missing > 0 && look.alarms.length === 0))
            return { silent: JSON.stringify(look) };
          return look.alarms.length > 0 ? 'loud' : 'right';
        },
      });
      recordDamage(`damage to the broker's files: ${what}, of a server that was ${way}`, tally, {
        seed,
        part: 'damage-broker',
      });
      expect(tally.silentWrong).toEqual([]);
    }
  },
);
