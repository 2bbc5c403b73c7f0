import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { openS3Bucket } from '../../src/runtime/store/s3-bucket.ts';
import { createS3Store, type S3Store } from '../../src/runtime/store/s3-store.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { temporaryFolder, testFolder } from '../helpers/folder.ts';
import { errorAnswer, forwardTo, startS3Proxy, type S3Fault } from '../helpers/s3-proxy.ts';
import { startGateway, type S3Server } from '../helpers/s3-servers.ts';

const rivals = 12;
const creates = chaosFigure('TRIBUTARY_TEST_CREATES', { short: 100, long: 10_000 });
const seed = chaosSeed();
const again = `make chaos PART=s3-rivals SEED=${seed}`;

/** Of a hundred requests, ten lose their answer after the work, three are refused, two after the work; three are late. */
function faultsFrom(random: Random): () => S3Fault | undefined {
  const refused = errorAnswer(503, 'SlowDown');
  return () => {
    const place = random.next() * 100;
    if (place < 10) return { isDone: true, answer: 'cut' };
    if (place < 15) return { isDone: place < 12, answer: refused };
    return place < 18 ? { isDone: true, answer: 'late', delayMs: 400 } : undefined;
  };
}

const folder = temporaryFolder();
let server: S3Server | undefined;
beforeAll(async () => {
  server = await startGateway(folder);
}, 1_600_000);
afterAll(async () => await server?.stop());

async function open(endpoint: string, prefix: string): Promise<S3Store> {
  if (server === undefined) throw new Error('the server is missing');
  const bucket = await openS3Bucket({ ...server.settings, endpoint, limits: { callMs: 120_000 } });
  onTestFinished(() => bucket.close());
  return createS3Store({ bucket, prefix, scratchFolder: testFolder() });
}

/** Opens the stores of rivals behind a network with faults, and one without. */
async function openRivals({ endpoint }: S3Server['settings']) {
  const prefix = `${randomUUID()}/`;
  const proxy = await startS3Proxy(forwardTo(endpoint));
  proxy.faultOf = faultsFrom(createRandom(seed));
  const stores = await Promise.all(Array.from({ length: rivals }, () => open(proxy.endpoint, prefix)));
  return { stores, direct: await open(endpoint, prefix) };
}

const keyOf = (number: number): string => `_log/${String(number).padStart(20, '0')}.json`;

const textOf = async (store: S3Store, key: string): Promise<string | undefined> => {
  const found = await store.get(key);
  return found === undefined ? undefined : Buffer.from(found.bytes).toString();
};

describe(`rivals behind a network with faults (TRIBUTARY_TEST_SEED=${seed})`, () => {
  test(
    'Of the creates of many rivals, none is lost, overwritten or reported twice',
    { timeout: 7_200_000 },
    async ({ skip }) => {
      if (server === undefined) {
        skip('no versitygw');
        return;
      }
      const { stores, direct } = await openRivals(server.settings);
      const reported = new Map<string, string[]>();
      let newest = 0;
      await Promise.all(
        stores.map(async (store, rival) => {
          for (let number = 0; number < creates; number = Math.max(number + 1, newest)) {
            const [key, text] = [keyOf(number), `rival ${rival}, create ${number}`];
            if ((await store.create(key, Buffer.from(text))) === 'created')
              reported.set(key, [...(reported.get(key) ?? []), text]);
            newest = Math.max(newest, number);
          }
        }),
      );
      const keys = Array.from({ length: creates }, (_, number) => keyOf(number));
      expect((await direct.list('_log/')).toSorted()).toEqual(keys);
      for (const key of keys) expect(reported.get(key), key).toEqual([await textOf(direct, key)]);
      recordFinding({
        promise: 'P18',
        what: 'rivals that create the entries of one log, with lost, refused and late answers',
        wanted: `${creates.toLocaleString('en-US')} creates: none lost, overwritten or reported twice`,
        figures: { rivals, creates, lostCreates: 0, overwrittenCreates: 0, reportedTwice: 0 },
        reached: true,
        seed,
        again,
      });
    },
  );

  test('Of the replacements of many rivals, no reported one is lost', { timeout: 7_200_000 }, async ({ skip }) => {
    if (server === undefined) {
      skip('no versitygw');
      return;
    }
    const { stores, direct } = await openRivals(server.settings);
    await direct.create('set', Buffer.from(''));
    const ids = stores.map((_, rival) => Array.from({ length: Math.ceil(creates / 100) }, (_id, n) => `${rival}-${n}`));
    await Promise.all(
      stores.map(async (store, rival) => {
        for (const id of ids[rival] ?? [])
          for (let isIn = false; !isIn;) {
            const found = await store.get('set');
            const text = Buffer.from(found?.bytes ?? []).toString();
            isIn = text.split(' ').includes(id);
            if (!isIn)
              isIn = (await store.replace('set', Buffer.from(`${text} ${id}`), found?.tag ?? '#')) !== 'conflict';
          }
      }),
    );
    const stored = (await textOf(direct, 'set'))?.trim().split(' ') ?? [];
    expect(stored.toSorted()).toEqual(ids.flat().toSorted());
    recordFinding({
      promise: 'P18',
      what: 'rivals that replace one object, with lost, refused and late answers',
      wanted: 'no reported replacement lost',
      figures: { rivals, replacements: stored.length, lostReplacements: 0 },
      reached: true,
      seed,
      again,
    });
  });
});
