import { mkdirSync, writeFileSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { toPlace } from '../../src/composition/storage.ts';
import { acquireLock } from '../../src/runtime/files/lock.ts';
import { openS3Place } from '../../src/runtime/store/s3-folders.ts';
import { bucketSettings, shareCredentials } from '../helpers/bucket.ts';
import { createExportClient, exportQuery } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { isWhole, oneFileIn } from '../helpers/in-turn.ts';
import { startGateway, startMemoryServer, startMoto } from '../helpers/s3-servers.ts';
import { sendEvents, startWithUser, waitForRows } from '../helpers/service-access.ts';
import { runCommand, startTestService } from '../helpers/service.ts';

beforeEach(oneFileIn(3, 1));

type Settings = Readonly<Record<string, string>>;

const servers = [
  { name: 'a server in memory', startServer: startMemoryServer },
  { name: 'versitygw', startServer: () => startGateway(testFolder()) },
  { name: 'moto', startServer: startMoto },
];

it.each(isWhole ? servers : servers.slice(0, 1))(
  'A service is moved to a bucket on $name and back, with its events, exports and users, and the places that it left refuse to start',
  async ({ startServer }) => {
    const server = await startServer();
    if (server === undefined) return;
    onTestFinished(() => server.stop());
    const { TRIBUTARY_STORAGE_URL: _, ...s3 } = bucketSettings(server.settings.endpoint);
    shareCredentials(s3);
    const root = testFolder();
    const [dataDir, to, address] = [path.join(root, 'data'), path.join(root, 'new'), 's3://lake/games/one'];
    const { service, token, user } = await startWithUser({ dataDir, settings: { TRIBUTARY_QUOTA_USER: 'off' } });
    await sendEvents(service, token, ['ann', 'bob']);
    await waitForRows(service, 2);
    const client = createExportClient(service, user);
    const id = (await client.create(exportQuery('customUserId'))) ?? '';
    const rows = await client.download(await client.waitForEnd(id));
    mkdirSync(path.join(dataDir, 'datasets'), { recursive: true });
    const move = (target: string, settings: Settings) =>
      runCommand(['lake', 'move', '--to', target, '--data', dataDir], settings);
    await expect(move(address, s3)).rejects.toThrow(`the service (pid ${service.pid}) runs on ${dataDir}`);
    await expect(move(to, {})).rejects.toThrow('the data is in a folder already');

    // Killed, so that the stream has events that the lake lacks.
    await sendEvents(service, token, ['carl', 'dora']);
    await service.killAll();
    const staged = path.join(dataDir, 'lake', 'staging', `load-${randomUUID()}`);
    const load = acquireLock(staged, 'a load');
    await expect(move(address, s3)).rejects.toThrow('a load or another change of the lake is unfinished');
    load.release();
    expect(await move(address, { ...s3, TRIBUTARY_STORAGE_URL: address })).toMatchObject({
      from: dataDir,
      to: address,
      tables: 1,
      reports: 1,
    });
    const gone = `the data of ${dataDir} was moved to ${address}`;
    await expect(runCommand(['status', '--data', dataDir])).rejects.toThrow(gone);
    await expect(runCommand(['start', '--data', dataDir])).rejects.toThrow(gone);

    const inBucket = { ...s3, TRIBUTARY_STORAGE_URL: address };
    await service.startAgain(inBucket);
    expect(await waitForRows(service, 4)).toEqual([]);
    expect(await client.download((await client.find(id)) ?? {})).toEqual(rows);
    await sendEvents(service, token, ['eve']);
    await waitForRows(service, 5);
    await expect(move(to, inBucket)).rejects.toThrow(`the service (pid ${service.pid}) runs on ${dataDir}`);
    const other = path.join(root, 'other');
    const fromOther = runCommand(['lake', 'move', '--to', to, '--data', other], inBucket);
    await expect(fromOther).rejects.toThrow(/the service of the host \S+ \(\w+\) uses s3/);
    await expect(move('s3://lake/games/one/lake/b', inBucket)).rejects.toThrow('overlap');
    const copy = runCommand(['backup', path.join(root, 'backup'), '--data', dataDir], inBucket);
    await expect(copy).rejects.toThrow(`a backup has the data of a folder, and the settings name ${address}`);
    await service.stop();

    writeFileSync(path.join(root, 'file'), '');
    await expect(move(path.join(dataDir, 'below'), inBucket)).rejects.toThrow('overlap');
    await expect(move(path.join(root, 'file'), inBucket)).rejects.toThrow('cannot use the data folder');
    expect(await move(to, inBucket)).toMatchObject({ from: address, to, tables: 1, reports: 1 });
    await expect(runCommand(['status', '--data', dataDir], inBucket)).rejects.toThrow(`was moved to ${to}`);
    const restarted = await startTestService({ dataDir: to, settings: { TRIBUTARY_QUOTA_USER: 'off' } });
    onTestFinished(() => restarted.destroy());
    expect(await waitForRows(restarted, 5)).toEqual([]);
    const later = createExportClient(restarted, user);
    expect(await later.download((await later.find(id)) ?? {})).toEqual(rows);
    await sendEvents(restarted, token, ['fred']);
    await waitForRows(restarted, 6);
    expect(await restarted.command('lake', 'check')).toMatchObject({ ok: true });

    const unfinished = 's3://lake/games/two';
    const place = await openS3Place(server.settings, toPlace(unfinished), root);
    const mark = { format: 1, restoring: true, movedFrom: '/elsewhere', move: '1' };
    await place.open('state').replace('format.json', Buffer.from(JSON.stringify(mark)), 'any');
    place.close();
    const onIt = { ...s3, TRIBUTARY_STORAGE_URL: unfinished };
    const scratch = path.join(root, 'scratch');
    const refused = `the move of /elsewhere to ${unfinished}/state is unfinished`;
    await expect(runCommand(['start', '--data', scratch], onIt)).rejects.toThrow(refused);
  },
  600_000,
);
