import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { findDebianPrograms } from '../helpers/debian-program.ts';
import { createExportClient, exportQuery } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { inWholeRun } from '../helpers/in-turn.ts';
import { monitoringFolder, readAlerts, readBoardQueries } from '../helpers/monitoring.ts';
import { startPrometheus, type Prometheus } from '../helpers/prometheus.ts';
import { startWithUser, type ServiceWithUser } from '../helpers/service-access.ts';
import { waitFor } from '../helpers/wait.ts';

async function post({ service, token }: ServiceWithUser, by = token): Promise<number> {
  const body = JSON.stringify({ customUserId: 'u-1', customEventName: 'level_up' });
  const answer = await fetch(`${service.s2s}/v1/customEvent/?idApp=1`, {
    method: 'POST',
    headers: { authorization: by },
    body,
  });
  return answer.status;
}

/** Returns the values of a scrape by name with labels. */
async function scrape({ service }: ServiceWithUser): Promise<ReadonlyMap<string, string>> {
  const text = await (await fetch(`${service.ops}/metrics`)).text();
  return new Map([...text.matchAll(/^tributary_(\S+) (\S+)$/gm)].map(([, name = '', value = '']) => [name, value]));
}

/** Exports the events of today, so that each metric has a value. */
async function orderExport(place: ServiceWithUser): Promise<void> {
  await createExportClient(place.service, place.user).create(exportQuery('customUserId'));
  await waitFor('the export has ended', async () => {
    const shown = await scrape(place);
    return shown.get('export_requests_total{state="success"}') === '1';
  });
}

/** Returns the parts of a query that have data without a problem: both sides of a comparison, except numbers. */
function operandsOf(rule: string): readonly string[] {
  return rule.split(/ (?:<|>|==) /).filter((side) => Number.isNaN(Number(side)));
}

/** Returns the queries without data. */
async function findUnanswered(prometheus: Prometheus, queries: readonly string[]): Promise<readonly string[]> {
  const answers = await Promise.all(queries.map((query) => prometheus.query(query)));
  return queries.filter((_query, index) => answers[index]?.length === 0);
}

describe('metrics', () => {
  it('The metrics show the backlog, then the lake, with disks, processes and build', async () => {
    const place = await startWithUser({
      dataDir: path.join(testFolder(), 'data'),
      settings: { TRIBUTARY_FLUSH_AGE_MS: '3000', TRIBUTARY_DISK_RESERVE_BYTES: '1048576' },
    });
    expect(await post(place)).toBe(200);
    let shown = await scrape(place);
    const waited = Number(shown.get('compact_oldest_waiting_seconds'));
    expect(shown.get('compact_lag_messages')).toBe('1');
    expect(waited).toBeGreaterThanOrEqual(0);
    expect(Number(shown.get('stream_bytes'))).toBeGreaterThan(100);
    expect(shown.get('stream_max_bytes')).toBe(String(8 * 1024 ** 3));

    await waitFor('the event is in the lake', async () => {
      shown = await scrape(place);
      return shown.get('compact_lag_messages') === '0' && shown.get('lake_rows{table="events"}') === '1';
    });
    const status = await place.service.status();
    const { events } = (status['lake'] as { tables: Record<string, { rows: number; bytes: number }> }).tables;
    expect(shown.get('compact_oldest_waiting_seconds')).toBe('0');
    expect(shown.get('lake_bytes{table="events"}')).toBe(String(events?.bytes));
    expect(shown.get('lake_files{table="events",state="young"}')).toBe('1');
    expect(shown.get('disk_reserve_bytes')).toBe('1048576');
    for (const folder of ['data', 'stream', 'lake', 'reports']) {
      const [free, size] = ['free', 'size'].map((what) => Number(shown.get(`disk_${what}_bytes{folder="${folder}"}`)));
      expect(free).toBeLessThanOrEqual(size ?? 0);
    }
    expect(shown.get('service_problems_by_code{code="stream_full"}')).toBe('0');
    expect([...shown.keys()].some((name) => /^build_info\{version="[\d.]+".*node="v\d+/.test(name))).toBe(true);

    await place.service.kill9('ingest', createRandom(1));
    const again = (): Promise<boolean> =>
      scrape(place).then((now) => now.get('service_process_restarts_total{process="ingest-1"}') === '1');
    await waitFor('the restart is counted', again);
    await waitFor('no problem is left', async () => (await scrape(place)).get('service_problems') === '0');
  });
});

describe('docs/monitoring', () => {
  let programs: string | undefined;
  beforeAll(async () => {
    programs = await findDebianPrograms({ package: 'prometheus', programs: ['prometheus', 'promtool'] });
  }, 300_000);

  it('The rules are valid for promtool, and fire only when they should', (ctx) => {
    ctx.skip(programs === undefined, 'no promtool on this machine');
    const promtool = (...words: string[]): string => {
      const { status, stdout, stderr } = spawnSync(path.join(programs ?? '', 'promtool'), words, {
        cwd: monitoringFolder,
        encoding: 'utf8',
      });
      return status === 0 ? stdout : `${stdout}${stderr}`;
    };
    expect(promtool('check', 'config', 'prometheus.yml')).toContain(`SUCCESS: ${readAlerts().length} rules found`);
    expect(promtool('test', 'rules', 'alerts.test.yml')).toMatch(/^Unit Testing: {2}alerts\.test\.yml\n {2}SUCCESS\n/);
  });

  it('Prometheus has data for each query of the dashboard and of the rules, and alerts when a process is crash looping', async (ctx) => {
    inWholeRun(ctx.skip);
    ctx.skip(programs === undefined, 'no Prometheus on this machine');
    const folder = testFolder();
    const settings = { TRIBUTARY_FLUSH_AGE_MS: '200', TRIBUTARY_INGEST_WORKERS: '1' };
    const place = await startWithUser({ dataDir: path.join(folder, 'data'), settings });
    const prometheus = await startPrometheus(programs ?? '', path.join(folder, 'prometheus'), place.service.ops);
    expect([await post(place), await post(place, 'wrong')]).toEqual([200, 403]);
    await orderExport(place);

    const queries = [...readBoardQueries(), ...readAlerts().flatMap(({ expr }) => operandsOf(expr))];
    expect(queries.length).toBeGreaterThan(40);
    let unanswered = queries;
    await waitFor('every query has data', async () => {
      unanswered = [...(await findUnanswered(prometheus, unanswered))];
      return unanswered.length === 0;
    }).catch((error: unknown) => {
      throw new Error(`without data: ${unanswered.join('\n')}`, { cause: error });
    });
    // The disk of this machine may be nearly full.
    expect(await prometheus.query('ALERTS{alertname!~"TributaryDisk.*"}')).toEqual([]);

    const random = createRandom(2);
    for (let kills = 0; kills < 3; kills += 1) {
      await place.service.kill9('ingest', random);
      await waitFor('imports are accepted again', async () => (await post(place).catch(() => 0)) === 200);
    }
    await waitFor('the alert fires', async () => (await prometheus.firing()).includes('TributaryRestarts'));
  });
});
