import path from 'node:path';
import { copyFile, readFile, rm, writeFile } from 'node:fs/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { cataloguePaths, writeNotices } from '../../../src/lake/catalogue/catalogue-files.ts';
import { readCatalogue } from '../../../src/lake/catalogue/read-catalogue.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { findTextFile } from '../../../src/runtime/files/durable-file.ts';
import { findNames } from '../../../src/runtime/files/folder-names.ts';
import { findFilesWith } from '../../helpers/find-bytes.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { type MemoryStream, createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

const dayMs = 86_400_000;
/** The newest day whose events are sealed. */
const lastDayMs = Math.floor((Date.now() - 25 * 3_600_000) / dayMs) * dayMs;

function line(name: string, params: Readonly<Record<string, string>>, timeMs: number, user: string) {
  return eventLine({
    kind: 'custom_event',
    event_time: Math.floor(timeMs / 1000),
    custom_user_id: user,
    custom_event_name: name,
    custom_event_params: params,
  });
}

/** An event of the sender with these ids. */
const sentBy = (params: Readonly<Record<string, string>>, ids: Readonly<Record<string, unknown>>) => ({
  ...line('visit', params, lastDayMs, 'u'),
  custom_user_id: undefined,
  ...ids,
});

async function erase(folder: string, stream: MemoryStream, user: string): Promise<number> {
  const lakeDir = path.join(folder, 'lake');
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  const clock = createClock(0);
  const crashPoint = noCrashPoint;
  try {
    const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint });
    const { signal } = new AbortController();
    const dependencies = { table, lakeDir, duckdb, publisher: stream.publisher, clock, crashPoint, signal };
    return (await eraseEvents(dependencies, { users: [user] }, { retentionMs: dayMs, now: true })).rows;
  } finally {
    duckdb.close();
  }
}

/** Starts a compactor that has the first event of a lake in its catalogue. */
async function startWithVisit() {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  const counted = async (events: number): Promise<boolean> =>
    (await readCatalogue(lakeDir, 1)).customEvents[0]?.events === events;
  stream.publish([line('visit', { page: 'home' }, lastDayMs, 'u')]);
  await waitFor('in the catalogue', () => counted(1));
  return { lakeDir, stream, compact: compactor, counted };
}

describe('catalogue of a lake that changes', () => {
  it('Nothing that an erased user sent stays in the catalogue', async () => {
    const folder = testFolder();
    const lakeDir = path.join(folder, 'lake');
    const stream = createMemoryStream();
    const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10 });
    const secret = { parameter: 'ofalice0', value: 'ofalice1', event: 'ofalice2', shared: 'ofalice3' };
    stream.publish([
      line('visit', { page: 'home', [secret.parameter]: '1' }, lastDayMs, 'alice'),
      line('visit', { page: 'home', code: secret.value }, lastDayMs, 'alice'),
      line('visit', { page: 'home' }, lastDayMs, 'bob'),
      line(secret.event, { page: 'x' }, lastDayMs, 'alice'),
      // Shown while two users send it; a value of one user alone is not an example.
      line('visit', { page: secret.shared }, lastDayMs, 'alice'),
      line('visit', { page: secret.shared }, lastDayMs, 'carol'),
    ]);
    const { folder: own, viewsSql } = cataloguePaths(lakeDir);
    const pageExamples = async (): Promise<readonly string[]> =>
      (await readCatalogue(lakeDir, 1, 'visit')).customEvents[0]?.parameters.find(({ name }) => name === 'page')
        ?.examples ?? [];
    await waitFor('in the catalogue', async () => (await pageExamples()).includes(secret.shared));
    expect(await findTextFile(viewsSql)).toContain(secret.parameter);
    expect(
      (await readCatalogue(lakeDir, 1, 'visit')).customEvents[0]?.parameters.find(({ name }) => name === 'code')
        ?.examples,
    ).toEqual([]);

    expect(await erase(folder, stream, 'alice')).toBe(4);
    const isGone = async (): Promise<boolean> => {
      const { customEvents } = await readCatalogue(lakeDir, 1, 'visit');
      return customEvents[0]?.events === 2 && customEvents[0].parameters.length === 1;
    };
    await waitFor('the catalogue follows', isGone);
    expect(await pageExamples()).toEqual([]);
    for (const word of Object.values(secret)) expect(await findFilesWith(own, word)).toEqual([]);
    expect(await findTextFile(viewsSql)).not.toMatch(/ofalice/);
    await compactor.stop();
  });

  it('An example was sent by two users, or by two devices without a user, and never by one person alone', async () => {
    const folder = testFolder();
    const lakeDir = path.join(folder, 'lake');
    const stream = createMemoryStream();
    const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10 });
    stream.publish([
      // Before a login and after it, with an id of either kind.
      sentBy({ mail: 'a@example.org' }, { lvid: 'd1' }),
      sentBy({ mail: 'a@example.org' }, { lvid: 'd1', custom_user_id: 'alice' }),
      sentBy({ mail: 'b@example.org' }, { gaid: 'g1' }),
      sentBy({ mail: 'b@example.org' }, { custom_user_id: 'bob' }),
      sentBy({ mail: 'b@example.org' }, { lvid: 'd2', custom_user_id: 'bob' }),
      sentBy({ of: 'devices' }, { gaid: 'g1' }),
      sentBy({ of: 'devices' }, { gaid: 'g2' }),
      sentBy({ of: 'players' }, { custom_platform_user_id: 'p1', x_platform: 'x' }),
      sentBy({ of: 'players' }, { custom_platform_user_id: 'p2', x_platform: 'x' }),
      sentBy({ of: 'games' }, { sezam_user_id: 1 }),
      sentBy({ of: 'games' }, { sezam_user_id: 2 }),
    ]);
    const list = async () => (await readCatalogue(lakeDir, 1, 'visit')).customEvents[0]?.parameters ?? [];
    await waitFor('in the catalogue', async () => (await list()).length === 2);
    await compactor.stop();
    const examples = new Map((await list()).map((parameter) => [parameter.name, parameter.examples.toSorted()]));
    expect(examples).toEqual(
      new Map([
        ['of', ['devices', 'games', 'players']],
        ['mail', []],
      ]),
    );
  });

  it('Leftovers of a killed fold, notices and views of erased events are removed before an immediate erasure returns', async () => {
    const folder = testFolder();
    const lakeDir = path.join(folder, 'lake');
    const stream = createMemoryStream();
    const { folder: own, viewsSql } = cataloguePaths(lakeDir);
    const first = await startTestCompact(folder, stream, { sealAgeMs: 10 });
    stream.publish([line('ofalice0', { ofalice1: '1' }, lastDayMs, 'alice')]);
    await waitFor('in the catalogue', async () => (await readCatalogue(lakeDir, 1)).customEvents.length === 1);
    await first.stop();
    const [fold = ''] = (await findNames(own)).filter((name) => name.endsWith('.parquet'));
    await copyFile(path.join(own, fold), path.join(own, 'catalogue-0123456789abcdef.parquet'));
    await copyFile(path.join(own, fold), path.join(own, 'killed.tmp'));
    await writeNotices(lakeDir, [
      {
        id: 'nt_0',
        kind: 'parameter_new',
        idApp: 1,
        customEventName: 'ofalice0',
        parameter: 'ofalice1',
        date: '2024-05-01',
        foundAt: '2024-05-02T00:00:00.000Z',
        what: 'parameter "ofalice1" is new',
      },
    ]);
    const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10 });
    expect(await erase(folder, stream, 'alice')).toBe(1);
    expect(await findFilesWith(own, 'ofalice')).toEqual([]);
    expect(await findTextFile(viewsSql)).not.toMatch(/ofalice/);
    expect((await readCatalogue(lakeDir, 1)).notices).toEqual([]);
    await compactor.stop();
  });

  it('A catalogue that is removed while the compactor runs is recreated', async () => {
    const { lakeDir, stream, compact, counted } = await startWithVisit();
    await rm(cataloguePaths(lakeDir).folder, { recursive: true });
    stream.publish([line('visit', { page: 'home' }, lastDayMs - dayMs, 'u')]);
    await waitFor('made again', () => counted(2));
    expect(compact.facts()['problems']).toEqual([]);
    // Also while no events arrive: its record and views.sql, separately.
    const { folder: own, viewsSql } = cataloguePaths(lakeDir);
    for (const file of [viewsSql, path.join(own, 'catalogue.json')]) {
      await rm(file);
      await waitFor('there again', async () => (await findTextFile(file)) !== undefined);
    }
    expect(await counted(2)).toBe(true);
    await compact.stop();
  });

  it('Parts that are damaged while the compactor runs are recreated', async () => {
    const { lakeDir, stream, compact, counted } = await startWithVisit();
    const { packs } = cataloguePaths(lakeDir);
    for (const name of await findNames(packs)) {
      const file = path.join(packs, name);
      const bytes = await readFile(file);
      // The pages of the columns; the footer after them stays unchanged.
      await writeFile(file, bytes.fill(0xff, 8, bytes.length - bytes.readUInt32LE(bytes.length - 8) - 8));
    }
    stream.publish([line('visit', { page: 'home' }, lastDayMs - dayMs, 'u')]);
    await waitFor('the parts are recreated', () => counted(2));
    await waitFor('no problem is left', () => (compact.facts()['problems'] as unknown[]).length === 0);
    expect(await findNames(packs)).not.toEqual([]);
    await compact.stop();
  });

  it('After a compactor is killed at any moment, the next one completes the catalogue and leaves no other file', async () => {
    const folder = testFolder();
    const lakeDir = path.join(folder, 'lake');
    const stream = createMemoryStream();
    stream.publish(
      Array.from({ length: 400 }, (_, index) =>
        line('visit', { n: String(index) }, lastDayMs - (index % 20) * dayMs, 'u'),
      ),
    );
    const tableDir = lakePaths(lakeDir).table;
    const first = await startTestCompact(folder, stream, { sealAgeMs: 10 });
    await waitFor('sealed', async () => (await readSnapshot(tableDir)).files.some((file) => !file.young));
    await first.stop();
    const second = await startTestCompact(folder, stream, { sealAgeMs: 10 });
    await waitFor('whole', async () => {
      const { customEvents, missingFiles } = await readCatalogue(lakeDir, 1);
      return missingFiles === 0 && customEvents[0]?.events === 400;
    });
    await second.stop();
    const { customEvents } = await readCatalogue(lakeDir, 1, 'visit');
    expect(customEvents[0]).toMatchObject({
      events: 400,
      sampledEvents: 400,
      days: Array.from({ length: 20 }, () => ({ events: 20 })),
    });
    expect(await findFilesWith(cataloguePaths(lakeDir).folder, '.tmp')).toEqual([]);
  });

  it('New, lost and changed parameters and fallen volumes are noticed once, and unchanged ones are not', async () => {
    const folder = testFolder();
    const lakeDir = path.join(folder, 'lake');
    const stream = createMemoryStream();
    for (let back = 0; back < 31; back += 1) {
      const isRecent = back < 3;
      const params = {
        price: '1.5',
        ...(isRecent ? { fresh: '1' } : { old: 'x' }),
        turned: isRecent ? 'one' : '1',
      };
      const at = lastDayMs - back * dayMs;
      const of = (name: string, count: number) =>
        Array.from({ length: count }, (_, index) => line(name, params, at + index * 1000, `u${index}`));
      stream.publish([...of('buy', 60), ...of('visit', back === 0 ? 20 : 120), ...of('rare', back === 0 ? 0 : 5)]);
    }
    const options = { sealAgeMs: 10 };
    const compactor = await startTestCompact(folder, stream, options);
    await waitFor('noticed', async () => (await readCatalogue(lakeDir, 1)).notices.length > 0, 60_000);
    await compactor.stop();
    const list = async (): Promise<string[]> =>
      (await readCatalogue(lakeDir, 1)).notices.map(({ kind, customEventName, parameter = '' }) =>
        `${kind} ${customEventName} ${parameter}`.trim(),
      );
    const noticed = await list();
    expect(noticed.toSorted()).toEqual([
      'parameter_changed buy turned',
      'parameter_changed visit turned',
      'parameter_lost buy old',
      'parameter_lost visit old',
      'parameter_new buy fresh',
      'parameter_new visit fresh',
      'volume_fallen undefined',
      'volume_fallen visit',
    ]);
    const changed = (await readCatalogue(lakeDir, 1, 'buy')).notices.find(({ kind }) => kind === 'parameter_changed');
    expect(changed?.what).toBe(
      'parameter "turned" changed its type: number in 1680 of 1680 values of the previous four weeks, text in 180 of 180 values since',
    );
    const again = await startTestCompact(folder, stream, options);
    stream.publish([line('buy', { price: '2' }, lastDayMs, 'u1')]);
    await waitFor('one more', async () =>
      (await readCatalogue(lakeDir, 1)).customEvents.some(
        ({ customEventName, events }) => customEventName === 'buy' && events === 31 * 60 + 1,
      ),
    );
    await again.stop();
    expect(await list()).toEqual(noticed);
  }, 120_000);
});
