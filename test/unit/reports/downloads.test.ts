import { generateKeyPairSync, createHash } from 'node:crypto';
import { once } from 'node:events';
import { utimesSync, writeFileSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { createServer, get, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import path from 'node:path';
import Fastify from 'fastify';
import { expect, it, onTestFinished, vi } from 'vitest';
import { addDownloadRoutes } from '../../../src/reports/download-routes.ts';
import { archiveName, fileStem } from '../../../src/reports/reports.ts';
import { createOpenDownloads, signLink, openSigningKeys } from '../../../src/reports/signed-links.ts';
import { openReportStore } from '../../../src/reports/store.ts';
import { createVerifiedFiles, isVerificationError } from '../../../src/reports/verified-files.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { openStore } from '../../../src/runtime/store/open-store.ts';
import { testFolder } from '../../helpers/folder.ts';

const clock = createClock(0);
const logger = createLogger('silent');
const holder = { idUser: '1', secretFingerprint: 'm' };

it('A connection may be idle while a file is read for its checksum, at any duration, and not afterwards', async () => {
  const folder = testFolder();
  const store = await openReportStore(clock, logger, {
    reportsDir: path.join(folder, 'reports'),
    linkTtlSeconds: 3600,
  });
  const created = await store.create({ idUser: '1', idAccount: 1, event: 'customEvents', request: {} });
  const { folder: attempt } = await store.beginAttempt(created.id);
  const name = `${fileStem(created)}.csv`;
  writeFileSync(path.join(attempt, name), 'text');
  const { job } = await store.end(
    created.id,
    {
      state: 'success',
      files: [{ name, rows: 1, bytes: 4, sha256: createHash('sha256').update('text').digest('hex') }],
    },
    attempt,
  );
  const keys = await openSigningKeys(path.join(folder, 'keys'), clock, logger, false);
  onTestFinished(() => keys.close());

  const app = Fastify({ connectionTimeout: 60_000 });
  onTestFinished(() => app.close());
  const sockets: Socket[] = [];
  app.server.on('connection', (socket) => sockets.push(socket));
  const during: unknown[] = [];
  const note = (): void => void during.push(sockets.at(-1)?.timeout);
  const verified = createVerifiedFiles(store.objects, logger);
  const files = {
    ...verified,
    open: (...given: Parameters<typeof verified.open>) => (note(), verified.open(...given)),
    findFault: (...given: Parameters<typeof verified.findFault>) => (note(), verified.findFault(...given)),
  };
  const holders = { findSecretFingerprint: () => 'm', mayLackUsers: () => false, onChange: () => () => undefined };
  const after: unknown[] = [];
  const { privateKey } = generateKeyPairSync('ed25519');
  const manifestKey = { current: () => privateKey, problems: () => [], close: () => undefined };
  addDownloadRoutes(app, { store, keys, holders, clock, logger, files, manifestKey, presign: undefined });
  await app.listen({ host: '127.0.0.1', port: 0 });
  for (const wanted of [name, archiveName(job)]) {
    const link = signLink(keys, { id: job.id, name: wanted, expiresSeconds: job.expiresSeconds ?? 0, holder });
    const [response] = (await once(
      get({ host: '127.0.0.1', port: (app.server.address() as AddressInfo).port, path: link, agent: false }),
      'response',
    )) as [IncomingMessage];
    response.resume();
    await once(response, 'end');
    expect(response.statusCode).toBe(200);
    after.push(sockets.at(-1)?.timeout);
  }
  expect(during).toEqual([0, 0, 0]);
  expect(after).toEqual([60_000, 60_000]);
});

it('A download whose client disconnects before it begins is dropped', async () => {
  const downloads = createOpenDownloads();
  const gone = new Promise<ServerResponse>((resolve) => {
    const server = createServer((_request, response) => {
      response.once('close', () => resolve(response));
      client.resetAndDestroy();
    });
    onTestFinished(() => void server.close());
    let client: Socket;
    server.listen(0, '127.0.0.1', () => {
      client = connect((server.address() as AddressInfo).port, '127.0.0.1', () =>
        client.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'),
      );
      client.on('error', () => undefined);
    });
  });
  downloads.add(holder, await gone);
  const kept: unknown[] = [];
  downloads.endWhere((of) => kept.push(of) === 0);
  expect(kept).toEqual([]);
});

const fileOf = (id: number) => ({
  job: { id },
  file: { name: 'a.csv', rows: 1, bytes: 1, sha256: '0'.repeat(64) },
});

it('The newest faults of report files are kept up to a bound', async () => {
  const files = createVerifiedFiles(openStore(testFolder()), logger);
  await files.open(fileOf(1));
  await Promise.all(Array.from({ length: 1000 }, (_, n) => files.open(fileOf(2 + n))));
  expect(files.faults()).toHaveLength(1000);
  expect(files.faults().map(({ idReport }) => idReport)).not.toContain(1);
});

it('A file that many clients download at once is hashed once, and again only after a change', async () => {
  const objects = openStore(testFolder());
  const text = 'x'.repeat(2_500_000);
  await objects.replace('1/parts/a.csv', Buffer.from(text), 'any');
  const file = objects.nameOf('1/parts/a.csv');
  const published = {
    job: { id: 1 },
    file: { name: 'a.csv', rows: 1, bytes: text.length, sha256: createHash('sha256').update(text).digest('hex') },
  };
  const any = await open(file);
  const reads = vi.spyOn(Object.getPrototypeOf(any) as FileHandle, 'read');
  onTestFinished(() => reads.mockRestore());
  await any.close();
  const files = createVerifiedFiles(objects, logger);
  async function ask(clients: number): Promise<void> {
    const opened = await Promise.all(Array.from({ length: clients }, () => files.open(published)));
    for (const handle of opened) if (!isVerificationError(handle)) await handle.close();
    expect(opened.filter(isVerificationError)).toEqual([]);
  }
  await ask(50);
  // Three blocks, and the end.
  expect(reads).toHaveBeenCalledTimes(4);
  await ask(1);
  expect(reads).toHaveBeenCalledTimes(4);
  utimesSync(file, 1, 1);
  await ask(2);
  expect(reads).toHaveBeenCalledTimes(8);
});
