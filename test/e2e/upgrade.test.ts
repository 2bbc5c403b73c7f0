import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { openLakeReader } from '../../src/demo/demo-report.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { basic } from '../helpers/export-area.ts';
import { testFolder } from '../helpers/folder.ts';
import { inTurn } from '../helpers/in-turn.ts';
import { readTotals } from '../helpers/lake.ts';
import { startTestService } from '../helpers/service.ts';

/**
 * A data folder of version 0.2.0 after a kill: four events in the lake, a fifth erased, some of them sealed; four more in
 * the stream, of which one is a repeat; a finished export whose links were signed by a key that was rotated since.
 */
const older = path.resolve(import.meta.dirname, '../fixtures/data-folder-0.2.0.tar.gz');
const leftAt = Date.parse('2026-11-24T08:31:00Z');
const token = 'mWUpKj2NqG5beSyhktsiwuy5kwPo0wndohXlEVJ7jAA';
const ann = { idUser: '1', secret: 'ojB5Cx77XT9tyYJeSDZM8vKIAafPyXTzzWThFvIOFic' };
const link =
  '/files/1/1.customEvents.b82412ae84931e33072075576e2e35ce.csv?expires=1796113847&kid=d58967f9&signature=17945591f524cb1d7bc4b6373006997fc6414aae51cdc477b0c599bbba422106';
const file = `eventId,customUserId,eventName
fde173a0-3856-855b-9d44-73d08c0615d8,ben,start
2cda7095-9c97-8e5e-9263-9cbcd992adb6,cem,shop
288c13c2-1629-827c-9710-b11bb1cdab69,dan,level_up
`;

const times = [
  { when: 'an hour later', hours: 1, isKept: true },
  { when: 'a month later', hours: 720, isKept: false },
];

it.each(inTurn(times, 2))(
  'A data folder of version 0.2 works, $when, without a difference',
  async ({ hours, isKept }) => {
    const dataDir = path.join(testFolder(), 'data');
    mkdirSync(dataDir);
    execFileSync('tar', ['-xzf', older, '-C', path.dirname(dataDir)]);
    const offset = Math.round((leftAt + hours * 3_600_000 - Date.now()) / 1000);
    const service = await startTestService({ dataDir, settings: { TRIBUTARY_CLOCK_OFFSET_SECONDS: String(offset) } });
    onTestFinished(() => service.destroy());

    const send = async (key: string, body: unknown, method = 'customEvent'): Promise<void> => {
      const answer = await fetch(`${service.s2s}/v1/${method}/?idApp=1`, {
        method: 'POST',
        headers: { authorization: token, 'idempotency-key': key },
        body: JSON.stringify(body),
      });
      expect(await answer.json()).toEqual({ message: 'Ok' });
    };
    await send('key-4', { customUserId: 'new', customEventName: 'after' });
    // Retries of an event and a batch that 0.2 has stored.
    if (isKept) {
      await send('key-1', { customUserId: 'ben', customEventName: 'start', eventTimestamp: 1_795_249_838 });
      const shop = { customEventName: 'shop', customEventParams: { item: 'sword, "long"' } };
      const batch = [
        { customUserId: 'cem', ...shop },
        { customUserId: 'dan', customEventName: 'level_up' },
      ];
      await send('key-2', batch, 'customEventBatch');
    }
    await waitUntilWorkedOff(service);
    const lake = await openLakeReader(dataDir);
    onTestFinished(() => lake.close());
    const rows = await lake.query(
      "SELECT concat_ws(' ', custom_user_id, kind, custom_event_name) AS row FROM events ORDER BY ALL",
    );
    expect(rows.map(({ row }) => row)).toEqual([
      'ann registration',
      'ben custom_event start',
      'cem custom_event shop',
      'dan custom_event level_up',
      'dan custom_event level_up',
      'eve custom_event late',
      'eve custom_event level_up',
      'new custom_event after',
    ]);

    const list = await fetch(`${service.api}/api/raw/v1/export/list.json`, { headers: { authorization: basic(ann) } });
    expect(await list.json()).toMatchObject({ data: { total: isKept ? 1 : 0 } });
    const downloaded = await fetch(service.api + link);
    const text = await downloaded.text();
    expect([downloaded.status, text.includes(isKept ? file : 'Access denied')]).toEqual([isKept ? 200 : 403, true]);
    expect(await service.command('lake', 'check')).toMatchObject({ ok: true });
    expect(await service.status()).toMatchObject({ problems: [] });
    expect(await readTotals(path.join(dataDir, 'lake'))).toMatchObject({ failed: 0 });
  },
);
