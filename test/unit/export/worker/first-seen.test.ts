import { rm } from 'node:fs/promises';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { openFirstSeenParts } from '../../../../src/lake/first-seen/first-seen-parts.ts';
import { listUncovered } from '../../../../src/lake/first-seen/plan-parts.ts';
import { ensureLake, lakePaths } from '../../../../src/lake/lake.ts';
import { writeCheckpoint } from '../../../../src/lake/log/checkpoint.ts';
import { openTable } from '../../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../../src/lake/sql/duckdb.ts';
import { createClock } from '../../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../../src/runtime/crash-point.ts';
import { exportHere } from '../../../helpers/export-here.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { addMadeFile } from '../../../helpers/sealed-file.ts';

/** App, subject and time of an event. */
type Login = readonly [idApp: number, subject: string, time: string];

const from = Date.parse('2026-02-01T00:00:00Z') / 1000;
const earlier: readonly Login[] = [
  [1, 'old', '2026-01-31 23:59:59.9'],
  [2, 'of another app', '2026-01-31 12:00:00'],
];
/** An export of app 1 does not read this file from the checkpoint, though a part covers it. */
const ofOtherApp: readonly Login[] = [[3, 'other', '2026-01-30 12:00:00']];
const ofSpan: readonly Login[] = [
  [1, 'new', '2026-02-01 00:00:00'],
  [1, 'old', '2026-02-01 00:00:01'],
  [1, 'of another app', '2026-02-01 00:00:02'],
];

/** Returns SQL of the text of row `i`. */
const pick = (texts: readonly string[]): string => `[${texts.map((text) => `'${text}'`).join(', ')}][i + 1]`;

/** Creates a lake with a checkpoint and a first-seen part; the bytes of a file before the span are then lost. */
async function createLake(): Promise<string> {
  const lakeDir = path.join(testFolder(), 'lake');
  const clock = createClock(0);
  await ensureLake(lakeDir, { clock, retentionMs: 60_000 });
  const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
  for (const [date, logins] of [
    ['2026-01-30', ofOtherApp],
    ['2026-01-31', earlier],
    ['2026-02-01', ofSpan],
  ] as const) {
    const subject = pick(logins.map(([, text]) => text));
    const time = `CAST(${pick(logins.map(([, , text]) => `${text}+00`))} AS TIMESTAMPTZ)`;
    const values = {
      event_id: `'${date}-' || i`,
      kind: "'login'",
      date: `DATE '${date}'`,
      id_app: `[${logins.map(([idApp]) => idApp).join(', ')}][i + 1]`,
      event_time: time,
      received_at: time,
      available_at: time,
      custom_user_id: subject,
      lvid: subject,
    };
    await addMadeFile(table, clock, { path: `kind=login/date=${date}/0.parquet`, rows: logins.length, values });
  }
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const { files, emptyFile } = table.snapshot();
  const parts = await openFirstSeenParts(lakeDir);
  await parts.add(duckdb, listUncovered([], files), emptyFile, '2026-02-02');
  await writeCheckpoint(duckdb, table.dir, table.state(), noCrashPoint);
  for (const file of files) if (file.path.includes('2026-01-31')) await rm(file.absolutePath);
  return path.join(lakeDir, 'events');
}

it.each(['newUsers', 'newDevices'])(
  'With parts, %s is exact at the start of the span and reads no earlier file',
  async (event) => {
    const tableDir = await createLake();
    const request = {
      event,
      selectors: ['customUserId'],
      eventTime: { fromSeconds: from, beforeSeconds: from + 86_400 },
    };
    expect(await exportHere(tableDir, request)).toEqual([['new'], ['of another app']]);
    // From here on, the first time is earlier; before it, the file of that time is read.
    const next = { ...request, eventTime: { fromSeconds: from + 1 } };
    expect(await exportHere(tableDir, next)).toEqual([['of another app']]);
    await expect(exportHere(tableDir, { ...request, eventTime: { fromSeconds: from - 86_400 } })).rejects.toThrow(
      'missing',
    );
  },
);

it('With a filter on a field, the earlier files are read, since it selects events before the derivation', async () => {
  const tableDir = await createLake();
  const filtered = {
    event: 'newUsers',
    selectors: ['customUserId'],
    eventTime: { fromSeconds: from },
    filters: { idCountry: ['7'] },
  };
  await expect(exportHere(tableDir, filtered)).rejects.toThrow('missing');
});
