import { appendFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  renderAuditRow,
  type AuditAction,
  type AuditDetails,
  type AuditEntry,
  type AuditOutcome,
} from '../../../src/audit/audit-entry.ts';
import { openAuditLog, readAuditDays } from '../../../src/audit/audit-log.ts';
import { connectFolders } from '../../../src/runtime/store/open-store.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { connectTestBucket } from '../../helpers/connected-bucket.ts';
import { startFakeS3 } from '../../helpers/fake-s3.ts';
import { testFolder } from '../../helpers/folder.ts';

const dayMs = 86_400_000;
const startMs = Date.parse('2026-03-01T23:59:58.000Z');
const logger = createLogger('silent');
type Recorded = { readonly action: AuditAction; readonly outcome: AuditOutcome } & AuditDetails;
const added: Recorded = { action: 'app_add', outcome: 'ok', systemUser: 'root', subject: 'app 7' };
const download: Recorded = { action: 'download', outcome: 'ok', idUser: '1', subject: 'export 3', detail: 'a.csv' };
const view: Recorded = { action: 'view', outcome: 'ok', idUser: '1', subject: 'app 7, preview' };
const wrong: Recorded = { action: 'sign_in', outcome: 'refused', idUser: '1', address: '192.0.2.1' };

function open(folder: string, keepDays = 10) {
  const clock = { atMs: startMs, nowMs: () => clock.atMs };
  const opened = openAuditLog({ folder, keepDays }, { clock, logger });
  const record = ({ action, outcome, ...details }: Recorded) => opened.record(action, outcome, details);
  return { clock, log: { ...opened, record } };
}

async function read(folder: string, days = {}): Promise<AuditEntry[]> {
  const entries: AuditEntry[] = [];
  for await (const found of readAuditDays(folder, days)) entries.push(...found.entries);
  return entries;
}

async function countDamaged(folder: string): Promise<number> {
  let damaged = 0;
  for await (const found of readAuditDays(folder)) damaged += found.damaged;
  return damaged;
}

describe('the audit log', () => {
  it('Entries are listed newest first with their days, across processes and the midnight of UTC', async () => {
    const folder = path.join(testFolder(), 'audit');
    const [one, other] = [open(folder), open(folder)];
    await one.log.record(added);
    other.clock.atMs += 1000;
    await Promise.all([
      other.log.record({ ...added, subject: 'app 8' }),
      other.log.record({ ...added, subject: 'app 9' }),
    ]);
    one.clock.atMs += 3000;
    await one.log.record({ ...added, subject: 'app 10' });
    const subjects = (await read(folder)).map(({ subject }) => subject);
    expect([subjects[0], new Set(subjects.slice(1, 3)), subjects[3]]).toEqual([
      'app 10',
      new Set(['app 8', 'app 9']),
      'app 7',
    ]);
    expect(await read(folder, { from: '2026-03-02' })).toMatchObject([
      {
        ...added,
        subject: 'app 10',
        time: '2026-03-02T00:00:01.000Z',
        id: expect.stringMatching(/^[0-9a-f]{16}$/) as unknown,
      },
    ]);
    expect(readdirSync(path.join(folder, '2026-03-01'))).toHaveLength(2);
  });

  it('A truncated last line and a foreign one are counted and skipped, and later entries are intact', async () => {
    const folder = path.join(testFolder(), 'audit');
    const { log } = open(folder);
    await log.record(added);
    const [file = ''] = readdirSync(path.join(folder, '2026-03-01'));
    appendFileSync(path.join(folder, '2026-03-01', file), '\n{"id":"0123","time":"2026-03-01T23:59:58.0');
    // The object was changed by another process: the next entries go to another one.
    await log.record({ ...added, subject: 'app 8' });
    expect(new Set((await read(folder)).map(({ subject }) => subject))).toEqual(new Set(['app 7', 'app 8']));
    expect(await countDamaged(folder)).toBe(1);
  });

  it('Equal downloads, views and refusals are one entry at once and one with their count, and many refusals share entries', async () => {
    const folder = path.join(testFolder(), 'audit');
    const { log } = open(folder);
    for (let number = 0; number < 50; number += 1) await log.record(download);
    for (let number = 0; number < 7; number += 1) await log.record(view);
    for (let number = 0; number < 500; number += 1) await log.record({ ...wrong, address: `192.0.2.${number}` });
    expect(await read(folder)).toHaveLength(102);
    await log.stop();
    const counted = (await read(folder)).filter(({ count }) => count !== undefined);
    expect(counted.map(({ action, address, count }) => [action, address, count])).toEqual([
      ['download', undefined, 49],
      ['view', undefined, 6],
      ['sign_in', undefined, 400],
    ]);
  });

  it('While the folder cannot be written, entries wait, a problem says so, and they are written later', async () => {
    const folder = path.join(testFolder(), 'audit');
    const { log } = open(folder);
    writeFileSync(folder, 'a file where the folder should be');
    await log.record(added);
    expect(log.problems()).toMatchObject([
      { code: 'audit_unwritable', message: expect.stringContaining('1 entries wait') as unknown },
    ]);
    rmSync(folder);
    await log.record({ ...added, subject: 'app 8' });
    expect(log.problems()).toEqual([]);
    expect(new Set((await read(folder)).map(({ subject }) => subject))).toEqual(new Set(['app 7', 'app 8']));
    await log.stop();
  });

  it('Entries of days before the retention are removed, others stay, and a retention of 0 records nothing', async () => {
    const folder = path.join(testFolder(), 'audit');
    const { log, clock } = open(folder);
    await log.record(added);
    clock.atMs += 10 * dayMs;
    await log.record({ ...added, subject: 'app 8' });
    await log.sweep();
    expect(await read(folder)).toHaveLength(2);
    clock.atMs += dayMs;
    await log.sweep();
    expect(await read(folder)).toMatchObject([{ subject: 'app 8' }]);
    const none = path.join(testFolder(), 'audit');
    await open(none, 0).log.record(added);
    expect(await read(none)).toEqual([]);
  });

  it('Several hosts write their entries to one bucket, each to separate objects', async () => {
    const { endpoint } = await startFakeS3();
    const dataDir = testFolder();
    const folder = path.join(dataDir, 'audit');
    const folders = await connectTestBucket(dataDir, { endpoint, leaseMs: 3000 });
    onTestFinished(async () => {
      await folders.close();
      connectFolders([]);
    });
    const hosts = [open(folder), open(folder)];
    for (const { log } of hosts) for (const subject of ['app 7', 'app 8']) await log.record({ ...added, subject });
    expect(await read(folder)).toHaveLength(4);
    expect((await read(folder))[0]?.host).toBeTypeOf('string');
    hosts[0]!.clock.atMs += 12 * dayMs;
    await hosts[0]!.log.sweep();
    expect(await read(folder)).toEqual([]);
  });

  it('A row of CSV quotes its cells, and a text that a spreadsheet would run is made harmless', () => {
    const entry = {
      id: 'ab',
      time: '2026-03-01T00:00:00Z',
      action: 'app_add',
      outcome: 'ok',
      subject: 'a "b", c',
      detail: '=1+1',
    } as const;
    expect(renderAuditRow(entry)).toBe(`2026-03-01T00:00:00Z,app_add,ok,,,,,"a ""b"", c",'=1+1,,,ab`);
  });
});
