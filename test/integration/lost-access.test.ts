import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openAccessReader } from '../../src/access/store.ts';
import { startIngest } from '../../src/ingest/ingest.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { createExportArea, send } from '../helpers/export-area.ts';
import { testFolder } from '../helpers/folder.ts';
import { ask, startTestIngest, testApps } from '../helpers/ingest.ts';
import { writeLake } from '../helpers/lake-fixture.ts';
import { silentLogger } from '../helpers/nats.ts';
import { waitFor } from '../helpers/wait.ts';

describe('import without its access data', () => {
  it('Without its access data import responds 500 with Retry-After, never 403, until the data is restored', async () => {
    const folder = testFolder();
    const service = await startTestIngest(folder);
    onTestFinished(() => service.stop());
    const paths = { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') };
    renameSync(paths.access, `${paths.access}.away`);
    const access = await openAccessReader(paths, silentLogger);
    onTestFinished(() => access.close());
    const ingest = await startIngest(
      {
        access,
        publisher: openPublisher(service.connection),
        clock: createClock(0),
        metrics: createMetrics(),
        logger: silentLogger,
      },
      { host: '127.0.0.1', port: 0 },
    );
    onTestFinished(() => ingest.stop());
    const post = () =>
      ask(`http://127.0.0.1:${ingest.port}/v1/login/?idApp=${testApps.web}`, {
        method: 'POST',
        headers: { authorization: service.tokens.web },
        body: '{"customUserId":"u"}',
      });

    const refused = await post();
    expect([refused.status, refused.body, refused.headers.get('retry-after')]).toEqual([
      500,
      '{"error":"Internal Server Error"}',
      '1',
    ]);
    expect(await service.newLines()).toEqual([]);
    renameSync(`${paths.access}.away`, paths.access);
    await waitFor('events are accepted', async () => (await post()).status === 200);
  });

  it('If import loses its access data while running, it accepts known apps, and responds 500 instead of 403 to others', async () => {
    const folder = testFolder();
    const service = await startTestIngest(folder);
    onTestFinished(() => service.stop());
    const stranger = () =>
      service.post('web', 'login', { customUserId: 'u' }, { authorization: 'a token that is not known' });
    expect((await stranger()).status).toBe(403);
    rmSync(path.join(folder, 'access.json'));
    await waitFor('it is detected', async () => (await stranger()).status === 500);
    expect((await service.post('web', 'login', { customUserId: 'u' })).status).toBe(200);
  });
});

describe('the export area', () => {
  it.each(['access.json', 'keys/secrets.key'])(
    'The export area without %s responds 500 in its envelope, with Retry-After',
    async (name) => {
      const area = createExportArea(testFolder());
      await area.addApp({ idApp: 1, platform: 'web', idAccount: 1 });
      const user = await area.addUser({ idAccount: 1 });
      await writeLake(area.tableDir, []);
      renameSync(path.join(area.dataDir, name), path.join(area.dataDir, 'away'));
      const running = await area.start();
      onTestFinished(() => running.stop());
      const target = '/api/report/v1/file/list.json';
      const answer = await running.call(user, target);
      expect([answer.status, answer.json, answer.headers['retry-after']]).toEqual([
        500,
        { code: 500, message: 'Internal Server Error', data: null },
        '5',
      ]);
      renameSync(path.join(area.dataDir, 'away'), path.join(area.dataDir, name));
      await waitFor('users are authorized again', async () => (await running.call(user, target)).status === 200);
      expect((await send(running.port, target)).status).toBe(403);
    },
  );

  it.each(['gone', 'damaged'])(
    'The export area starts with keys of links that are %s: only links respond 500 until the keys are restored',
    async (fault) => {
      const area = createExportArea(testFolder());
      await area.addApp({ idApp: 1, platform: 'web', idAccount: 1 });
      const user = await area.addUser({ idAccount: 1 });
      await writeLake(area.tableDir, [
        [{ event_id: 'a', kind: 'login', id_app: 1, event_time: 1_746_100_000, available_at: 1_746_100_000 }],
      ]);
      const before = await area.start();
      const query = 'event=customEvents&selectors=eventId&dateFrom=2025-05-01&dateTo=2025-05-31';
      const id = await before.create(user, query);
      const { files: [file] = [] } = await before.waitForEnd(user, id);
      await before.stop();
      const [keys, manifests] = [path.join(area.keysDir, 'links.json'), path.join(area.keysDir, 'manifests.json')];
      const whole = [readFileSync(keys), readFileSync(manifests)] as const;
      if (fault === 'gone') rmSync(keys);
      else for (const damaged of [keys, manifests]) writeFileSync(damaged, readFileSync(damaged).fill('x', 20, 21));

      const running = await area.start();
      onTestFinished(() => running.stop());
      const problems = () => (running.stage.facts()['problems'] as { code: string }[]).map(({ code }) => code);
      expect(problems()).toEqual(
        fault === 'gone' ? ['link_keys_unreadable'] : ['link_keys_unreadable', 'manifest_key_unreadable'],
      );
      const { pathname, search } = new URL(file?.link ?? '');
      const statusOf = (target: string) => running.call(user, target).then(({ status }) => status);
      const linked = [`/api/report/v1/file/get.json?idReportFile=${id}`, `${pathname}${search}`];
      expect(await Promise.all(linked.map(statusOf))).toEqual([500, 500]);
      expect(await statusOf('/manifest-key.json')).toBe(fault === 'damaged' ? 500 : 200);
      expect(await statusOf('/api/report/v1/file/list.json')).toBe(200);
      expect(await running.create(user, query)).not.toBe(id);
      writeFileSync(keys, whole[0]);
      writeFileSync(manifests, whole[1]);
      await waitFor('the keys are read', () => problems().length === 0);
      expect(await Promise.all([...linked, '/manifest-key.json'].map(statusOf))).toEqual([200, 200, 200]);
    },
  );
});
