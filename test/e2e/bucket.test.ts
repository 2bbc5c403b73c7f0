import { readdirSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { balanceAccounts, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { startTestBroker, startTestBucket } from '../helpers/bucket.ts';
import { createExportClient, exportQuery } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { oneFileIn } from '../helpers/in-turn.ts';
import { createLedger } from '../helpers/ledger.ts';
import { sendLoad } from '../helpers/load.ts';
import { runCommand, startTestService, type TestServiceOptions } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

beforeEach(oneFileIn(3, 2));

/** Starts a service, and an app and a user by its commands. */
async function startOnBucket(options: TestServiceOptions) {
  const { settings = {}, dataDir } = options;
  const command = (...words: readonly string[]) => runCommand([...words, '--data', dataDir], settings);
  const { token } = await command('app', 'add', '1', '--platform', 'web');
  const { idUser, secret } = await command('user', 'add', 'analyst', '--account', '1');
  const service = await startTestService(options);
  onTestFinished(() => service.destroy());
  return { service, token: String(token), user: { idUser: String(idUser), secret: String(secret) } };
}

/** Lists the files of a folder that are data, not work files. */
const listData = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(
    (name) =>
      statSync(path.join(folder, name)).isFile() &&
      !name.endsWith('.lock') &&
      !/^(cache|run|spool|refusals|lake\/catalogue\/packs)\//.test(name),
  );

/** The query until today: it may be another day in the second half of the test. */
const query = (): string => exportQuery('eventId,eventName,customUserId');

test('A service whose lake, reports and state are in a bucket needs its data folder for nothing', async () => {
  const { s3, settings: bucket } = await startTestBucket();
  const settings = {
    ...bucket,
    TRIBUTARY_NATS_URL: await startTestBroker(),
    TRIBUTARY_SEAL_AGE_MS: '2000',
    TRIBUTARY_QUOTA_USER: 'off',
  };
  const dataDir = path.join(testFolder(), 'data');
  const { service, token, user } = await startOnBucket({ dataDir, settings });
  const client = createExportClient(service, user);
  const load = {
    s2s: () => service.s2s,
    idApp: 1,
    token,
    random: createRandom(7),
    clients: 4,
    batchShare: 0.8,
    idempotencyKeys: true,
  };
  const ledger = createLedger('first');
  await sendLoad(ledger, 400, load);
  await waitUntilWorkedOff(service);
  const id = (await client.create(query())) ?? '';
  const rows = await client.download(await client.waitForEnd(id));
  expect(rows).toHaveLength(401);
  await waitFor('the rows are sealed', async () => {
    const { lake } = (await service.status()) as { lake?: { youngFiles?: number } };
    return lake?.youngFiles === 0;
  });
  expect(listData(dataDir)).toEqual([]);

  const { status } = await fetch(`${service.s2s}/v1/login/?idApp=1`, {
    method: 'POST',
    headers: { authorization: token },
    body: JSON.stringify({ customUserId: 'forgotten' }),
  });
  expect(status).toBe(200);
  await waitUntilWorkedOff(service);
  expect(await service.command('erase', '--user', 'forgotten', '--yes', '--skip-retention')).toMatchObject({ rows: 1 });

  await service.killAll();
  rmSync(dataDir, { recursive: true });
  await service.startAgain();
  expect(await client.download((await client.find(id)) ?? {})).toEqual(rows);
  await sendLoad(ledger, 100, load);
  await waitUntilWorkedOff(service);
  const again = (await client.create(query())) ?? '';
  expect(await client.download(await client.waitForEnd(again))).toHaveLength(501);
  expect((await service.status())['problems']).toEqual([]);
  await service.stop();
  const { results } = await balanceAccounts(dataDir, [ledger]);
  expect(results[0]?.acknowledged).toBe(500);
  expect([...s3.objects.keys()].filter((key) => key.endsWith('.tmp'))).toEqual([]);
}, 300_000);
