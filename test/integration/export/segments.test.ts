import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { datasets } from '../../../src/datasets/dataset.ts';
import { addSegment } from '../../../src/admin/lists/add-segment.ts';
import { putSegment, removeSegment } from '../../../src/segments/segment-store.ts';
import { createExportArea, type AnswerData, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { parseCsv } from '../../helpers/export-oracle.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { inWholeRun } from '../../helpers/in-turn.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';
import { addTestSegment, listOptions } from '../../helpers/lists.ts';
import { runHere } from '../../helpers/worker-here.ts';

const start = Date.parse('2025-05-01T00:00:00Z') / 1000;
const days = 'dateFrom=2025-05-01&dateTo=2025-05-02&timezone=UTC';
const many = 2_000_000;

/** Id of a device, 36 characters. */
const deviceOf = (n: number): string => `0b5c2a3e-77aa-4c0f-9d1e-${String(n).padStart(12, '0')}`;

let rows = 0;
const row = (values: Readonly<Record<string, unknown>>): FixtureEvent => ({
  event_id: `r${(rows += 1)}`,
  id_app: 1,
  event_time: start + rows,
  available_at: start + 4000,
  ...values,
});

const hits = [
  [
    row({ custom_user_id: 'ann', gaid: deviceOf(1), idfa: deviceOf(2) }),
    row({ custom_user_id: 'bea', lvid: 'd'.repeat(32) }),
    row({ custom_user_id: 'ann' }),
    row({ gaid: deviceOf(3) }),
  ],
  [
    row({ custom_user_id: ' ann' }),
    row({ custom_user_id: 'ann', id_app: 2 }),
    row({ idfa: deviceOf(1), custom_user_id: deviceOf(1) }),
    row({}),
  ],
];
const installs = [
  [row({ custom_user_id: 'ann' }), row({ instance_id: deviceOf(1) }), row({ android_id: 'x'.repeat(16) })],
];

const columnsOf = (table: string) => datasets.get(table)?.columns ?? [];
const ask = (event: string, idSegment: string, more = ''): string =>
  `event=${event}&selectors=eventId&${days}&idSegment=${idSegment}${more}`;
const idsOf = (parts: readonly string[]): string[] =>
  parseCsv(parts.join(''))
    .slice(1)
    .map(([id = '']) => id);

/** A list of a number of devices, from the last to the first. */
async function* manyDevices(): AsyncGenerator<Uint8Array> {
  const block = 20_000;
  for (let at = many; at > 0; at -= block)
    yield await Promise.resolve(
      Buffer.from(Array.from({ length: block }, (_unused, n) => `${deviceOf(at - n)}\n`).join('')),
    );
}

describe('idSegment', () => {
  const area = createExportArea(temporaryFolder());
  const { segmentsDir } = area;
  let running: RunningArea;
  let user: Credentials;
  let stranger: Credentials;

  const tableDir = (table: string): string => path.join(area.dataDir, 'lake', table);
  const exportIds = async (event: string, idSegment: string, more = ''): Promise<string[]> =>
    idsOf(await running.export(user, ask(event, idSegment, more)));
  const refusalOf = async (who: Credentials, query: string): Promise<string | undefined> => {
    const answer = await running.call(who, `/api/raw/v1/export/create.json?${query}`);
    return answer.status === 400 ? answer.json?.data?.error?.detail : `answered ${answer.status}`;
  };

  beforeAll(async () => {
    await area.addApp({ idApp: 1, platform: 'web', idAccount: 1 });
    await area.addApp({ idApp: 2, platform: 'web', idAccount: 2 });
    user = await area.addUser({});
    stranger = await area.addUser({ idAccount: 2 });
    await writeLake(tableDir('hits'), hits, columnsOf('hits'));
    await writeLake(tableDir('installs'), installs, columnsOf('installs'));
    running = await area.start({ runAttempt: runHere, maxExports: 100 });
  }, 60_000);
  afterAll(() => running.stop());

  it('A segment of users keeps the hits and installs of exactly these users, in the order of the lake', async () => {
    await addTestSegment(segmentsDir, { idAccount: 1, idSegment: 1, kind: 'custom' }, ['ann', 'nobody', deviceOf(3)]);
    expect(await exportIds('hits', '1')).toEqual(['r1', 'r3']);
    expect(await exportIds('hits', '001', '&order=time')).toEqual(['r1', 'r3']);
    expect(await exportIds('installs', '1')).toEqual(['r9']);
    expect(await exportIds('hits', '1', '&idApp=2')).toEqual([]);
    expect(await exportIds('install', '1', '&tsFrom=1&tsTo=2')).toEqual([]);
  });

  it('A segment of devices keeps each row once if any of its device identifiers is in the segment', async () => {
    const ids = [deviceOf(1), deviceOf(2), 'd'.repeat(32), 'x'.repeat(16), 'ann'];
    await addTestSegment(segmentsDir, { idAccount: 1, idSegment: 2, kind: 'device' }, ids);
    expect(await exportIds('hits', '2')).toEqual(['r1', 'r2', 'r7']);
    expect(await exportIds('installs', '2')).toEqual(['r10', 'r11']);
    expect(await exportIds('hits', '2', '&order=time&format=csv&idApp=1')).toEqual(['r1', 'r2', 'r7']);
  });

  it('A segment of another account is refused like an unknown one, and the refusal lists at most 20 own segments', async () => {
    const unknown = await refusalOf(stranger, ask('hits', '77'));
    expect(unknown).toBe(
      'Argument idSegment is invalid: "77"; allowed: the id of an available segment, and there is none',
    );
    await addTestSegment(segmentsDir, { idAccount: 1, idSegment: 77, kind: 'custom' }, ['a']);
    expect(await refusalOf(stranger, ask('hits', '77'))).toBe(unknown);
    for (let idSegment = 100; idSegment < 125; idSegment += 1) {
      const file = path.join(segmentsDir, `${idSegment}.parquet`);
      writeFileSync(file, 'what is in it is not asked here');
      await putSegment(segmentsDir, { idAccount: 2, idSegment }, file, { kind: 'custom', ids: 1, addedAt: '' });
    }
    const allowed = Array.from({ length: 20 }, (_unused, n) => 100 + n).join(', ');
    expect(await refusalOf(stranger, ask('hits', '77'))).toBe(
      `Argument idSegment is invalid: "77"; allowed: the id of an available segment: ${allowed} and 5 more`,
    );
    // Another wrong parameter is refused first; the segment passes.
    expect(await refusalOf(stranger, `${ask('hits', '100')}&order=x`)).toContain('Argument order is invalid');
    expect(await refusalOf(stranger, ask('hits', '100'))).toBe('answered 200');
  });

  it('A waiting export uses the segment as of its start, and ends in an error if it was removed by then', async ({
    skip,
  }) => {
    inWholeRun(skip);
    const segment = { idAccount: 1, idSegment: 3, kind: 'custom' } as const;
    await addTestSegment(segmentsDir, segment, ['ann']);
    await addTestSegment(segmentsDir, { ...segment, idSegment: 4 }, ['ann']);
    await addTestSegment(segmentsDir, { ...segment, idSegment: 5 }, ['ann']);
    await running.stop();
    running = await area.start({ runAttempt: runHere, maxExports: 100, exportWorkers: 0 });
    const queued = [3, 4, 5].map((id) => running.create(user, ask('hits', String(id))));
    const [replaced = '', removed = '', damaged = ''] = await Promise.all(queued);
    await addTestSegment(segmentsDir, segment, ['bea']);
    await removeSegment(segmentsDir, { idAccount: 1, idSegment: 4 });
    const file = readdirSync(path.join(segmentsDir, '1')).find((name) => name.startsWith('5-')) ?? '';
    rmSync(path.join(segmentsDir, '1', file));
    await running.stop();
    running = await area.start({ runAttempt: runHere, maxExports: 100 });
    expect(idsOf(await running.download(user, replaced))).toEqual(['r2']);
    const endOf = (id: string): Promise<AnswerData> => running.waitForEnd(user, id);
    expect(await endOf(removed)).toMatchObject({ status: 'Error occurred' });
    expect(await endOf(damaged)).toMatchObject({ status: 'Error occurred' });
  });

  it('A segment of two million devices is compared within 256 MB of the engine', async ({ skip }) => {
    inWholeRun(skip);
    const segment = { idAccount: 1, idSegment: 6, kind: 'device' } as const;
    const added = await addSegment(segmentsDir, segment, { name: 'many', pieces: manyDevices() }, listOptions);
    expect(added).toMatchObject({ ids: many, lines: many });
    await running.stop();
    running = await area.start({ runAttempt: runHere, maxExports: 100, duckdbMemoryMb: 256 });
    expect(await exportIds('hits', '6')).toEqual(['r1', 'r4', 'r7']);
  }, 120_000);
});
