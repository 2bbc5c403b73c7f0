import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createExportArea, type AnswerData, type Credentials, type ProcessArea } from '../../helpers/export-area.ts';
import { createRandom } from '../../helpers/export-events.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';
import { isAlive, signalProcess } from '../../helpers/processes.ts';
import { waitFor } from '../../helpers/wait.ts';

/** Kills the stage alone, on its own folder; chaos/export-kills kills the complete service far more often. */
const kills = 6;
const batchRows = 12_000;
const seed = Number(process.env['TRIBUTARY_TEST_SEED'] ?? 7);
const time = Date.parse('2025-05-02T00:00:00Z') / 1000;
const query =
  'event=customEvents&selectors=eventId,eventName,customUserId,params.name,params.value,dtEvent,tsEvent,tsInsert&dateFrom=2025-05-01&dateTo=2025-05-31';
const options = { singleFileMaxBytes: 0, partMaxBytes: 1024 * 1024, maxExports: 100 };

function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

function makeBatch(number: number): FixtureEvent[] {
  return Array.from({ length: batchRows }, (_, index) => {
    const id = number * batchRows + index;
    return {
      event_id: `event-${id}`,
      kind: 'custom_event',
      id_app: 7,
      event_time: time + id,
      available_at: time + id + 2,
      custom_user_id: `user ${id % 977}`,
      custom_event_name: `name, ${id % 13}`,
      custom_event_params: { level: String(id), text: `"${id}"\n` },
    };
  });
}

/** The content of a result, without the id of its request. */
function content(data: AnswerData): unknown {
  return data.files?.map(({ rows, bytes, sha256 }) => ({ rows, bytes, sha256 }));
}

describe('exports while everything is killed', () => {
  const area = createExportArea(temporaryFolder());
  let user: Credentials;
  let stage: ProcessArea;

  beforeAll(async () => {
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
    user = await area.addUser({});
    await writeLake(
      area.tableDir,
      Array.from({ length: 3 }, (_, number) => makeBatch(number)),
    );
    stage = await area.startProcess(options);
  }, 120_000);
  afterAll(() => stage.kill());

  it(`Exports end in exactly one result with the right bytes, over ${kills} kills of workers and of the role (seed ${seed})`, async () => {
    const undisturbed = content(await stage.waitForEnd(user, await stage.create(user, query)));
    const random = createRandom(seed);
    const ids: string[] = [];
    for (let kill = 0; kill < kills; kill += 1) {
      if (kill % 3 === 0) ids.push(await stage.create(user, query));
      const inProgress = async (): Promise<boolean> => {
        const { data } = (await stage.call(user, '/api/report/v1/file/list.json')).json ?? {};
        return data?.reports?.some((report) => report['status'] === 'In progress') === true;
      };
      if (!(await inProgress())) ids.push(await stage.create(user, query));
      await waitFor('a worker runs', () => childrenOf(stage.pid).length > 0);
      // At any moment of the attempt, from its start to about its end.
      const until = performance.now() + random(600);
      await waitFor('the moment has come', () => performance.now() >= until || childrenOf(stage.pid).length === 0);
      const [worker] = childrenOf(stage.pid);
      if (random(3) === 0 || worker === undefined) {
        const orphans = childrenOf(stage.pid);
        await stage.kill();
        stage = await area.startProcess(options);
        for (const orphan of orphans) await waitFor('the orphaned worker has exited', () => !isAlive(orphan));
      } else signalProcess(worker, 'SIGKILL');
    }
    const ends = [];
    for (const id of ids) ends.push(await stage.waitForEnd(user, id));
    const succeeded = ends.filter((data) => data.status === 'Success!');
    for (const data of ends) expect(['Success!', 'Error occurred']).toContain(data.status);
    expect(succeeded.length).toBeGreaterThan(ends.length / 2);
    for (const data of succeeded) expect(content(data)).toEqual(undisturbed);
    for (const data of ends) {
      const folder = path.join(area.reportsDir, data.idReportFile ?? '');
      const succeededHere = data.status === 'Success!';
      const kept = succeededHere ? 'job.json,parts' : 'job.json';
      // The work of the attempt is removed after its end.
      await waitFor('only the result is left', () => readdirSync(folder).toSorted().join() === kept);
      expect(succeededHere ? readdirSync(path.join(folder, 'parts')).length : undefined).toBe(data.files?.length);
    }
    expect(childrenOf(stage.pid)).toEqual([]);
  }, 300_000);
});
