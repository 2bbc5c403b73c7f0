import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ExportOptions } from '../../../src/export/export.ts';
import { runInWorker } from '../../../src/export/jobs/worker-process.ts';
import { createExportArea, type Credentials, type ExportArea, type RunningArea } from '../../helpers/export-area.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';
import { waitFor } from '../../helpers/wait.ts';
import { runHere } from '../../helpers/worker-here.ts';

beforeEach(oneTestIn(3));

const create = '/api/raw/v1/export/create.json';
const query = 'event=customEvents&selectors=eventId,eventName&dateFrom=2025-05-01&dateTo=2025-05-31';
const start = Date.parse('2025-05-02T00:00:00Z') / 1000;

const events: FixtureEvent[] = Array.from({ length: 1000 }, (_, index) => ({
  event_id: `e${index}`,
  kind: 'custom_event',
  id_app: 7,
  event_time: start + index,
  available_at: start + index + 1,
  custom_event_name: `name ${index % 7}`,
}));

describe('export requests', () => {
  let area: ExportArea;
  let user: Credentials;
  let running: RunningArea | undefined;

  beforeEach(async () => {
    area = createExportArea(testFolder());
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
    user = await area.addUser({});
  });
  afterEach(async () => {
    await running?.stop();
    running = undefined;
  });

  /** Starts with some events; attempts run in this process, or in their own as in the service. */
  async function begin(options: Partial<ExportOptions> = {}, runAttempt = runHere): Promise<RunningArea> {
    await writeLake(area.tableDir, [events]);
    running = await area.start({ runAttempt, ...options });
    return running;
  }

  it('The limit of export requests of an account holds for concurrent creates, and the refusal names the existing requests', async () => {
    const stage = await begin({ maxExports: 3 });
    const answers = await Promise.all(
      Array.from({ length: 12 }, () => stage.call(user, create, { method: 'POST', body: query })),
    );
    const accepted = answers
      .filter((answer) => answer.status === 200)
      .map((answer) => ({ idRawExport: answer.json?.data?.idRawExport ?? '' }))
      .toSorted((a, b) => Number(a.idRawExport) - Number(b.idRawExport));
    expect(accepted).toHaveLength(3);
    for (const refused of answers.filter((answer) => answer.status !== 200)) {
      expect(refused.json).toMatchObject({
        code: 400,
        message: 'Bad Request',
        data: {
          error: { detail: 'The maximum number of simultaneous requests is reached: 3. Wait for room in the queue.' },
        },
      });
      expect(refused.json?.data?.error?.info?.exports).toEqual(accepted);
    }
    for (const { idRawExport } of accepted) await stage.waitForEnd(user, idRawExport);
    expect((await stage.call(user, create, { method: 'POST', body: query })).status).toBe(200);
  });

  it('An export request that cannot be written to disk is refused with Retry-After, and is created once the disk recovers', async () => {
    const stage = await begin();
    const away = `${area.reportsDir}.away`;
    renameSync(area.reportsDir, away);
    writeFileSync(area.reportsDir, '');
    const refused = await stage.call(user, create, { method: 'POST', body: query });
    expect([refused.status, refused.json, Number(refused.headers['retry-after']) > 0]).toEqual([
      500,
      { code: 500, message: 'Internal Server Error', data: null },
      true,
    ]);
    rmSync(area.reportsDir);
    renameSync(away, area.reportsDir);
    expect((await stage.call(user, create, { method: 'POST', body: query })).status).toBe(200);
  });

  it('The number of export requests of a user is capped within the limit of the account', async () => {
    const capped = await area.addUser({ name: 'capped', maxExports: 1 });
    const stage = await begin();
    const answers = await Promise.all(
      [capped, capped, user].map((who) => stage.call(who, create, { method: 'POST', body: query })),
    );
    // Either of the two concurrent requests may be first.
    const ofCapped = answers.slice(0, 2).toSorted((a, b) => a.status - b.status);
    expect([...ofCapped, answers[2]].map((answer) => answer?.status)).toEqual([200, 400, 200]);
    expect(ofCapped[1]?.json?.data?.error?.detail).toBe(
      'The maximum number of simultaneous requests is reached: 1. Wait for room in the queue.',
    );
  });

  it('A user without the permission cannot create an export request', async () => {
    const reader = await area.addUser({ name: 'reader', canExport: false });
    const stage = await begin();
    const answer = await stage.call(reader, create, { method: 'POST', body: query });
    expect(answer.json).toEqual({
      code: 400,
      message: 'Bad Request',
      data: { error: { detail: 'The account lacks export permissions' } },
    });
  });

  it('A running export request has progress that never decreases, and the same end at every poll', async () => {
    const stage = await begin({}, runInWorker);
    const id = await stage.create(user, query);
    const seen: number[] = [];
    await waitFor('the export ends', async () => {
      const { data } = (await stage.call(user, `/api/report/v1/file/get.json?idReportFile=${id}`)).json ?? {};
      if (data?.status === 'In progress') seen.push(Number(/^(\d{1,2})%$/.exec(data.progress ?? '')?.[1]));
      return data?.status === 'Success!';
    });
    expect(seen.toSorted((a, b) => a - b)).toEqual(seen);
    const polls = await Promise.all([1, 2].map(() => stage.waitForEnd(user, id)));
    expect(polls[0]).toEqual(polls[1]);
    expect(polls[0]).toMatchObject({
      idReportFile: id,
      files: [
        {
          rows: 1000,
          sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as unknown,
          timestampExpires: expect.stringMatching(/^\d{10}$/) as unknown,
        },
      ],
    });
  });

  it('An export request with too many lines ends as a user error on the raw endpoint and as an error in the report area', async () => {
    const stage = await begin({ exportMaxRows: 999 });
    const id = await stage.create(user, query);
    expect(await stage.waitForEnd(user, id)).toEqual({ idReportFile: id, status: 'Error occurred' });
    const raw = await stage.call(user, `/api/raw/v1/export/get.json?idRawExport=${id}`);
    expect(raw.json?.data).toEqual({
      idRawExport: id,
      idReportFile: id,
      status: 'User error occurred',
      errorMessage: 'Too many lines in export',
    });
    expect(await stage.export(user, `${query}&tsFrom=${start}&tsTo=${start + 998}`)).toHaveLength(1);
  });

  it('An export request with too many bytes ends as a user error too', async () => {
    const stage = await begin({ exportMaxBytes: 1000 });
    const id = await stage.create(user, query);
    await stage.waitForEnd(user, id);
    const raw = await stage.call(user, `/api/raw/v1/export/get.json?idRawExport=${id}`);
    expect(raw.json?.data?.errorMessage).toBe('Too many bytes in export');
  });

  it('An export request can be canceled while it waits or runs, once', async () => {
    const stage = await begin({ exportWorkers: 1 });
    const ids = [await stage.create(user, query), await stage.create(user, query), await stage.create(user, query)];
    const last = ids[2] ?? '';
    const waiting = await stage.call(user, `/api/raw/v1/export/get.json?idRawExport=${last}`);
    expect(waiting.json?.data).toMatchObject({ idRawExport: last, status: 'In progress', isCancellable: true });
    const canceled = await stage.call(user, `/api/raw/v1/export/cancel.json?idRawExport=${last}`);
    expect(canceled.json).toEqual({ code: 200, message: 'Ok', data: { idRawExport: last, info: 'Canceled' } });
    const again = await stage.call(user, `/api/raw/v1/export/cancel.json?idRawExport=${last}`);
    expect(again.json).toEqual({
      code: 400,
      message: 'Bad Request',
      data: { error: { detail: `Raw export request ${last} is already completed` } },
    });
    expect((await stage.call(user, `/api/raw/v1/export/get.json?idRawExport=${last}`)).json?.data).toEqual({
      idRawExport: last,
      idReportFile: last,
      status: 'Canceled by user',
    });
    expect((await stage.call(user, `/api/report/v1/file/get.json?idReportFile=${last}`)).json?.data).toEqual({
      idReportFile: last,
      status: 'Error occurred',
    });
    await stage.waitForEnd(user, ids[0] ?? '');
    expect((await stage.call(user, `/api/raw/v1/export/cancel.json?idRawExport=${ids[0]}`)).status).toBe(400);
    expect((await stage.call(user, '/api/raw/v1/export/cancel.json?idRawExport=999')).json?.data?.error?.detail).toBe(
      'Raw export request not found',
    );
    expect(readdirSync(path.join(area.reportsDir, last)).filter((name) => name !== 'job.json')).toEqual([]);
  });

  it('An export request whose attempts fail is retried a bounded number of times and then fails, while others continue', async () => {
    await writeLake(area.tableDir, [events]);
    const file = path.join(area.tableDir, '_young', '000000.parquet');
    writeFileSync(file, 'not a Parquet file');
    running = await area.start({ exportTimeoutMs: 30_000 });
    const [bad, empty] = [
      await running.create(user, query),
      await running.create(user, query.replace('customEvents', 'hits')),
    ];
    expect(await running.waitForEnd(user, empty)).toMatchObject({ status: 'Success!' });
    expect(await running.waitForEnd(user, bad)).toEqual({ idReportFile: bad, status: 'Error occurred' });
    expect(
      readdirSync(path.join(area.reportsDir, bad)).filter((name) => name.startsWith('attempt') || name === 'parts'),
    ).toEqual([]);
  }, 120_000);

  it('An export request reads the next snapshot when an erasure removed a file of its snapshot', async () => {
    await writeLake(area.tableDir, [events.slice(0, 600), events.slice(600)]);
    rmSync(path.join(area.tableDir, '_young', '000000.parquet'));
    running = await area.start();
    const stage = running;
    const id = await stage.create(user, query);
    const attempts = (): number =>
      (JSON.parse(readFileSync(path.join(area.reportsDir, id, 'job.json'), 'utf8')) as { attempts: number }).attempts;
    await waitFor('an attempt has failed because of the missing file', () => attempts() > 1);
    const commit = [
      { remove: { path: '_young/000000.parquet', deletionTimestamp: Date.now(), dataChange: true } },
      { commitInfo: { operation: 'DELETE' } },
    ];
    writeFileSync(
      path.join(area.tableDir, '_delta_log', `${'1'.padStart(20, '0')}.json`),
      commit.map((action) => `${JSON.stringify(action)}\n`).join(''),
    );
    expect(await stage.waitForEnd(user, id)).toMatchObject({ status: 'Success!', files: [{ rows: 400 }] });
  });

  it('An export request that takes too long fails', async () => {
    const stage = await begin({ exportTimeoutMs: 1 }, runInWorker);
    const id = await stage.create(user, query);
    expect((await stage.waitForEnd(user, id)).status).toBe('Error occurred');
  });

  it('An export request reads an empty lake, and a lake that does not exist yet', async () => {
    running = await area.start();
    expect(await running.export(user, query)).toEqual(['eventId,eventName\n']);
    await writeLake(area.tableDir, []);
    expect(await running.export(user, query)).toEqual(['eventId,eventName\n']);
    rmSync(area.tableDir, { recursive: true });
  });

  it('A waiting export request survives a stop of the service and finishes afterwards, without a counted attempt', async () => {
    const stage = await begin({ exportWorkers: 1 }, runInWorker);
    const ids = [await stage.create(user, query), await stage.create(user, query)];
    await stage.stop();
    running = await area.start();
    for (const id of ids)
      expect(await running.waitForEnd(user, id)).toMatchObject({ status: 'Success!', files: [{ rows: 1000 }] });
  });

  it('The export requests of a folder belong to one process, and a second one is refused', async () => {
    await begin();
    await expect(area.start({ lockWaitMs: 200 })).rejects.toMatchObject({ code: 'locked' });
  });

  it('The export requests of a user are listed newest first, with state, size and end', async () => {
    const colleague = await area.addUser({ name: 'colleague' });
    const stage = await begin();
    const first = await stage.create(user, query);
    await stage.waitForEnd(user, first);
    await stage.create(colleague, query);
    const second = await stage.create(user, query);
    await stage.waitForEnd(user, second);
    const list = (await stage.call(user, '/api/report/v1/file/list.json')).json?.data?.reports ?? [];
    expect(list.map((report) => report['idReportFile'])).toEqual([second, first]);
    expect(list[1]).toMatchObject({
      idRawExport: first,
      event: 'customEvents',
      status: 'Success!',
      files: 1,
      rows: 1000,
      timestampExpires: expect.stringMatching(/^\d{10}$/) as unknown,
    });
  });

  it('An export request with 998 event names of 255 characters and one more is read', async () => {
    const stage = await begin();
    const names = Array.from(
      { length: 998 },
      (_, index) => `eventName[]=${encodeURIComponent(String(index).padStart(255, '日'))}`,
    ).join('&');
    const [csv] = await stage.export(user, `${query}&${names}&eventName[]=name+3`);
    expect(
      csv
        ?.split('\n')
        .slice(1, -1)
        .map((line) => line.split(',')[1]),
    ).toEqual(Array.from({ length: 143 }, () => 'name 3'));
  });

  it('An export request with a head of 60 KiB is read', async () => {
    const stage = await begin();
    const campaigns = Array.from(
      { length: 999 },
      (_, index) => `idCampaign%5B%5D=${1_000_000_000_000_000 + index}`,
    ).join('&');
    const names = 'x'.repeat(15_000);
    const answer = await stage.call(user, `${create}?${query}&${campaigns}`, {
      method: 'GET',
      headers: { 'x-padding': names },
    });
    expect([answer.status, answer.json?.message]).toEqual([200, 'Ok']);
  });
});
