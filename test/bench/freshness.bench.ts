import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { openLakeReader, type LakeReader } from '../../src/demo/demo-report.ts';
import { parseConfig } from '../../src/config.ts';
import { basic, send, targetOf, type AnswerData } from '../helpers/export-area.ts';
import { testFolder } from '../helpers/folder.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';
import { median, reportBench } from './bench-report.ts';
import { inQuick } from './bench-size.ts';

/*
 * Time until an event can be read, from the 200 of its import. The first end is the first read of snapshot.sql that
 * returns it. The second is a finished export with it, created at the 200. One event at a time on an idle service, each
 * after a random part of the flush age: most of the time is the wait for the next flush.
 */
const events = inQuick(3, 11);
const longestMs = 600_000;

interface Freshness {
  /** Milliseconds from the 200 to the first read of snapshot.sql that returns the event. */
  readonly visibleMs: number;
  /** Milliseconds from the 200 to the success of an export with the event. */
  readonly exportedMs: number;
}

interface Analyst {
  call(target: string): Promise<AnswerData>;
  download(link: string): Promise<string>;
}

async function addAnalyst(service: TestService): Promise<Analyst> {
  const { idUser, secret } = await service.command('user', 'add', 'ann', '--account', '1');
  const headers = { authorization: basic({ idUser: String(idUser), secret: String(secret) }) };
  const port = Number(new URL(service.api).port);
  return {
    async call(target) {
      const answer = await send(port, target, { headers });
      expect(answer.status, answer.body.toString()).toBe(200);
      return answer.json?.data ?? {};
    },
    download: async (link) => (await send(port, targetOf(link))).body.toString(),
  };
}

/** Exports the event's day and waits for the file. */
async function exportEvent(analyst: Analyst, customUserId: string): Promise<void> {
  const today = new Date().toISOString().slice(0, 10);
  const { idRawExport } = await analyst.call(
    `/api/raw/v1/export/create.json?event=customEvents&selectors=customUserId&dateFrom=2024-01-01&dateTo=${today}&timezone=UTC`,
  );
  let report: AnswerData = {};
  await waitFor(
    'the export ends',
    async () =>
      (report = await analyst.call(`/api/report/v1/file/get.json?idReportFile=${idRawExport}`)).status !==
      'In progress',
  );
  expect(report.status).toBe('Success!');
  expect((await analyst.download(report.files?.[0]?.link ?? '')).split('\n')).toContain(customUserId);
}

async function measureEvent(
  service: TestService,
  token: string,
  lake: LakeReader,
  analyst: Analyst,
  customUserId: string,
): Promise<Freshness> {
  const body = JSON.stringify({ customUserId, customEventName: 'fresh' });
  const answer = await fetch(`${service.s2s}/v1/customEvent/?idApp=1`, {
    method: 'POST',
    headers: { authorization: token },
    body,
  });
  const storedAt = performance.now();
  expect(answer.status).toBe(200);
  await waitFor(
    'the event is visible',
    async () => (await lake.query(`SELECT 1 FROM custom_event WHERE custom_user_id = '${customUserId}'`)).length === 1,
  );
  const visibleMs = performance.now() - storedAt;
  await exportEvent(analyst, customUserId);
  return { visibleMs, exportedMs: performance.now() - storedAt };
}

/** Runs a separate service with a flush age and measures one event after the other. */
async function measureService(flushAgeMs: number): Promise<Freshness[]> {
  const settings = {
    TRIBUTARY_FLUSH_AGE_MS: String(flushAgeMs),
    TRIBUTARY_INGEST_WORKERS: '1',
    TRIBUTARY_QUOTA_USER: 'off',
    TRIBUTARY_QUOTA_IP: 'off',
  };
  const service = await startTestService({ dataDir: path.join(testFolder(), 'data'), settings });
  try {
    const token = String((await service.command('app', 'add', '1', '--platform', 'web'))['token']);
    const analyst = await addAnalyst(service);
    await waitFor('the app and the user are known', async () => {
      const app = await fetch(`${service.s2s}/v1/test-app-access/?idApp=1`, {
        method: 'POST',
        headers: { authorization: token },
        body: 'true',
      });
      return (
        app.ok &&
        (await analyst.call('/api/report/v1/file/list.json').then(
          () => true,
          () => false,
        ))
      );
    });
    const lake = await openLakeReader(service.dataDir);
    const random = createRandom(1);
    const figures: Freshness[] = [];
    for (let index = 0; index < events; index += 1) {
      // not a wait for a condition: an event may arrive at any time of the flush age
      await sleep(random.next() * flushAgeMs);
      figures.push(await measureEvent(service, token, lake, analyst, `user-${index}`));
    }
    lake.close();
    await service.stop();
    return figures;
  } finally {
    await service.destroy();
  }
}

describe('benchmark: freshness', () => {
  it(
    'An event can be read from the lake soon after its 200',
    async () => {
      const figures: { flushAgeMs: number; runs: Freshness[] }[] = [];
      for (const flushAgeMs of [parseConfig({}).flushAgeMs, 500])
        figures.push({ flushAgeMs, runs: await measureService(flushAgeMs) });
      const rows = figures.map(({ flushAgeMs, runs }) => {
        expect(runs).toHaveLength(events);
        const spread = (pick: (run: Freshness) => number): string[] => {
          const all = runs.map(pick);
          return [Math.min(...all), median(all), Math.max(...all)].map((ms) => (ms / 1000).toFixed(2));
        };
        return [String(flushAgeMs), ...spread((run) => run.visibleMs), ...spread((run) => run.exportedMs)];
      });
      const head = [
        'flush age ms',
        '200 to visible, s: least',
        'median',
        'most',
        '200 to export done, s: least',
        'median',
        'most',
      ];
      reportBench('freshness', head, rows, figures);
    },
    longestMs,
  );
});
