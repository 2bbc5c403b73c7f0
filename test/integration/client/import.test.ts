import { copyFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { ImportArea } from '../../../src/client/import-area.ts';
import { statePath } from '../../../src/client/import-state.ts';
import { openLakeReader } from '../../../src/demo/demo-report.ts';
import { totalsOf, waitUntilWorkedOff } from '../../helpers/accounting.ts';
import { areaOf, eventLines, importHere } from '../../helpers/client-import.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { addTestApp, type ServiceWithApp } from '../../helpers/service-access.ts';
import { startTestService } from '../../helpers/service.ts';

beforeEach(oneTestIn(2));

const folder = temporaryFolder();
const dataDir = path.join(folder, 'data');
let access: ServiceWithApp;

beforeAll(async () => {
  const token = await addTestApp(dataDir);
  access = { token, service: await startTestService({ dataDir }) };
}, 120_000);
afterAll(() => access.service.destroy());

/** Writes an input; returns its path. */
function input(name: string, content: string | Uint8Array): string {
  const file = path.join(folder, name);
  writeFileSync(file, content);
  return file;
}

const textOf = (lines: readonly string[]): string => `${lines.join('\n')}\n`;

/** Returns the rows that the lake received during a task; the backlog is empty before. */
async function gained(run: () => Promise<void>) {
  const before = await totalsOf(dataDir);
  await run();
  await waitUntilWorkedOff(access.service);
  const after = await totalsOf(dataDir);
  return { stored: after.stored - before.stored, repeats: after.repeats - before.repeats };
}

const hourMs = 3_600_000;

/** The area as if its events had been received long ago. */
function ofLongAgo(area: ImportArea): ImportArea {
  return {
    ...area,
    async findKey(key) {
      const answer = await area.findKey(key);
      return 'why' in answer ? answer : { ...answer, receivedAtMs: (answer.receivedAtMs ?? 0) - 30 * hourMs };
    },
  };
}

describe('the import of a file', { timeout: 60_000 }, () => {
  it('An import stores every valid event of a compressed file once, and writes each rejected line with its number, field and reason', async () => {
    const lines = eventLines(300);
    lines[4] = '{"customUserId":"u","customEventName":"bad time","eventTimestamp":1780000000000}';
    lines[5] = 'no json';
    lines[6] = '["no object"]';
    lines[7] = '';
    lines[100] = '{"customUserId":5,"customEventName":""}';
    lines[200] = JSON.stringify({
      customUserId: 'u',
      customEventName: 'large',
      customEventParams: { a: 'x'.repeat(11_000) },
    });
    lines[299] = '{"customEventName":"nobody"}';
    const file = input('mixed.ndjson.gz', gzipSync(textOf(lines)));
    const totals = await gained(async () => {
      const outcome = await importHere(access, file, { timeFormat: 's' });
      expect(outcome).toMatchObject({ stored: 293, refused: 6, lines: 300, isInterrupted: false });
    });
    expect(totals).toEqual({ stored: 293, repeats: 0 });
    const refused = readFileSync(`${file}.refused.ndjson`, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(refused.map(({ line, field }) => [line, field])).toEqual([
      [5, 'eventTimestamp'],
      [6, undefined],
      [7, undefined],
      [101, 'customUserId'],
      [201, undefined],
      [300, undefined],
    ]);
    expect(refused[0]).toMatchObject({
      hint: 'it looks like milliseconds: give seconds',
      event: { customEventName: 'bad time' },
    });
    expect(refused[1]).toMatchObject({ reason: 'is not JSON', text: 'no json' });
    const again = await gained(async () => {
      expect(await importHere(access, file)).toMatchObject({
        stored: 293,
        refused: 6,
        importedAt: expect.any(String) as string,
      });
    });
    expect(again).toEqual({ stored: 0, repeats: 0 });
  });

  it('An import of CSV maps columns to fields by name and by --map', async () => {
    const csv =
      'time,customUserId,what,customEventParams.level,note\r\n2026-05-28T20:26:40Z,"u-1","a ""b"", c",3,x\r\n1780000001,u-2,"two\nlines",,\r\nu-3,short\r\n';
    const file = input('events.csv', csv);
    const map = { time: 'eventTimestamp', what: 'customEventName', note: '' };
    const totals = await gained(async () => {
      expect(await importHere(access, file, { map })).toMatchObject({ stored: 2, refused: 1 });
    });
    expect(totals.stored).toBe(2);
    expect(JSON.parse(readFileSync(`${file}.refused.ndjson`, 'utf8'))).toMatchObject({
      line: 5,
      reason: 'has 2 cells, but the header has 5',
    });
    await expect(importHere(access, input('other.csv', csv), { map: { when: 'eventTimestamp' } })).rejects.toThrow(
      /the column when/,
    );
  });

  it('Raw in-app events of another tracker become custom events with their revenue', async () => {
    const csv = [
      'Install Time,Event Time,Event Name,Event Value,Event Revenue,Event Revenue Currency,Customer User ID,Platform',
      '2026-05-01 10:00:00,2026-05-28 20:26:40,af_purchase,"{""af_quantity"":1}",4.99,EUR,u-raw,android',
      '2026-05-01 10:00:00,2026-05-28 20:27:40,af_login,{},,,u-raw,android',
    ];
    const map = {
      'Event Time': 'eventTimestamp',
      'Event Name': 'customEventName',
      'Event Revenue': 'customEventParams.revenue',
      'Event Revenue Currency': 'customEventParams.currency',
      'Customer User ID': 'customUserId',
      '*': '',
    };
    const { stored } = await gained(async () => {
      expect(await importHere(access, input('raw.csv', textOf(csv)), { map })).toMatchObject({ stored: 2, refused: 0 });
    });
    expect(stored).toBe(2);
    const reader = await openLakeReader(dataDir);
    const rows = await reader.query(
      "SELECT custom_event_name AS name, epoch(event_time)::BIGINT AS time, custom_event_params AS params FROM custom_event WHERE custom_user_id = 'u-raw' ORDER BY time",
    );
    reader.close();
    expect(rows.map(({ name, time }) => [name, Number(time)])).toEqual([
      ['af_purchase', 1_780_000_000],
      ['af_login', 1_780_000_060],
    ]);
    expect(JSON.stringify(rows[0]?.['params'])).toMatch(/revenue.*4\.99.*currency.*EUR/);
  });

  it('An interrupted import resumes at its position, and stores each event once', async () => {
    const file = input('interrupted.ndjson', textOf(eventLines(4000, 'i')));
    let runs = 0;
    const totals = await gained(async () => {
      for (let isOver = false; !isOver; runs += 1) {
        const stop = new AbortController();
        let batches = 0;
        const onProgress = (): void => void ((batches += 1) === 60 && stop.abort());
        const outcome = await importHere(access, file, { signal: stop.signal, onProgress });
        isOver = !outcome.isInterrupted;
        expect(isOver ? outcome.stored : 4000).toBe(4000);
      }
    });
    expect(runs).toBeGreaterThan(2);
    expect(totals).toEqual({ stored: 4000, repeats: 0 });
  });

  it('An import from an old state sends batches again with the same keys, and looks up those that may be forgotten', async () => {
    const file = input('behind.ndjson', textOf([...eventLines(400, 'b'), '{"customUserId":1}']));
    const early = path.join(folder, 'early.json');
    const onProgress = (): void => void (existsSync(early) || copyFileSync(statePath(file), early));
    const first = await gained(async () => void (await importHere(access, file, { onProgress })));
    expect(first).toEqual({ stored: 400, repeats: 0 });
    copyFileSync(early, statePath(file));
    const soon = await gained(async () => {
      expect(await importHere(access, file)).toMatchObject({ stored: 400, refused: 1 });
    });
    expect(soon).toEqual({ stored: 0, repeats: 400 });
    copyFileSync(early, statePath(file));
    const late = await gained(async () => {
      expect(await importHere(access, file, { nowMs: () => Date.now() + 30 * hourMs })).toMatchObject({
        stored: 400,
        refused: 1,
      });
    });
    expect(late).toEqual({ stored: 0, repeats: 0 });
  });

  it('An import with a lost state, of a moved file, and a concurrent import of a copy store no event twice', async () => {
    const content = textOf(['{"customUserId":1}', ...eventLines(200, 'lost')]);
    const file = input('lost.ndjson', content);
    const twin = input('twin.ndjson', content);
    const atOnce = await gained(
      async () => void (await Promise.all([importHere(access, file), importHere(access, twin)])),
    );
    expect(atOnce.stored).toBe(200);
    rmSync(statePath(file));
    const moved = input('moved.ndjson', content);
    const totals = await gained(async () => {
      expect(await importHere(access, moved, { area: ofLongAgo(areaOf(access)) })).toMatchObject({
        stored: 200,
        refused: 1,
      });
    });
    expect(totals).toEqual({ stored: 0, repeats: 0 });
    const again = await gained(async () => void (await importHere(access, moved, { again: true })));
    expect(again).toEqual({ stored: 200, repeats: 0 });
  });

  it('An import is rejected during another one of the same file, after a change of the file, and with another map or app', async () => {
    const file = input('refusing.ndjson', textOf(eventLines(2000, 'r')));
    const stop = new AbortController();
    const onProgress = (): void => stop.abort();
    const running = importHere(access, file, { signal: stop.signal, onProgress });
    await expect(importHere(access, file, { stateFile: path.join(folder, 'elsewhere.json') })).rejects.toThrow(
      /in use by another import/,
    );
    expect((await running).isInterrupted).toBe(true);
    await expect(importHere(access, file, { idApp: 2 })).rejects.toThrow(/into app 1/);
    await expect(importHere(access, file, { again: true })).rejects.toThrow(/is not finished/);
    writeFileSync(file, textOf(eventLines(2000, 'other')));
    await expect(importHere(access, file)).rejects.toThrow(/has changed since its import began/);
    await expect(importHere(access, path.join(folder, 'none.ndjson'))).rejects.toThrow(/none\.ndjson does not exist/);
    await expect(areaOf({ ...access, token: 'wrong' }).checkAccess()).rejects.toThrow(/403 Forbidden/);
  });
});
