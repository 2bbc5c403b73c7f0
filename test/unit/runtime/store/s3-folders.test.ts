import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import {
  connectionOfChild,
  findLeases,
  foldersOfFiles,
  localFiles,
  openStore,
} from '../../../../src/runtime/store/open-store.ts';
import { connectS3Folders } from '../../../../src/runtime/store/s3-folders.ts';
import { assertStoredFormat, raiseStoredFormat } from '../../../../src/runtime/store/stored-format.ts';
import { startFakeS3 } from '../../../helpers/fake-s3.ts';
import { testFolder } from '../../../helpers/folder.ts';

/** Connects the state and the lake of a data folder to a bucket; its reports stay in the folder. */
async function connect() {
  const s3 = await startFakeS3();
  vi.stubEnv('AWS_ACCESS_KEY_ID', 'tester');
  vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'tester-secret');
  onTestFinished(() => void vi.unstubAllEnvs());
  const dataDir = path.join(testFolder(), 'data');
  const [lake, reports] = [path.join(dataDir, 'lake'), path.join(dataDir, 'reports')];
  const folders = await connectS3Folders({
    dataDir,
    places: {
      [dataDir]: { bucket: 'lake', prefix: 'state' },
      [lake]: { bucket: 'lake', prefix: 'a/lake' },
      [reports]: null,
    },
    cacheMaxBytes: 1_000_000,
    leaseMs: 15_000,
    endpoint: s3.endpoint,
    pathStyle: true,
    region: 'us-east-1',
  });
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => (closing ??= folders.close());
  onTestFinished(close);
  return { s3, dataDir, lake, reports, folders, close };
}

const bytesOf = (text: string): Uint8Array => Buffer.from(text);

test('The objects below a folder are in its bucket, those of an exempt folder and of others in files', async () => {
  const { s3, dataDir, lake, reports } = await connect();
  await openStore(dataDir).create('access.json', bytesOf('access'));
  await openStore(path.join(dataDir, 'keys')).create('links.json', bytesOf('keys'));
  await openStore(path.join(lake, 'events', '_delta_log')).create('0.json', bytesOf('log'));
  await openStore(path.join(reports, '1')).create('job.json', bytesOf('job'));
  const other = `${dataDir}-other`;
  await openStore(other).create('access.json', bytesOf('other'));
  expect([...s3.objects.keys()].toSorted()).toEqual([
    'a/lake/events/_delta_log/0.json',
    'state/access.json',
    'state/keys/links.json',
  ]);
  expect(readFileSync(path.join(reports, '1', 'job.json'), 'utf8')).toBe('job');
  expect(readFileSync(path.join(other, 'access.json'), 'utf8')).toBe('other');
  expect(existsSync(path.join(dataDir, 'access.json'))).toBe(false);
  expect([lake, dataDir, reports, other].map((folder) => findLeases(folder) !== undefined)).toEqual([
    true,
    true,
    false,
    false,
  ]);
});

test('SQL gets verified copies of objects, and copies of removed objects are dropped', async () => {
  const { s3, lake, folders } = await connect();
  const store = openStore(path.join(lake, 'events', '_young'));
  const files = await Promise.all(
    ['x', 'y'].map(async (name) => {
      await store.create(`${name}.parquet`, bytesOf(name));
      const sha256 = createHash('sha256').update(name).digest('hex');
      return { absolutePath: path.join(lake, 'events', '_young', `${name}.parquet`), sizeBytes: 1, sha256 };
    }),
  );
  const read = () =>
    localFiles.use(files, async (paths) => {
      expect(paths.every((file) => foldersOfFiles(lake).some((folder) => file.startsWith(folder)))).toBe(true);
      return paths.map((file) => readFileSync(file, 'utf8'));
    });
  expect(await read()).toEqual(['x', 'y']);
  const asked = s3.asked.length;
  expect(await read()).toEqual(['x', 'y']);
  expect(s3.asked).toHaveLength(asked);
  expect(await folders.dropStaleCopies()).toBe(0);
  await store.remove(['x.parquet']);
  expect(await folders.dropStaleCopies()).toBe(1);
  await expect(read()).rejects.toMatchObject({ code: 'file_damaged' });
});

test('Files of a folder without a bucket are used where they are', async () => {
  const { reports } = await connect();
  mkdirSync(reports, { recursive: true });
  const file = path.join(reports, 'list.parquet');
  writeFileSync(file, 'list');
  expect(await localFiles.use([{ absolutePath: file }], async (paths) => paths)).toEqual([file]);
  expect(foldersOfFiles(reports)).toEqual([reports]);
});

test('The state of a newer program is rejected, and a new one gets the format of this program', async () => {
  const { s3, dataDir } = await connect();
  expect(await assertStoredFormat(dataDir)).toBe(0);
  await raiseStoredFormat(dataDir);
  expect([...s3.objects.keys()]).toEqual(['state/format.json']);
  await openStore(dataDir).replace('format.json', bytesOf('{"format":99,"program":"9.0.0"}'), 'any');
  await expect(raiseStoredFormat(dataDir)).rejects.toMatchObject({ code: 'data_format' });
});

test.each([
  [
    '{"format":1,"restoring":true,"movedFrom":"/data","move":"1"}',
    'the move of /data to s3://lake/state is unfinished',
  ],
  ['{"format":2,"movedTo":"/data"}', 'the data of s3://lake/state was moved to /data'],
])('The state %s is rejected', async (text, message) => {
  const { dataDir } = await connect();
  await openStore(dataDir).replace('format.json', bytesOf(text), 'any');
  await expect(assertStoredFormat(dataDir)).rejects.toMatchObject({ code: 'data_format', message });
});

test('A child process gets the options and the credentials, and nothing once the folders are closed', async () => {
  const { dataDir, close } = await connect();
  const { options = '', environment } = connectionOfChild();
  expect(JSON.parse(options)).toMatchObject({ dataDir });
  expect(environment).toMatchObject({ AWS_ACCESS_KEY_ID: 'tester', AWS_SECRET_ACCESS_KEY: 'tester-secret' });
  expect(Object.keys(environment).every((name) => name === 'HOME' || name.startsWith('AWS_'))).toBe(true);
  await close();
  expect(connectionOfChild()).toEqual({ environment: {} });
  expect(openStore(dataDir).isShared).toBe(false);
});
